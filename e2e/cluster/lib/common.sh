# SPDX-License-Identifier: Apache-2.0
# Settings and helpers shared by the cluster's scripts; source it. Every setting
# can be overridden from the environment.
# shellcheck shell=bash disable=SC2034
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)      # e2e/cluster
ROOT=$(cd "$HERE/../.." && pwd)
BUILD=$(realpath -m "${BUILD:-$ROOT/build}")
COMMUTATOR_CACHE=${COMMUTATOR_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/commutator}

# Name of the node, of its cgroup and of the record below. Clusters of different
# names run side by side: each has the same addresses in a network of its own.
KUBE_NAME=${KUBE_NAME:-commutator}
# While a cluster runs, this link names its state directory; so every clone and
# every BUILD on the machine talks to the same cluster.
RUN_DIR=/run/commutator
RUN_LINK=$RUN_DIR/$KUBE_NAME
NEW_STATE=$(realpath -m "${KUBE_STATE:-$BUILD/cluster}")
STATE=$(readlink "$RUN_LINK" || echo "$NEW_STATE")

# full: everything. control: no node (no containerd, kubelet, kube-proxy, DNS).
KUBE_MODE=${KUBE_MODE:-full}
NODE_IP=${NODE_IP:-172.30.0.1}
NODE_NET=${NODE_NET:-172.30.0.0/24}
POD_CIDR=${POD_CIDR:-10.244.0.0/16}
SVC_CIDR=${SVC_CIDR:-10.96.0.0/16}
API_SVC_IP=${API_SVC_IP:-10.96.0.1}
DNS_IP=${DNS_IP:-10.96.0.10}
API_PORT=${API_PORT:-6443}
GPUS=${GPUS:-16}                            # nvidia.com/gpu that the node pretends to have
PROXY_MODE=${PROXY_MODE:-nftables}          # or iptables
CNI_BIN=${CNI_BIN:-/usr/lib/cni}
PAUSE_IMAGE=commutator/pause:1
DNS_IMAGE=commutator/coredns:1.12.4
TESTAPP_IMAGE=commutator/testapp:1
NATS_IMAGE=commutator/nats:2.10.29

log() { printf '%s cluster: %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() { log "error: $*"; exit 1; }

# Seconds since $1 (a value of EPOCHREALTIME), with one decimal.
seconds_since() {
  local us=$((${EPOCHREALTIME/[^0-9]/} - ${1/[^0-9]/}))
  printf '%d.%d' $((us / 1000000)) $((us / 100000 % 10))
}

# When the process started, in ticks: together with the pid it names one process.
# Fails for one that has ended, reaped or not.
start_time() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  [ "$1" != Z ] && echo "${20}"
}

# Prints the pid (seen from outside) of the process that is pid 1 in the
# cluster's namespaces; fails when the cluster does not run.
init_pid() {
  local pid started
  read -r pid started 2>/dev/null <"$STATE/init" || return 1
  [ "$(start_time "$pid")" = "$started" ] && echo "$pid"
}

# Runs a command in the cluster's network, with the machine's files.
in_net() {
  local pid
  pid=$(init_pid) || die "no cluster \"$KUBE_NAME\" runs here; start one with: $HERE/cluster up"
  nsenter --net="/proc/$pid/ns/net" "$@"
}

# Runs a command in the cluster's network, mounts and pids.
in_node() {
  local pid
  pid=$(init_pid) || die "no cluster \"$KUBE_NAME\" runs here; start one with: $HERE/cluster up"
  nsenter -t "$pid" -n -m -p "$@"
}

kubectl() { KUBECONFIG=$STATE/pki/admin.kubeconfig in_net "$STATE/bin/kubectl" "$@"; }

# Where cgroups are mounted, one "TYPE PATH" per line.
cgroup_mounts() { awk '$3 ~ /^cgroup2?$/ {print $3, $2}' /proc/mounts; }
