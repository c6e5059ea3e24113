#!/usr/bin/env bash
# The drain row of the product's goals, and a storm of evictions.
#   drain  120 times, one after another, a node of a hundred is tainted and two seconds later untainted; 100 Services on 10
#          load balancers, no other client takes the shared Lease, ARM takes 20 ms for a read and 100 ms for a write, the
#          API server 5 ms for each answer. Goal: of 100 drains 99 have their first PUT on its way within 100 ms after the API
#          server took the taint; every node is drained, and every one is restored.
#   storm  simulator/scenarios/spot-storm.txt: 30 nodes are evicted within 30 s, each with 30 s of notice, during a rolling
#          restart. Goals: at most two PUTs for each pool, none for nodes that have come back or gone. Prints in which
#          order the nodes were drained, and how many were in time of those that could have been: if each load balancer had
#          served the pools of these nodes alone, the earliest deadline first, each in the time that its writes have taken.
# Real times: about 20 minutes. The reports stay in the folder given as $1 (default: target). Fails when a goal is missed.
# Needs python3 to read the reports.
set -euo pipefail
cd "$(dirname "$0")/.."
folder="${1:-target}"
mkdir -p "$folder"
rm -f "$folder/drain.json" "$folder/storm.json"
scenario=$(mktemp)
trap 'rm -f "$scenario"' EXIT
cat >"$scenario" <<'SCENARIO'
services 100
load-balancers 10
nodes 100
arm get-latency 20ms
arm put-latency 100ms
controller budget.writesPer5Minutes 1000000
controller budget.readsPer5Minutes 10000000
pods still
settle 2m
expect nodes reached 120
at 0s apiserver slow 5ms
SCENARIO
for ((drain = 0; drain < 120; drain++)); do
  echo "at $((10 + drain * 4))s nodes taint 1 node.kubernetes.io/out-of-service"
  echo "at $((12 + drain * 4))s nodes untaint node.kubernetes.io/out-of-service"
done >>"$scenario"
run() {
  local name="$1"
  shift
  cargo run --quiet --release -- simulate --seed "${SEED:-1}" --listen 127.0.0.1:0 --exit-when-done --report json \
    --output "$folder/$name.json" "$@" >/dev/null || echo "$name: the simulation failed; what it reported:"
}
run drain --scenario "$scenario"
run storm --scenario spot-storm
python3 - "$folder" <<'PY'
import json, sys

drain, storm = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("drain", "storm"))
failed = False


def goal(holds, what):
    global failed
    failed |= not holds
    print(f"{'met   ' if holds else 'MISSED'} {what}")


def shown(seconds):
    return "-" if seconds is None else f"{seconds:.3f} s"


def times(took):
    return ", ".join(f"{name} {shown(took[name])}" for name in ("p50", "p99", "max"))


def ended(run):
    state = run["admin_state"]
    return run["converged"] and run["max_concurrent_puts_per_lb"] <= 1 and state["wrong_entries"] == 0


LIMIT, DRAINS = 0.100, 120
state = drain["admin_state"]
print(f"drain: {state['nodes']} drains, {state['puts']} PUTs")
print(f"       taint -> first PUT: {times(state['sent_seconds'])}")
print(f"       taint -> last pool: {times(state['drained_seconds'])}")
p99 = state["sent_seconds"]["p99"]
goal(p99 is not None and p99 <= LIMIT, f"taint -> first PUT p99 {shown(p99)}, at most {shown(LIMIT)}")
goal(state["nodes"] == state["reached_in_time"] == DRAINS, f"{state['reached_in_time']} of {DRAINS} drains done")
goal(ended(drain), f"{state['wrong_entries']} entries with a wrong admin state, {drain['wrong_pools']} pools out of sync at the end")

state = storm["admin_state"]
print(f"\nstorm: {state['nodes']} nodes, {state['puts']} PUTs")
print(f"       notice -> first PUT: {times(state['sent_seconds'])}")
print(f"       notice -> last pool: {times(state['drained_seconds'])}")
print(f"{'node':12} {'notice at':>10} {'first PUT':>10} {'drained':>10} {'possible':>10} {'pools':>5}")
order = lambda node: (node["drained_seconds"] is None, node["signal_seconds"] + (node["drained_seconds"] or 0.0))
for node in sorted(state["by_node"], key=order):
    verdict = "in time" if node["in_time"] else "late" if node["drained_seconds"] is not None else "never"
    print(f"{node['node']:12} {shown(node['signal_seconds']):>10} {shown(node['sent_seconds']):>10} "
          f"{shown(node['drained_seconds']):>10} {shown(node['best_seconds']):>10} {node['pools']:5} {verdict}")
reached, best = state["reached_in_time"], state["best_possible"]
ratio = f"{reached / best:.2f}" if best else "-"
print(f"       {reached} of {state['nodes']} in time, {best} possible: {ratio}; {state['late']} late, {state['never']} never")
goal(state["nodes"] == 30, "30 nodes were evicted")
goal(state["puts_per_pool_max"] <= 2, f"at most {state['puts_per_pool_max']} PUTs for one pool, at most 2")
goal(state["puts_without_effect"] == 0, f"{state['puts_without_effect']} PUTs for nodes that had come back or gone")
goal(ended(storm), f"{state['wrong_entries']} entries with a wrong admin state, {storm['wrong_pools']} pools out of sync at the end")
sys.exit(failed)
PY
