#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gives image archives to the running cluster's container runtime.
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"

case ${1:-} in
  -h | --help) echo "usage: cluster load TAR..."; exit 0 ;;
  '') echo "usage: cluster load TAR..." >&2; exit 2 ;;
esac
for archive in "$@"; do
  [ -f "$archive" ] || die "no such file: $archive"
  in_node ctr -n k8s.io images import - <"$archive"
done
touch "$STATE/loaded"   # what was made before may run an older image of the same name
