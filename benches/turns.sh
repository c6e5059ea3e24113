#!/usr/bin/env bash
# Measures turns (what a machine and its shell do for one message; actors/core/tests/turns.rs) at the target size:
# 10,000 pools, 1,000 nodes, 50 load balancers.
# Prints, for each case, the number of turns, their sum, the 99th percentile and the longest ones.
#
#   benches/turns.sh [NAME]     NAME: a part of a test's name, for example admin_state
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Optimised, and without debug assertions, which check the whole state after each turn.
quick=(--config .config/worlds.toml)
for package in coordination mechanisms model nodes pool-core pools reporting sources writer; do
  quick+=(--config "profile.dev.package.$package.debug-assertions=false")
done
TURNS=all exec cargo test --package pool-core --test turns "${quick[@]}" "${1:-}" -- \
  --nocapture --test-threads 1
