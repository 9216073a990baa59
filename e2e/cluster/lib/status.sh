#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Says how the cluster is doing. Succeeds if it is up and ready.
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"

if ! pid=$(init_pid); then
  if [ -L "$RUN_LINK" ]; then
    echo "$KUBE_NAME crashed; \"cluster up\" cleans up and starts it anew (logs: $STATE/log)"
  else
    echo "$KUBE_NAME is down"
  fi
  exit 1
fi
echo "$KUBE_NAME runs as pid $pid, state in $STATE"
if [ ! -e "$STATE/ready" ] || ! kubectl get --raw /readyz --request-timeout=5s >/dev/null; then
  echo "not ready; logs in $STATE/log"
  exit 1
fi
kubectl get nodes -o wide
kubectl get pods -A
