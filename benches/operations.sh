#!/usr/bin/env bash
# Row C of the product's goals: 30 pools on 3 load balancers, every Service changes five times within one second, and
# ARM carries writes out asynchronously: each is answered at once with an operation and Retry-After 1. The operations
# of one load balancer are serial, so 10 pools cost a lane at least 10 s; the goal is 11.5 s from the first change until
# the last pool is in sync. Fails when a pool is out of sync, when two writes overlap, or when it takes longer.
set -euo pipefail
cd "$(dirname "$0")/.."
settings=$(mktemp)
trap 'rm -f "$settings"' EXIT
cat >"$settings" <<'YAML'
batching: {minInterval: 1s, retryInterval: 1s}
budget: {writesPer5Minutes: 1000000, readsPer5Minutes: 10000000}
YAML
exec cargo run --quiet --release -- simulate --pattern burst --services 30 --load-balancers 3 --nodes 100 \
  --arm-get-latency 5ms --arm-put-latency 5ms --arm-operation 900ms --retry-after 1 --removal-delay 0s \
  --controller-config "$settings" --listen 127.0.0.1:0 --exit-when-done --within 11500ms "$@"
