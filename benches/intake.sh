#!/usr/bin/env bash
# How a burst is taken in: 5,000 Services change five times each within one second, and ARM answers without latency, so
# that nothing but the controller's own work makes changes wait. Each pool is to be written once, for what is read of a
# pool's Service is taken in before the pool gets its turn.
#
#   benches/intake.sh [FORMER_BINARY]     FORMER_BINARY: another build of azure-backend-pool-controller, to compare with
#
# Prints PUTs per pool, the processor time of the process, and how long it took from the first change until the last pool
# is in sync. Fails when a pool is out of sync, when there are more than 1.05 PUTs per pool, or when the processor time is more
# than 0.6 of the former build's. Needs python3 to read the reports.
set -euo pipefail
former="${1:+$(realpath "$1")}"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/settings.yaml" <<'YAML'
batching: {minInterval: 1s, retryInterval: 1s}
budget: {writesPer5Minutes: 1000000, readsPer5Minutes: 10000000}
YAML
run() {
  local name="$1"
  shift
  "$@" simulate --pattern burst --services "${SERVICES:-5000}" --load-balancers 10 --nodes 100 --arm-get-latency 0ms \
    --arm-put-latency 0ms --removal-delay 0s --controller-config "$folder/settings.yaml" --listen 127.0.0.1:0 \
    --exit-when-done --report json --output "$folder/$name.json" >/dev/null
}
cargo build --quiet --release
run ours cargo run --quiet --release --
if [[ -n $former ]]; then
  run former "$former"
fi
python3 - "$folder" <<'PY'
import json, os, sys

failed = False


def read(name):
    path = f"{sys.argv[1]}/{name}.json"
    return json.load(open(path)) if os.path.exists(path) else None


def say(name, run):
    took = run["first_event_to_converged_seconds"]
    print(f"{name:7} {run['arm_puts'] / run['pools']:.2f} PUTs per pool, {run['cpu_seconds']:.1f} s of processor time, "
          f"{run['wrong_pools']} of {run['pools']} pools out of sync, all in sync after {took} s")


def goal(holds, what):
    global failed
    failed |= not holds
    print(f"{'met   ' if holds else 'MISSED'} {what}")


ours, former = read("ours"), read("former")
say("ours", ours)
if former:
    say("former", former)
goal(ours["wrong_pools"] == 0, "0 pools out of sync")
puts = ours["arm_puts"] / ours["pools"]
goal(puts <= 1.05, f"{puts:.2f} PUTs per pool, at most 1.05")
if former:
    share = ours["cpu_seconds"] / former["cpu_seconds"]
    goal(share <= 0.6, f"{share:.2f} of the former build's processor time, at most 0.6")
sys.exit(failed)
PY
