# SPDX-License-Identifier: Apache-2.0
# Writes the configuration files of the node's components; sourced by node.sh.
# shellcheck shell=bash
pki=$STATE/pki

# Every pod has a routed veth pair: no bridge, so no bridge netfilter either.
config_cni() {
  cat >"$STATE/cni/net.d/10-pod.conflist" <<EOF
{"cniVersion": "0.4.0", "name": "pod", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam",
    "ranges": [[{"subnet": "$POD_CIDR"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
EOF
}

config_containerd() {
  # An overlay cannot be stacked on an overlay (a build machine in a container).
  local snapshotter=overlayfs
  [ "$(stat -f -c %T "$STATE/containerd")" != overlayfs ] || snapshotter=native
  cat >"$STATE/containerd.toml" <<EOF
version = 2
root = "$STATE/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$STATE/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE_IMAGE"
  # Without CAP_SYS_RESOURCE a process cannot lower its oom_score_adj, and runc
  # would fail with "can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$CNI_BIN"
    conf_dir = "$STATE/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$snapshotter"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
EOF
}

config_kubelet() {
  cat >"$STATE/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$KUBE_NAME
failCgroupV1: false
failSwapOn: false
address: 0.0.0.0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $pki/kubelet-serving.crt
tlsPrivateKeyFile: $pki/kubelet-serving.key
clusterDomain: cluster.local
clusterDNS: [$DNS_IP]
resolvConf: $STATE/resolv.conf
volumePluginDir: /var/lib/kubelet/volume-plugins
# The machine's own disk and memory pressure must not evict test pods.
evictionHard:
  memory.available: "0%"
  nodefs.available: "0%"
  nodefs.inodesFree: "0%"
  imagefs.available: "0%"
  imagefs.inodesFree: "0%"
imageGCHighThresholdPercent: 100
# React quickly.
nodeStatusUpdateFrequency: 5s
syncFrequency: 10s
fileCheckFrequency: 5s
maxPods: 110
EOF
}

config_proxy() {
  cat >"$STATE/proxy.yaml" <<EOF
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: $PROXY_MODE
clientConnection: {kubeconfig: $pki/proxy.kubeconfig}
clusterCIDR: $POD_CIDR
hostnameOverride: $KUBE_NAME
bindAddress: 0.0.0.0
nftables: {minSyncPeriod: 100ms}
iptables: {minSyncPeriod: 100ms}
# These sysctls cannot be set from a network namespace: leave them alone.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
EOF
}

config_addons() {
  sed -e "s|@DNS_IP@|$DNS_IP|g; s|@DNS_IMAGE@|$DNS_IMAGE|g" "$HERE/addons.yaml" >"$STATE/addons.yaml"
}
