#!/usr/bin/env bash
# Measures the development loop: the seconds from an edit to its tests' result, and of each step of `.ci/run`. Prints one
# row as `seconds  what`; the row `cold` also names the slowest units of the build.
#
#   benches/loop.sh ROW...      measures these rows, in this order
#   benches/loop.sh             measures all of them but `nightly`: about an hour and a half on two cores
#
#   cold      `cargo test --workspace --no-run` in an empty target folder
#   package   the first `cargo test -p pools --no-run` after a build of the workspace
#   edit      an edit in the queue: unit tests of its crate built, those of the queue run, all of them run
#   programs  an edit in the queue: all test programs built
#   clippy    an edit in the queue: the workspace checked by clippy
#   warm      `cargo test --workspace` with nothing to build, without a kube-apiserver
#   main      the tests of the binary alone, without a kube-apiserver
#   worlds    1000 worlds of the simulation, and every planted bug
#   slowest   the ten slowest tests of each test program that take a second or more (needs cargo-nextest)
#   quick, ci, nightly    the tiers of `.ci/run`, step by step, with everything built already
#   fresh     `.ci/run` as on a new machine: in a clone, without tools, and with empty caches of Go
#   release   the release build in an empty target folder
#
# Crates must have been downloaded (`cargo fetch`). An edit adds a function to the queue; it is reverted at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

edited=actors/core/pools/src/queue/outcome.rs
scratch="$(mktemp -d)"
cp "$edited" "$scratch/original"
# Reverts only an edit of this script.
restore() {
  if grep -q '^const fn loop_sh_edit_' "$edited"; then cp "$scratch/original" "$edited"; fi
  rm -rf "$scratch"
}
trap restore EXIT

# row WHAT COMMAND...: runs a command and prints its seconds, with the last line of its output if it failed.
row() {
  local what="$1" started="$EPOCHREALTIME" failed=""
  shift
  "$@" >"$scratch/log" 2>&1 </dev/null || failed="  (FAILED: $(tail -n 1 "$scratch/log"))"
  awk -v from="$started" -v to="$EPOCHREALTIME" -v what="$what$failed" \
    'BEGIN { printf "%8.1f  %s\n", to - from, what }'
}

# Edits the queue. Each edit differs from the one before, so that cargo builds it again.
edit() {
  cp "$scratch/original" "$edited"
  printf '\n#[expect(dead_code, reason = "an edit that is measured")]\nconst fn loop_sh_edit_%s() {}\n' \
    "${EPOCHREALTIME//[.,]/}" >>"$edited"
}

test_programs() { cargo test --workspace --no-run --locked; }

row_cold() {
  row "cold: cargo test --workspace --no-run" \
    env CARGO_TARGET_DIR="$scratch/target" cargo test --workspace --no-run --locked --timings
  python3 - "$scratch/target/cargo-timings/cargo-timing.html" <<'PY'
import json, re, sys
units = json.loads(re.search(r"UNIT_DATA = (\[.*?\]);\n", open(sys.argv[1]).read(), re.S).group(1))
for unit in sorted(units, key=lambda unit: -unit["duration"])[:10]:
    print(f"{unit['duration']:14.1f}  {unit['name']}{unit['target']}")
PY
  rm -rf "$scratch/target"
}

row_package() {
  test_programs >/dev/null 2>&1
  row "package: the first cargo test -p pools --no-run" cargo test --package pools --no-run --locked
}

row_edit() {
  cargo test --package pools --lib --no-run --locked >/dev/null 2>&1
  edit
  row "edit: unit tests of its crate built" cargo test --package pools --lib --no-run --locked
  row "edit: those of the queue run" cargo test --package pools --lib --locked queue::
  row "edit: all of them run" cargo test --package pools --lib --locked
}

row_programs() {
  test_programs >/dev/null 2>&1
  edit
  row "programs: all test programs built" test_programs
}

row_clippy() {
  cargo clippy --workspace --all-targets --locked >/dev/null 2>&1
  edit
  row "clippy: the workspace checked" cargo clippy --workspace --all-targets --locked
}

row_warm() {
  test_programs >/dev/null 2>&1
  row "warm: cargo test --workspace" env KUBEBUILDER_ASSETS=/nonexistent cargo test --workspace --locked
}

row_main() {
  test_programs >/dev/null 2>&1
  row "main: the tests of the binary" \
    env KUBEBUILDER_ASSETS=/nonexistent cargo test --workspace --locked --test main
}

row_worlds() {
  local play=(cargo test --config .config/worlds.toml --package pool-core --test simulation --locked)
  "${play[@]}" --no-run >/dev/null 2>&1
  row "worlds: 1000 of them" env SIMULATION_SEEDS=1000 "${play[@]}" z1_every_run
  row "worlds: every planted bug" env SIMULATION_SEEDS=200 "${play[@]}" each_planted
}

row_slowest() {
  cargo nextest run --workspace --locked >"$scratch/log" 2>&1 || tail -n 3 "$scratch/log"
  python3 - "${CARGO_TARGET_DIR:-target}/nextest/default/junit.xml" <<'PY'
import sys, xml.etree.ElementTree as tree
for suite in tree.parse(sys.argv[1]).getroot():
    cases = [(float(case.get("time")), case.get("name")) for case in suite.iter("testcase")]
    for seconds, name in sorted(cases, reverse=True)[:10]:
        if seconds >= 1:
            print(f"{seconds:14.1f}  {suite.get('name')} {name}")
PY
}

# tier NAME [ARGUMENT]: a tier of `.ci/run`, with its summary.
tier() {
  local name="$1"
  shift
  row "$name: .ci/run $*" .ci/run "$@"
  summary
}

summary() { sed -n '/^=== summary/,$ s/^/          /p' "$scratch/log"; }

row_quick() { tier quick quick; }
row_ci() { tier ci; }
row_nightly() { tier nightly nightly; }

row_fresh() {
  git clone --quiet . "$scratch/clone"
  row "fresh: .ci/run on a new machine" env --unset=TOOLS_DIR --unset=CARGO_TARGET_DIR \
    GOCACHE="$scratch/go-build" GOMODCACHE="$scratch/go-mod" GOFLAGS=-modcacherw "$scratch/clone/.ci/run"
  summary
}

row_release() {
  row "release: cargo build --release" env CARGO_TARGET_DIR="$scratch/target" cargo build --release --locked
  rm -rf "$scratch/target"
}

if (($# == 0)); then
  set -- cold package edit programs clippy warm main worlds slowest quick ci fresh release
fi
for name in "$@"; do
  if ! declare -F "row_$name" >/dev/null; then
    echo "benches/loop.sh: there is no row $name" >&2
    exit 64
  fi
  "row_$name"
done
