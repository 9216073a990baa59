#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts a single-node cluster in namespaces of its own and returns when pods
# can run and names resolve.
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"

usage() {
  cat <<EOF
usage: cluster up

Installs and builds what is missing, starts the cluster "$KUBE_NAME", waits
until it is ready. Does nothing if it runs already; cleans up after one that
crashed. KEEP_FAILED=1 leaves a cluster that did not come up for inspection.
EOF
}

healthy() {
  [ -e "$STATE/ready" ] && init_pid >/dev/null &&
    kubectl get --raw /readyz --request-timeout=5s >/dev/null 2>&1
}

# Returns when nothing of an earlier cluster is left; exits if there is a good one.
settle_earlier() {
  if healthy; then
    [ -z "${KUBE_STATE:-}" ] || [ "$NEW_STATE" = "$STATE" ] ||
      die "cluster \"$KUBE_NAME\" runs with state in $STATE; set KUBE_NAME for a second one"
    log "$KUBE_NAME runs already, state in $STATE"
    exit 0
  fi
  if [ -L "$RUN_LINK" ] || [ -e "$STATE/init" ]; then
    log "removing what is left of an earlier $KUBE_NAME"
    "$HERE/lib/down.sh"
  fi
  STATE=$NEW_STATE
  [ ! -e "$STATE/.cluster" ] || rm -rf "${STATE:?}"
}

make_state() {
  mkdir -p "$STATE"
  [ -z "$(ls -A "$STATE")" ] || die "$STATE is not empty and not a cluster's"
  touch "$STATE/.cluster"      # down.sh removes only a directory with this
  mkdir -p "$STATE"/{log,kubelet,containerd,etcd,cni/net.d,varlog,pv}
  ln -s "$bin" "$STATE/bin"
  "$HERE/lib/pki.sh" "$STATE/pki" "https://$NODE_IP:$API_PORT" full
  # Mount points on the machine that the node's private mounts cover.
  mkdir -p /var/lib/kubelet /var/lib/cni /tmp/hostpath_pv
  ln -sfn "$STATE" "$RUN_LINK"
}

# The node waits for a line on its standard input before it does anything: if we
# are killed before its pid is on record, it reads the end of file and exits.
start_node() {
  local pid='' i
  coproc {
    exec setsid unshare --mount --uts --ipc --net --pid --fork --kill-child \
      --mount-proc --propagation private "$HERE/lib/node.sh" \
      9>&- >"$STATE/log/node.log" 2>&1
  }
  for ((i = 0; i < 200; i++)); do
    pid=$(cat "/proc/$COPROC_PID/task/$COPROC_PID/children" 2>/dev/null || true)
    [ -n "$pid" ] && break
    sleep 0.02
  done
  pid=${pid%% *}
  [ -n "$pid" ] || die "node did not start; see $STATE/log/node.log"
  echo "$pid $(start_time "$pid")" >"$STATE/init"
  echo go >&"${COPROC[1]}"
  disown   # it outlives us, and nobody is to wait for it
}

wait_for() { # seconds what command...
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    init_pid >/dev/null || die "the node ended while waiting: $what; see $STATE/log"
    [ $SECONDS -lt $deadline ] || die "timed out waiting: $what; see $STATE/log"
    sleep 0.2
  done
  log "$what after $(seconds_since "$begin")s"
}

# Without a device plugin behind it: GPU pods schedule, and too large ones do not.
add_gpus() {
  kubectl patch node "$KUBE_NAME" --subresource=status --type=json -p '[
    {"op":"add","path":"/status/capacity/nvidia.com~1gpu","value":"'"$GPUS"'"},
    {"op":"add","path":"/status/allocatable/nvidia.com~1gpu","value":"'"$GPUS"'"}]'
}

bring_up() {
  local begin=$EPOCHREALTIME
  log "starting $KUBE_NAME, state in $STATE"
  make_state
  start_node
  wait_for 120 "API server ready" kubectl get --raw /readyz
  if [ "$KUBE_MODE" = full ]; then
    kubectl apply -f "$STATE/addons.yaml" >/dev/null
    wait_for 120 "node Ready" kubectl wait --for=condition=Ready "node/$KUBE_NAME" --timeout=1s
    add_gpus >/dev/null
    wait_for 120 "DNS ready" kubectl -n kube-system wait --for=condition=Available deploy/coredns --timeout=1s
  fi
  touch "$STATE/ready"
}

stop_failed() {
  [ -n "${KEEP_FAILED:-}" ] || KEEP=1 "$HERE/lib/down.sh" || true
}

main() {
  case ${1:-} in
    '') ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  "$HERE/lib/deps.sh"
  "$HERE/lib/check.sh" --quiet || die "this machine cannot run a cluster; see above"
  "$HERE/lib/build.sh"
  bin=$("$HERE/lib/build.sh" --path)
  mkdir -p "$RUN_DIR"
  exec 9>"$RUN_DIR/.lock"   # one at a time on this machine
  flock -n 9 || { log "another up is at work; waiting for it"; flock 9; }
  settle_earlier
  trap stop_failed EXIT
  bring_up
  trap - EXIT
}

main "$@"
