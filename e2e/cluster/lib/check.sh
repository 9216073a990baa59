#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Says what this machine lacks to run a cluster. Changes nothing: what it tries
# out, it tries in namespaces that end with it.
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"

usage() {
  cat <<EOF
usage: cluster check [--quiet]

Prints a line for each thing that is missing to run a cluster on this machine
and fails if there is one. --quiet: nothing when all is there.
EOF
}

missing=0
probe=$KUBE_NAME-check.$$
lacks() {
  missing=$((missing + 1))
  log "missing: $*"
}

check_programs() {
  local program
  for program in containerd ctr runc nft ip nsenter unshare setpriv openssl curl jq busybox; do
    [ -x "$(command -v "$program")" ] || lacks "program $program (install with: $HERE/cluster deps)"
  done
  [ -x "$CNI_BIN/ptp" ] || lacks "CNI plugins in $CNI_BIN (install with: $HERE/cluster deps)"
}

has_capability() { # bit
  local set
  set=$(awk '/^CapEff/ {print $2}' /proc/self/status)
  [ $((16#$set >> $1 & 1)) = 1 ]
}

check_rights() {
  [ "$(id -u)" = 0 ] || { lacks "root (this is user $(id -un))"; return; }
  has_capability 12 || lacks "capability CAP_NET_ADMIN"
  if ! has_capability 21; then
    lacks "capability CAP_SYS_ADMIN"
  elif ! unshare --mount --uts --ipc --net --pid --fork --propagation private true 2>/dev/null; then
    lacks "permission to create namespaces (seccomp or a limit in /proc/sys/user forbids it)"
  fi
}

# A pod's limits need these controllers, in one hierarchy (v2) or in many (v1).
check_cgroups() {
  local kind root controllers='' name refused=()
  [ -n "$(cgroup_mounts)" ] || { lacks "cgroups mounted on /sys/fs/cgroup"; return; }
  while read -r kind root; do
    if ! mkdir "$root/$probe" 2>/dev/null; then
      refused+=("$root")
    elif [ "$kind" = cgroup2 ]; then
      controllers+=" $(v2_controllers "$root")"
    fi
    rmdir "$root/$probe" 2>/dev/null || true
  done < <(cgroup_mounts)
  [ ${#refused[@]} = 0 ] || { lacks "write access to the cgroup hierarchies ${refused[*]}"; return; }
  controllers+=" $(awk '$3 == "cgroup" {gsub(",", " ", $4); print $4}' /proc/mounts | tr '\n' ' ')"
  for name in cpu cpuset memory pids; do
    [[ " $controllers " == *" $name "* ]] || lacks "cgroup controller $name"
  done
}

# What a new group can have: anything below the machine's root; below the root
# of a container, where processes live, only what has been delegated before.
v2_controllers() { # mount point
  if [ -e "$1/cgroup.type" ] && [ -n "$(<"$1/cgroup.procs")" ]; then
    cat "$1/$probe/cgroup.controllers"
  else
    cat "$1/cgroup.controllers"
  fi
}

# Run in a network namespace of its own; prints what the kernel refuses.
try_network() {
  ip link add probe0 type veth peer name probe1 || echo veth
  ip link add probe2 type bridge || echo bridge
  nft add table ip probe && nft add chain ip probe nat '{ type nat hook output priority 0; }' || echo "nf_tables with NAT"
}

check_kernel() {
  local feature
  grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null ||
    lacks "kernel feature overlay (file system)"
  [ "$missing" = 0 ] || return 0   # what follows needs all of the above
  while read -r feature; do
    lacks "kernel feature $feature"
  done < <(unshare --net bash -c "$(declare -f try_network); try_network" 2>/dev/null)
}

main() {
  local quiet=''
  case ${1:-} in
    '') ;;
    --quiet) quiet=1 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  check_programs
  check_rights
  check_cgroups
  check_kernel
  [ "$missing" = 0 ] || exit 1
  [ -n "$quiet" ] || log "this machine can run a cluster"
}

main "$@"
