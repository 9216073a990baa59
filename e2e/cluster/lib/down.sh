#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Stops the cluster and removes everything that it left on the machine, also
# after a crash. All of its processes share a pid namespace, and its mounts and
# network end with them; so there is one process to end.
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"

usage() {
  cat <<EOF
usage: cluster down

Stops the cluster "$KUBE_NAME" and removes its state ($STATE).
Succeeds if there is nothing to stop. KEEP=1 keeps the state and the logs.
EOF
}

stop_node() {
  local pid i
  pid=$(init_pid) || return 0
  log "stopping $KUBE_NAME"
  kill -KILL "$pid" 2>/dev/null || true
  for ((i = 0; i < 300; i++)); do
    [ -d "/proc/$pid" ] || return 0
    sleep 0.1
  done
  die "pid $pid, the cluster's pid 1, does not end"
}

# Deepest first; a cgroup can be removed once it is empty.
remove_cgroups() {
  local group i
  while read -r _ group; do
    group=$group/$KUBE_NAME
    for ((i = 0; i < 50; i++)); do
      [ -d "$group" ] || break
      find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
    done
    [ ! -d "$group" ] || log "left over: $group"
  done < <(cgroup_mounts)
}

# Empty directories that a node's private mounts cover. Removing one drops what
# another cluster has mounted there, so not while there is one.
remove_mount_points() {
  grep -qs ' /var/lib/kubelet ' /proc/[0-9]*/mountinfo && return
  rmdir /var/lib/kubelet /var/lib/cni /tmp/hostpath_pv 2>/dev/null || true
}

main() {
  case ${1:-} in
    '') ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  [ -L "$RUN_LINK" ] || [ -e "$STATE/init" ] || exit 0
  [ "$(id -u)" = 0 ] || die "must be root"
  stop_node
  remove_cgroups
  remove_mount_points
  rm -f "$RUN_LINK" "$STATE/init" "$STATE/ready"
  # Never anything but a directory that up made.
  [ -n "${KEEP:-}" ] || [ ! -e "$STATE/.cluster" ] || rm -rf "${STATE:?}"
}

main "$@"
