#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes certificates, keys and kubeconfigs for a cluster.
# usage: pki.sh DIR SERVER_URL api|full
# "api" leaves out what only nodes and schedulers need: it is made in each run
# of `cluster api`, where a tenth of a second counts.
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"

key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out "$1.key" 2>/dev/null; }

ca() { # name
  key "$1"
  openssl req -x509 -new -key "$1.key" -days 30 -subj "/CN=$1" -out "$1.crt" \
    -addext basicConstraints=critical,CA:TRUE \
    -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature
}

cert() { # name subject usage [alternative names] [ca]
  key "$1"
  openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
  openssl x509 -req -in "$1.csr" -CA "${5:-ca}.crt" -CAkey "${5:-ca}.key" -days 30 -out "$1.crt" \
    -set_serial "0x$(openssl rand -hex 8)" -extfile <(
      echo "basicConstraints=CA:FALSE"
      echo "keyUsage=critical,digitalSignature"
      echo "extendedKeyUsage=$3"
      [ -z "${4:-}" ] || echo "subjectAltName=$4") 2>/dev/null
  rm -f "$1.csr"
}

kubeconfig() { # name
  cat >"$1.kubeconfig" <<EOF
apiVersion: v1
kind: Config
current-context: main
clusters:
- name: main
  cluster:
    server: $server
    certificate-authority-data: $(base64 -w0 <ca.crt)
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w0 <"$1.crt")
    client-key-data: $(base64 -w0 <"$1.key")
contexts:
- name: main
  context: {cluster: main, user: $1}
EOF
}

client() { # name subject
  cert "$1" "$2" clientAuth
  kubeconfig "$1"
}

service_account_key() {
  key sa
  openssl ec -in sa.key -pubout -out sa.pub 2>/dev/null
}

api_certs() {
  local service=kubernetes.default.svc
  cert apiserver /CN=kube-apiserver serverAuth \
    "DNS:kubernetes,DNS:kubernetes.default,DNS:$service,DNS:$service.cluster.local,DNS:localhost,IP:$API_SVC_IP,IP:$NODE_IP,IP:127.0.0.1"
}

node_certs() {
  ca front-proxy-ca
  cert front-proxy /CN=front-proxy-client clientAuth "" front-proxy-ca
  cert apiserver-kubelet /O=system:masters/CN=kube-apiserver-kubelet-client clientAuth
  cert kubelet-serving "/O=system:nodes/CN=system:node:$KUBE_NAME" serverAuth \
    "DNS:$KUBE_NAME,IP:$NODE_IP,IP:127.0.0.1"
  client scheduler /CN=system:kube-scheduler
  client kubelet "/O=system:nodes/CN=system:node:$KUBE_NAME"
  client proxy /CN=system:kube-proxy
}

main() {
  server=$2
  umask 077
  mkdir -p "$1"
  cd "$1"
  ca ca
  service_account_key
  api_certs
  client admin /O=system:masters/CN=admin
  client controller-manager /CN=system:kube-controller-manager
  [ "$3" = api ] || node_certs
}

main "$@"
