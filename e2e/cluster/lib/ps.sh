#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints memory (MB) and CPU (% of one core, over an interval) of each process
# of the cluster, pods included. usage: cluster ps [SECONDS]
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
case ${1:-} in -h | --help) echo "usage: cluster ps [SECONDS]"; exit 0 ;; esac
interval=${1:-10}
init_pid >/dev/null || die "no cluster \"$KUBE_NAME\" runs here"

# Every process of the cluster is in a cgroup below its own.
group=$(cgroup_mounts | awk -v name="/$KUBE_NAME" '{print $2 name}' | xargs ls -d 2>/dev/null | head -n 1)
pids() { find "$group" -name cgroup.procs -exec cat {} + | sort -un; }
ticks() { awk '{sub(/^.*\) /, ""); print $12 + $13}' "/proc/$1/stat" 2>/dev/null || echo 0; }

declare -A before
for pid in $(pids); do before[$pid]=$(ticks "$pid"); done
sleep "$interval"
for pid in "${!before[@]}"; do
  # A process may end at any point here, and is no longer of interest then.
  name=''
  { IFS= read -r -d '' name <"/proc/$pid/cmdline"; } 2>/dev/null || true
  [ -z "$name" ] || awk -v name="${name##*/}" -v pid="$pid" -v cpu=$(($(ticks "$pid") - before[$pid])) -v s="$interval" \
    '/^VmRSS/ {rss = $2} /^RssAnon/ {anon = $2}
     END {printf "%s %s %.1f %.1f %.2f\n", name, pid, rss / 1024, anon / 1024, cpu / s}' "/proc/$pid/status" 2>/dev/null || true
done | sort -k3 -nr | awk 'BEGIN {print "command pid rss_mb private_mb cpu%"}
  {print; rss += $3; anon += $4; cpu += $5} END {print "total", NR, rss, anon, cpu}' | column -t
