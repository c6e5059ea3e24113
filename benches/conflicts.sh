#!/usr/bin/env bash
# Rows D and E of the product's goals. 200 pools on 10 load balancers, every Service changes five times within one
# second, interval keys of 1 s. Four runs of the same world:
#   none  no faults: the time to compare with
#   D     every 20th PUT is answered with 409: no pool is out of sync one interval later
#   E     every 20th PUT is answered with 429 and Retry-After 2, a quota of all: no pool is out of sync one interval after the
#         last of these times has passed; each hit closes the gate of all writes for 2 s, because Azure asks for that
#   lane  every 4th PUT on one load balancer is answered with 429 and Retry-After 2 because another operation holds it:
#         its pools are in sync at the end, and those of the other load balancers are in sync when they were without faults
# Prints the counts and fails when one of these does not hold. Needs python3 to read the reports.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/settings.yaml" <<'YAML'
batching: {minInterval: 1s, retryInterval: 1s}
budget: {writesPer5Minutes: 1000000, readsPer5Minutes: 10000000}
YAML
run() {
  local name="$1"
  shift
  cargo run --quiet --release -- simulate --pattern burst --services 200 --load-balancers 10 --nodes 100 \
    --arm-get-latency 20ms --arm-put-latency 100ms --removal-delay 0s --controller-config "$folder/settings.yaml" \
    --listen 127.0.0.1:0 --exit-when-done --report json --output "$folder/$name.json" "$@" >/dev/null
}
run none
run d --fault "put 409 every 20"
run e --fault "put 429 every 20 retry-after 2"
run lane --fault "put 429 every 4 code RetryableErrorDueToAnotherOperation retry-after 2 on lb-2"
python3 - "$folder" <<'PY'
import json, sys

none, d, e, lane = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("none", "d", "e", "lane"))
INTERVAL, MARGIN = 1.0, 0.5
failed = False


def say(name, run, holds, what):
    global failed
    failed |= not holds
    took = run["first_event_to_converged_seconds"]
    print(f"{name:5} {run['wrong_pools']} of {run['pools']} pools out of sync, {run['arm_puts']} PUTs, "
          f"{run['retries']} retries announced, all in sync after {took} s: {what}{'' if holds else ' FAILED'}")


def in_time(run, limit):
    took = run["first_event_to_converged_seconds"]
    return run["wrong_pools"] == 0 and took is not None and took <= limit


base = none["first_event_to_converged_seconds"] or 0.0
say("none", none, in_time(none, 60), "the time to compare with")
limit = base + INTERVAL + MARGIN
say("D", d, in_time(d, limit) and d["retries"] > 0, f"0 out of sync one interval later (limit {limit:.2f} s)")
closed = 2.0 * e["arm_puts"] / 20
limit = base + closed + INTERVAL + MARGIN
say("E", e, in_time(e, limit) and e["retries"] > 0, f"0 out of sync one interval later (limit {limit:.2f} s)")
hit = "lb-2"
before, after = (run["converged_seconds_by_load_balancer"] for run in (none, lane))
others = [after[lb] - before[lb] for lb in before if lb != hit and after.get(lb) is not None]
unaffected = len(others) == len(before) - 1 and max(others) <= MARGIN
say("lane", lane, lane["wrong_pools"] == 0 and lane["retries"] > 0 and unaffected,
    f"{hit} {after[hit]} s; the others at most {max(others):+.2f} s against no faults (limit {MARGIN:+.2f} s)")
sys.exit(failed)
PY
