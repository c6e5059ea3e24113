#!/usr/bin/env bash
# The realistic row of the product's goals: a PUT is answered 201 after 200 ms, its operation has a median of 5 s and a
# 95th percentile of 20 s, 200 Services on 10 load balancers are restarted one after the other, a cloud-controller-manager
# runs beside, and the controller has its default settings (simulator/scenarios/realistic.txt). Real times: about 36
# minutes; the simulation of pool-core's tests plays the same on simulated time, for several seeds. Goals: no pool out of sync;
# half of the additions are there within two lane turns (what one write takes of a lane at the median, as long as its
# operation is polled when ARM asks for that); the shared Lease is held for at most half of the time, and never for more
# than 60 s at once, so that no other client waits longer. Prints our numbers, and beside them upstream's
# updater with the same scenario and seed, on simulated time; realistic.html in the folder given as $1 (default: target)
# shows both. Fails when a goal is missed. Needs python3 to read the report.
set -euo pipefail
cd "$(dirname "$0")/.."
folder="${1:-target}"
mkdir -p "$folder"
report="$folder/realistic.json"
rm -f "$report"
cargo run --quiet --release -- simulate --scenario realistic --seed "${SEED:-1}" --compare-upstream --listen 127.0.0.1:0 \
  --exit-when-done --report json --output "$report" --html "$folder/realistic.html" >/dev/null ||
  echo "the simulation failed; what it reported:"
python3 - "$report" <<'PY'
import json, sys

ours = json.load(open(sys.argv[1]))
theirs = ours["upstream"]
turn = ours["lane_turn_seconds"]
failed = False


def shown(value):
    return "-" if value is None else f"{value:.1f} s"


def row(name, of):
    print(f"{name:34} {of(ours):>18} {of(theirs):>18}")


def goal(holds, what):
    global failed
    failed |= not holds
    print(f"{'met   ' if holds else 'MISSED'} {what}")


print(f"{'':34} {'the service':>18} {'upstream':>18}")
row("pools out of sync at the end", lambda run: f"{run['wrong_pools']} of {run['pools']}")
row("additions, p50", lambda run: shown(run["convergence_seconds"]["p50"]))
row("additions, p99", lambda run: shown(run["convergence_seconds"]["p99"]))
row("additions, longest", lambda run: shown(run["convergence_seconds"]["max"]))
row("all in sync after the first change", lambda run: shown(run["first_event_to_converged_seconds"]))
row("changes dropped", lambda run: str((run["ccm"] or {"dropped": 0})["dropped"]))
row("writes of pools", lambda run: str(run["arm_puts"] + (run["ccm"] or {"writes": 0})["writes"]))
print()
took, lease = ours["convergence_seconds"], ours["lease"]
goal(ours["wrong_pools"] == 0 and took["waiting"] == 0, "0 pools out of sync")
goal(took["p50"] is not None and took["p50"] <= 2 * turn,
     f"additions p50 {shown(took['p50'])}, at most two lane turns of {turn:.1f} s")
goal(lease["duty"] <= 0.5, f"the shared Lease is held for {lease['duty']:.0%} of the time, at most 50 %")
goal(lease["longest_hold_seconds"] <= 60.5,
     f"it is held for {shown(lease['longest_hold_seconds'])} at once, at most 60 s and a request")
goal(ours["max_concurrent_puts_per_lb"] <= 1, "never two writes at once on one load balancer")
print(f"       the cloud-controller-manager waited at most {shown(ours['ccm']['longest_wait_seconds'])} for the Lease, "
      "its own pauses included")
sys.exit(failed)
PY
