# SPDX-License-Identifier: Apache-2.0
# What the demo and its small brother share: steps that say what they do, and the workload.
# shellcheck shell=bash disable=SC2034

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=$(cd "${BUILD:-$ROOT/build}" && pwd)
BIN=$BUILD/bin
MODEL=example
url= # of the frontend, once it is known
net=(env) # what is run before a command that talks to it: as we are, or in the cluster's network
# Mission document 003: 10 starters of about 3,500 tokens, conversations of 3 to 5 turns.
# The starters are the same in every phase, the conversations are not: what one phase cached of its own
# conversations is of no use to the next.
LOAD=(--starters 10 --starter-tokens 3500 --turns 3-5 --output-tokens "${DEMO_OUTPUT_TOKENS:-150}")
phase=0
next_seed() { phase=$((phase + 1)); seed=$((phase * 1000)); }

say() { printf '\n\033[1m[%4ds] %s\033[0m\n' "$SECONDS" "$*"; }
note() { printf '        %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# wait_until SECONDS WHAT COMMAND...: polls five times a second and shows that it is still waiting.
wait_until() {
  local deadline=$((SECONDS + $1)) what=$2 next=$((SECONDS + 5))
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || die "$what: not within the time allowed"
    if [ $SECONDS -ge $next ]; then
      note "still waiting: $what"
      next=$((SECONDS + 5))
    fi
    sleep 0.2
  done
}

# The frontend's metrics, for the summary to take the difference of.
metrics() { # file
  "${net[@]}" curl -sf "$url/metrics" >"$1"
}
# compare_policies FOLDER ROUNDS POLICY...: the same load under each policy, switched live by the script's own
# `flip`, every other round in the opposite order so that a drift of the machine favours none of them.
compare_policies() {
  local folder=$1 rounds=$2 round policy order
  shift 2
  for ((round = 1; round <= rounds; round++)); do
    order=("$@")
    if ((round % 2 == 0)); then mapfile -t order < <(printf '%s\n' "$@" | tac); fi
    for policy in "${order[@]}"; do
      say "Round $round of $rounds: policy $policy, $CONVERSATIONS conversations, $CONCURRENCY at a time"
      flip kv "$policy"
      warm_up
      metrics "$folder/$policy.$round.before"
      load "$policy.$round"
      metrics "$folder/$policy.$round.after"
    done
  done
  say "Result: median of $rounds rounds, (lowest - highest)"
  python3 "$ROOT/e2e/demo/policy_table.py" "$folder" "$rounds" "$@"
}
