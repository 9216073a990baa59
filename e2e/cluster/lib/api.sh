#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command against a fresh etcd and API server on loopback, and nothing
# else: for tests of controllers. Needs no root; any number can run at once.
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"

usage() {
  cat <<EOF
usage: cluster api [--controllers] [--keep] [--verbose] -- COMMAND [ARGUMENT...]

Starts etcd and an API server on free ports of 127.0.0.1, runs COMMAND, stops
them, and exits with COMMAND's status. COMMAND finds in its environment:
  KUBECONFIG        a kubeconfig of a cluster administrator (client certificate)
  KUBE_API_URL      https://127.0.0.1:PORT
  KUBE_API_CA       file with the certificate authority, PEM
  KUBE_API_TOKEN    bearer token of a cluster administrator
  KUBE_API_DIR      directory of this run: log/, pki/, and for etcd, kube-apiserver
                    and kube-controller-manager NAME.pid and NAME.sh, which starts
                    it again (in the foreground) after a test has killed it
  PATH              with kubectl and helm in front

  --controllers   also run the controller manager (garbage collection, status
                  of Deployments, namespaces; there is no node, so no pod runs)
  --keep          keep the directory of the run, with its logs
  --verbose       say how long the start took
EOF
}

# A port that nobody listens on, below those that the kernel hands out itself.
free_port() {
  local port
  while :; do
    port=$((10000 + SRANDOM % 20000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}

# Starts a component that the kernel ends with this script, however that ends.
# The script it leaves starts the component anew for a test that killed it.
start() { # name argument...
  local name=$1
  shift
  {
    echo '#!/bin/sh'
    printf '%q ' exec "$bin/$name" "$@"
    printf '>>%q 2>&1 </dev/null\n' "$dir/log/$name.log"
  } >"$dir/$name.sh"
  chmod +x "$dir/$name.sh"
  setpriv --pdeathsig KILL "$dir/$name.sh" &
  echo $! >"$dir/$name.pid"
  pids+=($!)
  disown   # or bash reports its end, which may be a test's doing
}

start_etcd() {
  start etcd --data-dir "$dir/etcd" --unsafe-no-fsync --log-level error \
    --listen-client-urls "http://127.0.0.1:$etcd_port" \
    --advertise-client-urls "http://127.0.0.1:$etcd_port" \
    --listen-peer-urls http://127.0.0.1:0
}

# Without controllers nobody makes service accounts, so none may be asked for.
start_apiserver() {
  start kube-apiserver \
    --etcd-servers="http://127.0.0.1:$etcd_port" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 \
    --secure-port="$api_port" --service-cluster-ip-range=10.96.0.0/16 --endpoint-reconciler-type=none \
    --authorization-mode=RBAC --disable-admission-plugins=ServiceAccount --allow-privileged=true \
    --token-auth-file="$dir/tokens" --client-ca-file="$pki/ca.crt" \
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key"
}

start_controllers() {
  start kube-controller-manager \
    --kubeconfig="$pki/controller-manager.kubeconfig" --leader-elect=false --secure-port=0 \
    --service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt" \
    --use-service-account-credentials=true --kube-api-qps=500 --kube-api-burst=1000
}

cleanup() {
  local pid
  for pid in "${pids[@]}"; do
    kill -KILL "$pid" 2>/dev/null || true
    while kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
  done
  [ -n "$keep" ] || rm -rf "$dir"
}

# Removes the directories of runs that were killed before they could.
remove_stale() {
  local stale pid started
  for stale in "${TMPDIR:-/tmp}"/commutator-api.*; do
    read -r pid started 2>/dev/null <"$stale/owner" || continue
    [ "$(start_time "$pid")" = "$started" ] || rm -rf "$stale"
  done
}

# Succeeds when the API server is ready; fails when a component has ended.
wait_ready() {
  until curl -sf --cacert "$pki/ca.crt" "$KUBE_API_URL/readyz" >/dev/null 2>&1; do
    kill -0 "${pids[@]}" 2>/dev/null || return 1
    sleep 0.05
  done
}

start_all() {
  api_port=$(free_port)
  etcd_port=$(free_port)
  export KUBE_API_URL=https://127.0.0.1:$api_port
  "$HERE/lib/pki.sh" "$pki" "$KUBE_API_URL" api &
  local pki_pid=$!
  start_etcd
  wait "$pki_pid" || die "cannot make certificates"
  start_apiserver
  wait_ready || die "did not start: $(tail -n 3 "$dir"/log/*.log)"
  [ -z "$controllers" ] || start_controllers
}

main() {
  local verbose='' begin=$EPOCHREALTIME
  controllers='' keep='' pids=()
  while [ $# -gt 0 ]; do
    case $1 in
      --controllers) controllers=1 ;;
      --keep) keep=1 ;;
      --verbose) verbose=1 ;;
      -h | --help) usage; exit 0 ;;
      --) shift; break ;;
      -*) usage >&2; exit 2 ;;
      *) break ;;
    esac
    shift
  done
  [ $# -gt 0 ] || { usage >&2; exit 2; }
  "$HERE/lib/build.sh"
  bin=$("$HERE/lib/build.sh" --path)
  remove_stale
  dir=$(mktemp -d "${TMPDIR:-/tmp}/commutator-api.XXXXXX")
  pki=$dir/pki
  trap cleanup EXIT
  echo "$$ $(start_time $$)" >"$dir/owner"
  mkdir "$dir/log"
  KUBE_API_TOKEN=$(openssl rand -hex 16)
  (umask 077; echo "$KUBE_API_TOKEN,admin,admin,system:masters" >"$dir/tokens")
  start_all
  [ -z "$verbose" ] || log "API server ready after $(seconds_since "$begin")s in $dir"
  export KUBE_API_TOKEN KUBE_API_DIR=$dir KUBE_API_CA=$pki/ca.crt
  export KUBECONFIG=$pki/admin.kubeconfig PATH=$bin:$PATH
  # The command too ends with this script; the trap above reports no status.
  local status=0
  setpriv --pdeathsig TERM "$@" || status=$?
  exit "$status"
}

main "$@"
