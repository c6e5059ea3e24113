//! The report as a table for operators.

use std::fmt::Write as _;

use super::{Convergence, DrainReport, Lease, Report, SERVICE, Times, UPSTREAM, Unserved};
use crate::expected_members::WrongEntry;
use crate::post_run_checks::{Held, PostRunChecks};

type Row = (&'static str, String);

/// Returns the table with its verdict, after the table of upstream's updater, if any.
pub(super) fn text(report: &Report) -> String {
    let Some(upstream) = &report.upstream else { return table(report) + "\n" + &report.verdict() + "\n" };
    // The controller's table comes last: operators read the end of the text, and the exit code is the controller's.
    format!(
        "Upstream's updater, same scenario and seed:\n\n{}\n{UPSTREAM}: {}\n\nThe controller:\n\n{}\n{SERVICE}: {}\n",
        table(upstream),
        upstream.verdict(),
        table(report),
        report.verdict()
    )
}

fn table(report: &Report) -> String {
    let headline = headline(report);
    let mut rows = course(report);
    rows.extend(leaving(&report.admin_state));
    rows.extend(calls(report));
    rows.extend(others(report));
    rows.extend(report.checks.as_ref().map(guards).unwrap_or_default());
    rows.extend(ending(report));
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = format!("{headline}\n\n");
    for (name, value) in rows {
        writeln!(text, "{name:width$}  {value}").expect("writing to a string cannot fail");
    }
    text
}

/// Returns the main result: the time from a change until the new members were in their pools.
fn headline(report: &Report) -> String {
    let Convergence { count, waiting, p50, p99, max: _ } = report.convergence_seconds;
    let took = match count {
        0 => "no change needed new members".to_owned(),
        _ => format!("p50 {}, p99 {}", span(p50), span(p99)),
    };
    let waiting = if waiting == 0 { String::new() } else { format!(" ({waiting} still missing)") };
    format!("change → members in place: {took}{waiting}")
}

/// Returns the rows about the scenario and the times of its pools.
fn course(report: &Report) -> Vec<Row> {
    let Report { services, pools, load_balancers, nodes, seed, .. } = report;
    let mut rows = Vec::new();
    if let Some(name) = &report.scenario {
        rows.push(("scenario", name.clone()));
    }
    if report.speed > 1 {
        rows.push(("speed", format!("{} times as fast as written", report.speed)));
    }
    let world = format!("{services} Services, {pools} pools, {load_balancers} load balancers, {nodes} nodes");
    rows.push(("world", world));
    let took = span(Some(report.changing_seconds));
    rows.push(("changes", format!("{} in {took} (seed {seed})", report.changes)));
    let done = match report.first_event_to_converged_seconds {
        Some(seconds) => format!("{seconds:.3} s after the first change"),
        None if report.converged => "from the beginning".to_owned(),
        None => "never".to_owned(),
    };
    rows.push(("all pools done", done));
    let took = &report.convergence_seconds;
    if took.count > 0 {
        rows.push((
            "members in place",
            format!("{}, at most {} after a change", changes(took.count), span(took.max)),
        ));
    }
    let gone = &report.removal_seconds;
    if gone.count > 0 {
        let delay = report.removal_delay_seconds;
        let gone =
            format!("p50 {}, p99 {}, of which removalDelay is {delay} s", span(gone.p50), span(gone.p99));
        rows.push(("old members removed", gone));
    }
    if report.emptied_pools > 0 {
        rows.push(("emptied", format!("{} times a pool lost its last member", report.emptied_pools)));
    }
    if let Some((worst, seconds)) = report.unserved.worst.first() {
        let Unserved { pools, total_seconds, .. } = report.unserved;
        rows.push((
            "no serving member",
            format!("{pools} pools, {total_seconds:.1} s in sum, {seconds:.1} s at most ({worst})"),
        ));
    }
    if report.flows_reset > 0 {
        rows.push(("flows reset", format!("{} times", report.flows_reset)));
    }
    rows
}

/// Returns the rows about drained nodes, if any.
fn leaving(admin_state: &DrainReport) -> Vec<Row> {
    let DrainReport { nodes, reached_in_time, late, never, best_possible, .. } = admin_state;
    if *nodes == 0 {
        return Vec::new();
    }
    let times =
        |Times { p50, p99, max }: Times| format!("p50 {}, p99 {}, max {}", span(p50), span(p99), span(max));
    let drained = times(admin_state.drained_seconds);
    let nodes = format!(
        "{reached_in_time} of {nodes} in time ({best_possible} possible), {late} late, {never} never; {drained}"
    );
    let DrainReport { puts, puts_per_pool_max, puts_without_effect, .. } = admin_state;
    let sent = times(admin_state.sent_seconds);
    let puts = format!(
        "{puts}, at most {puts_per_pool_max} for a pool, {puts_without_effect} without effect; first {sent}"
    );
    vec![("nodes drained", nodes), ("PUTs for them", puts)]
}

/// Returns the rows about requests to ARM.
fn calls(report: &Report) -> Vec<Row> {
    let calls = format!("{} GET, {} PUT, {} polls", report.arm_gets, report.arm_puts, report.arm_polls);
    let refusals = format!(
        "{} throttled, {} etag mismatches, {} locked, {} superseded",
        report.arm_throttled, report.arm_etag_mismatches, report.arm_refused_by_lock, report.arm_superseded
    );
    vec![
        ("ARM calls", calls),
        ("ARM refusals", refusals),
        ("PUTs at once per LB", format!("at most {}", report.max_concurrent_puts_per_lb)),
        (
            "one write takes",
            format!("{:.1} s of its load balancer (by ARM's settings)", report.lane_turn_seconds),
        ),
    ]
}

/// Returns the rows about the shared Lease and its other clients.
fn others(report: &Report) -> Vec<Row> {
    let mut rows = Vec::new();
    let Lease { duty, others, holds, longest_hold_seconds } = report.lease;
    if holds > 0 {
        let held = format!(
            "held for {:.0} % of the time in {holds} holds, at most {longest_hold_seconds:.1} s; others {:.0} %",
            duty * 100.0,
            others * 100.0
        );
        rows.push(("shared Lease", held));
    }
    if let Some(ccm) = &report.ccm {
        let sums = format!(
            "{} reconciled, {} failed, {} locks, {} not acquired, longest wait {:.1} s, {} changes dropped",
            ccm.reconciled, ccm.failed, ccm.holds, ccm.lock_failures, ccm.longest_wait_seconds, ccm.dropped
        );
        rows.push(("cloud-controller", sums));
    }
    rows
}

/// Returns the rows about held removals and waiting work.
fn guards(checks: &PostRunChecks) -> Vec<Row> {
    let mut rows: Vec<Row> = checks
        .held
        .iter()
        .map(|(reason, Held { pools, seconds })| {
            ("held back", format!("{reason}: {pools} pools at once, {seconds:.1} s at most"))
        })
        .collect();
    if let Some(seconds) = checks.removals_stopped_seconds {
        rows.push(("removals stopped", format!("all of them, for {seconds:.1} s at most")));
    }
    let end = checks.queue_depth_end.map_or_else(|| "unknown".to_owned(), |depth| depth.to_string());
    rows.push(("queue depth", format!("{} at most, {end} at the end", checks.queue_depth_max)));
    rows
}

/// Returns the rows about events, resource usage and failures.
fn ending(report: &Report) -> Vec<Row> {
    let events = report.events.iter();
    let mut rows: Vec<Row> = events.map(|(reason, count)| ("event", format!("{count} × {reason}"))).collect();
    if let (Some(cpu), Some(rss)) = (report.cpu_seconds, report.max_rss_bytes) {
        rows.push((
            "controller",
            format!("{cpu:.2} s of CPU time, at most {:.1} MiB of memory", rss as f64 / 1_048_576.0),
        ));
    }
    rows.extend(report.wrong_pool_details.iter().map(|wrong| {
        let pool_name = format!("{}/{}", wrong.load_balancer, wrong.pool);
        ("out of sync", format!("{pool_name} missing {:?} unwanted {:?}", wrong.missing, wrong.unwanted))
    }));
    rows.extend(report.admin_state.wrong_entry_details.iter().map(|wrong| {
        let WrongEntry { load_balancer, pool, ip, state, why: reason } = wrong;
        ("wrong admin state", format!("{load_balancer}/{pool} {ip} {state}: {reason}"))
    }));
    if !report.passed() {
        rows.extend(report.warnings.iter().map(|warning| ("warning", warning.clone())));
    }
    rows
}

fn changes(count: usize) -> String {
    if count == 1 { "1 change".to_owned() } else { format!("{count} changes") }
}

fn span(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.3} s"))
}
