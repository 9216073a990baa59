#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the cluster's programs and images from pinned Go modules, once per
# machine: the results live in the cache under a key made of everything that
# goes into them, and any clone with the same pins uses them.
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
# shellcheck source=go.sh
source "$HERE/lib/go.sh"

usage() {
  cat <<EOF
usage: cluster build [--path]

Builds Kubernetes, etcd, CoreDNS, Helm and nats-server into the cache, unless
they are there already. The first build takes 6 to 12 minutes on two cores.
  --path   only print the directory that holds, or will hold, the programs
EOF
}

# The image contents depend on busybox too, which comes from Debian.
cache_key() {
  {
    go_build_version
    uname -m
    sha256sum </usr/bin/busybox 2>/dev/null || true
    cd "$ROOT"
    find e2e/cluster/go e2e/cluster/lib/build.sh image/pack -type f | LC_ALL=C sort | xargs sha256sum
  } | sha256sum | cut -c1-16
}

# Runs `go build -v` and says every ten seconds how far it is: the packages
# compiled so far and the latest one.
go_build() { # program module package [linker flags]
  local name=$1 module=$2 package=$3 flags="-s -w ${4:-}" begin=$EPOCHREALTIME pid
  local trace=$part/$name.trace
  (cd "$HERE/go/$module" && exec setpriv --pdeathsig TERM nice -n 5 "$go" build -v -trimpath -ldflags "$flags" \
    -o "$part/$name" "$package") >"$trace" 2>&1 &
  pid=$!
  while sleep_while_alive 10 "$pid"; do
    log "building $name: $(seconds_since "$begin")s, $(progress "$trace")"
  done
  wait "$pid" || { tail -n 30 "$trace" >&2; die "building $name failed"; }
  rm -f "$trace"
  log "built $name in $(seconds_since "$begin")s"
}

# Fails at once when the process has ended; succeeds after so many seconds.
sleep_while_alive() { # seconds pid
  local i
  for ((i = 0; i < $1 * 5; i++)); do
    kill -0 "$2" 2>/dev/null || return 1
    sleep 0.2
  done
}

progress() {
  awk '/^go: downloading/ {got++; next} {compiled++; last = $1}
    END {if (got) printf "%d modules fetched, ", got
         printf "%d packages compiled", compiled; if (last) printf ", now %s", last}' "$1"
}

# Without these the components call themselves v0.0.0-master.
kube_version_flags() {
  local version package
  version=$(awk '$1 == "k8s.io/kubernetes" {print $2; exit}' "$HERE/go/go.mod")
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    printf ' -X %s=%s' \
      "$package.gitVersion" "$version" "$package.gitMajor" 1 \
      "$package.gitMinor" "$(cut -d. -f2 <<<"$version")" "$package.gitTreeState" clean \
      "$package.gitCommit" unknown "$package.buildDate" 1970-01-01T00:00:00Z
  done
}

build_programs() {
  local applet
  go_build kube . . "$(kube_version_flags)"
  for applet in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl etcd; do
    ln -s kube "$part/$applet"
  done
  go_build helm . helm.sh/helm/v3/cmd/helm
  go_build coredns dns .
  go_build nats-server nats .
  go_build pause . ./pause
  go_build testapp . ./testapp
}

pack_single() { # program image
  local root=$part/root
  mkdir -p "$root"
  cp "$part/$1" "$root/"
  "$ROOT/image/pack" "$2" "$root" "$part/images/$1.tar" "{\"Entrypoint\":[\"/$1\"]}"
  rm -rf "$root"
}

# The test application travels with a shell and the usual tools, for exec.
pack_testapp() {
  local root=$part/root applet
  mkdir -p "$root"/{bin,etc,tmp}
  chmod 1777 "$root/tmp"
  echo 'root:x:0:0:root:/:/bin/sh' >"$root/etc/passwd"
  cp "$part/testapp" /usr/bin/busybox "$root/bin/"
  for applet in $(busybox --list); do
    [ -e "$root/bin/$applet" ] || ln -s busybox "$root/bin/$applet"
  done
  "$ROOT/image/pack" "$TESTAPP_IMAGE" "$root" "$part/images/testapp.tar" '{"Entrypoint":["/bin/testapp"]}'
  rm -rf "$root"
}

build_images() {
  pack_single pause "$PAUSE_IMAGE"
  pack_single coredns "$DNS_IMAGE"
  pack_single nats-server "$NATS_IMAGE"
  pack_testapp
}

main() {
  local bin begin=$EPOCHREALTIME
  bin=$COMMUTATOR_CACHE/cluster/$(cache_key)
  case ${1:-} in
    '') ;;
    --path) echo "$bin"; exit 0 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  [ -d "$bin" ] && exit 0
  mkdir -p "$COMMUTATOR_CACHE/cluster"
  exec 9>"$COMMUTATOR_CACHE/cluster/lock"
  flock -n 9 || { log "another build is running; waiting for it"; flock 9; }
  [ -d "$bin" ] && exit 0
  go=$(go_command)
  export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS="-mod=readonly -buildvcs=false"
  log "building Kubernetes and friends with $("$go" env GOVERSION) into $bin"
  part=$bin.part
  rm -rf "$part"
  mkdir -p "$part/images"
  build_programs
  build_images
  # Only a whole build ever gets the real name.
  mv -T "$part" "$bin"
  log "built everything in $(seconds_since "$begin")s; later runs start from here"
}

main "$@"
