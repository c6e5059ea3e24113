#!/usr/bin/env bash
# Row B of the product's goals: 1000 pools on 10 load balancers, every Service changes five times within one second,
# ARM takes 20 ms for a read and 100 ms for a write. The writes of one load balancer are serial, so 100 pools cost a lane
# at least 100 x 0.12 s = 12.0 s; the goal is 13.8 s from the first change until the last pool is in sync.
# Fails when a pool is out of sync, when two writes on one load balancer overlap, or when it takes longer.
set -euo pipefail
cd "$(dirname "$0")/.."
settings=$(mktemp)
trap 'rm -f "$settings"' EXIT
cat >"$settings" <<'YAML'
batching: {minInterval: 1s, retryInterval: 1s}
budget: {writesPer5Minutes: 1000000, readsPer5Minutes: 10000000}
YAML
exec cargo run --quiet --release -- simulate --pattern burst --services 1000 --load-balancers 10 --nodes 100 \
  --arm-get-latency 20ms --arm-put-latency 100ms --removal-delay 0s --controller-config "$settings" \
  --listen 127.0.0.1:0 --exit-when-done --within 13800ms "$@"
