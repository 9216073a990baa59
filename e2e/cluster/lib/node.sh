#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pid 1 of the cluster's namespaces: prepares cgroups, mounts and network, runs
# every component, starts anew what exits, reaps orphans. Started by up.sh.
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
# shellcheck source=node-config.sh
source "$HERE/lib/node-config.sh"

# /NAME/kubepods for pods (the kubelet makes it), /NAME/system for the rest.
# The kubelet wants its root to exist in every hierarchy.
enter_cgroups() {
  local kind root group
  while read -r kind root; do
    for group in "$root/$KUBE_NAME" "$root/$KUBE_NAME/system"; do
      [ "$kind" = cgroup ] || delegate_controllers "${group%/*}"
      mkdir -p "$group"
      [ "$kind" = cgroup2 ] || inherit_cpuset "$group"
    done
    echo 0 >"$root/$KUBE_NAME/system/cgroup.procs"
  done < <(cgroup_mounts)
}

delegate_controllers() { # group
  local name
  for name in $(<"$1/cgroup.controllers"); do
    echo "+$name" >"$1/cgroup.subtree_control" 2>/dev/null || true
  done
}

# On v1 a new cpuset is empty, and nothing can run in it.
inherit_cpuset() { # group
  local file
  for file in cpuset.mems cpuset.cpus; do
    [ ! -e "$1/$file" ] || [ -n "$(<"$1/$file")" ] || cat "${1%/*}/$file" >"$1/$file"
  done
}

# Private to this namespace: the daemons find their customary paths, and the
# machine's stay as they are.
make_mounts() {
  mount -t tmpfs -o mode=755 tmpfs /run
  mkdir -p /run/netns /run/containerd /run/lock /run/cgroup
  # A sysfs of this network namespace, with the machine's cgroup mounts in it.
  mount --rbind /sys/fs/cgroup /run/cgroup
  mount -t sysfs sysfs /sys
  mount --move /run/cgroup /sys/fs/cgroup
  mount --bind "$STATE/kubelet" /var/lib/kubelet
  mount -t tmpfs tmpfs /var/lib/cni
  mount --bind "$STATE/varlog" /var/log
  mount --bind "$STATE/pv" /tmp/hostpath_pv
  cover_sysctls
  mount --make-rshared /   # pods may ask for mount propagation
}

# The kubelet insists on setting these, and they belong to the whole machine:
# let it write to plain files instead.
cover_sysctls() {
  local name value path
  mkdir -p /run/sysctl
  while read -r name value; do
    path=/proc/sys/${name//.//}
    [ -e "$path" ] || continue
    echo "$value" >"/run/sysctl/$name"
    mount --bind "/run/sysctl/$name" "$path"
  done <<EOF
vm.overcommit_memory 1
vm.panic_on_oom 0
kernel.panic 10
kernel.panic_on_oops 1
kernel.keys.root_maxkeys 1000000
kernel.keys.root_maxbytes 25000000
EOF
}

# No link leads out of this namespace.
make_network() {
  echo "$KUBE_NAME" >/proc/sys/kernel/hostname
  echo "nameserver $DNS_IP" >"$STATE/resolv.conf"
  ip link set lo up
  ip link add node0 type bridge
  ip addr add "$NODE_IP/${NODE_NET#*/}" dev node0
  ip link set node0 up
  # Host-network processes reach Services: the route gets them as far as DNAT.
  ip route add "$SVC_CIDR" dev node0 src "$NODE_IP"
  echo 1 >/proc/sys/net/ipv4/ip_forward
}

# Keeps a component running.
start() { # name command...
  local name=$1
  shift
  while :; do
    "$@" >>"$STATE/log/$name.log" 2>&1 </dev/null || true
    log "$name exited; restarting"
    sleep 1
  done &
}

start_containerd() {
  start containerd containerd --config "$STATE/containerd.toml" --log-level info
  # Images go in while the API server starts.
  import_images >"$STATE/log/import.log" 2>&1 &
  import=$!
}

import_images() {
  local image
  until ctr version >/dev/null 2>&1; do sleep 0.1; done
  for image in "$STATE"/bin/images/*.tar; do ctr -n k8s.io images import "$image"; done
}

start_etcd() {
  start etcd "$STATE/bin/etcd" --name "$KUBE_NAME" --data-dir "$STATE/etcd" \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster "$KUBE_NAME=http://127.0.0.1:2380" --unsafe-no-fsync --log-level warn
}

start_apiserver() {
  start kube-apiserver "$STATE/bin/kube-apiserver" \
    --etcd-servers=http://127.0.0.1:2379 \
    --bind-address=0.0.0.0 --secure-port="$API_PORT" --advertise-address="$NODE_IP" \
    --service-cluster-ip-range="$SVC_CIDR" \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --allow-privileged=true \
    --client-ca-file="$pki/ca.crt" \
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
    --kubelet-certificate-authority="$pki/ca.crt" \
    --kubelet-client-certificate="$pki/apiserver-kubelet.crt" \
    --kubelet-client-key="$pki/apiserver-kubelet.key" \
    --kubelet-preferred-address-types=InternalIP \
    --requestheader-client-ca-file="$pki/front-proxy-ca.crt" \
    --requestheader-allowed-names=front-proxy-client \
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
    --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key"
}

start_controllers() {
  start kube-controller-manager "$STATE/bin/kube-controller-manager" \
    --kubeconfig="$pki/controller-manager.kubeconfig" \
    --service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt" \
    --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
    --use-service-account-credentials=true --enable-hostpath-provisioner=true \
    --kube-api-qps=500 --kube-api-burst=1000 --bind-address=127.0.0.1 --leader-elect=false
  start kube-scheduler "$STATE/bin/kube-scheduler" --kubeconfig="$pki/scheduler.kubeconfig" \
    --kube-api-qps=500 --kube-api-burst=1000 --bind-address=127.0.0.1 --leader-elect=false
}

start_node_agents() {
  start kube-proxy "$STATE/bin/kube-proxy" --config="$STATE/proxy.yaml"
  start volumes open_volumes
  wait "$import" || die "image import failed; see $STATE/log/import.log"
  start kubelet "$STATE/bin/kubelet" --config="$STATE/kubelet.yaml" \
    --kubeconfig="$pki/kubelet.kubeconfig" --hostname-override="$KUBE_NAME" --node-ip="$NODE_IP"
}

# The provisioner makes directories that only root can write to, and these
# volumes know no fsGroup: let pods of any user write, as a file server would.
open_volumes() {
  while sleep 0.2; do
    find /tmp/hostpath_pv -mindepth 1 -maxdepth 1 -type d ! -perm 0777 -exec chmod 0777 {} +
  done
}

main() {
  local go
  # See start_node in up.sh: end of file here means that nobody knows of us.
  read -r go || exit 1
  [ "$go $$" = "go 1" ] || die "must be pid 1 of a new pid namespace; use: cluster up"
  exec </dev/null
  enter_cgroups
  make_mounts
  make_network
  config_cni
  config_containerd
  config_kubelet
  config_proxy
  config_addons
  [ "$KUBE_MODE" != full ] || start_containerd
  start_etcd
  start_apiserver
  until curl -sfk "https://$NODE_IP:$API_PORT/readyz" >/dev/null; do sleep 0.1; done
  start_controllers
  [ "$KUBE_MODE" != full ] || start_node_agents
  while :; do
    wait || true
    sleep 1
  done
}

main "$@"
