//! Checks the Services that use pools, their pools and the xDS sources of pools (X2-X4). It uses the machines of `run`,
//! which write nothing here, and the plan of an export.

use std::collections::BTreeMap;

use model::view::{Candidacy, Snapshot};
use model::xds::cache::Reason;
use pool_core::comparison::Comparison;

use super::finding::{Check, Findings};
use crate::cli::observe::{missing_text, named};
use crate::cli::plan::{Plan, XdsSource};

/// Reports the plan; `balancers` is the number of existing load balancers.
pub(super) fn report(comparison: &Comparison, plan: &Plan, balancers: usize, findings: &mut Findings) {
    if !plan.complete {
        let reason = missing_text(&comparison.missing());
        let what = format!("not everything was compared in time: {reason}");
        let means = "the following findings are incomplete";
        findings.problem(
            Check::Candidates,
            what,
            means,
            "see the findings above; for large clusters pass --within",
        );
    }
    candidates(comparison.snapshot(), plan, balancers, findings);
    pools(plan, findings);
    sources(plan, findings);
}

fn candidates(snapshot: &Snapshot, plan: &Plan, balancers: usize, findings: &mut Findings) {
    let mut numbers: BTreeMap<Candidacy, usize> = BTreeMap::new();
    for service in snapshot.services.values() {
        *numbers.entry(service.candidacy).or_default() += 1;
    }
    let candidates = numbers.remove(&Candidacy::Candidate).unwrap_or_default();
    let others = numbers.iter().map(|(reason, number)| format!("; {number} {}", reason.as_str()));
    let what = format!("{candidates} Services are candidates{}", others.collect::<String>());
    findings.ok(Check::Candidates, what);
    if let Some(number) = numbers.get(&Candidacy::NotMultiSlb) {
        let what = format!("{number} Services have no pool of their own");
        let means = "the cloud configuration has no multipleStandardLoadBalancerConfigurations, so no members are \
                     written; nodes that leave service are still taken out of traffic, unless \
                     enableLoadBalancerAdminState is false";
        findings.warning(
            Check::Candidates,
            what,
            means,
            "check that this is the cloud-controller-manager's own file",
        );
    }
    let without_rules: Vec<String> =
        plan.services.iter().filter(|it| !it.has_pool).map(|it| it.service.clone()).collect();
    // Before everything is compared, rules may exist that were not read yet.
    if without_rules.is_empty() || !plan.complete {
        return;
    }
    let count = without_rules.len();
    let what = format!("{count} candidates have no load-balancing rule: {}", named(without_rules));
    let means = "they are not managed until the cloud-controller-manager creates their rules";
    let remedy = "read the events of these Services; check that the names of the load balancers above are those that the \
                  cloud-controller-manager uses";
    if balancers == 0 {
        findings.problem(Check::LoadBalancers, what, "no managed load balancer exists for them", remedy);
    } else {
        findings.warning(Check::Candidates, what, means, remedy);
    }
}

fn pools(plan: &Plan, findings: &mut Findings) {
    let (proven, refused) = (plan.pools.len(), plan.not_manageable.len());
    findings.ok(
        Check::Pools,
        format!("{proven} pools are proven to belong to managed Services, {refused} are not"),
    );
    let mut refused: BTreeMap<(bool, &str), Vec<String>> = BTreeMap::new();
    for it in &plan.not_manageable {
        let pools = refused.entry((it.service.is_none(), it.reason)).or_default();
        pools.push(format!("{}: {}", it.name(), it.detail));
    }
    for ((is_listed, reason), pools) in refused {
        let (number, remedy) = (pools.len(), "docs/errors.md has the remedy for each reason");
        if is_listed {
            let what = format!("{reason}: {number} pools of `pools` are not written: {}", named(pools));
            findings.problem(Check::Pools, what, "their members do not follow their sources", remedy);
        } else {
            let what = format!("{reason}: {number} pools are not written: {}", named(pools));
            findings.warning(Check::Pools, what, "their members do not follow the endpoints", remedy);
        }
    }
    let failed = plan.pools.iter();
    let failed = failed.filter_map(|pool| Some(format!("{}: {}", pool.name(), pool.last_error.as_ref()?)));
    let failed: Vec<String> = failed.collect();
    if !failed.is_empty() {
        let what = format!("{} pools could not be read: {}", failed.len(), named(failed));
        findings.problem(
            Check::Pools,
            what,
            "they are not written",
            "docs/errors.md has the remedy for each error",
        );
    }
}

fn sources(plan: &Plan, findings: &mut Findings) {
    let number = plan.sources.len();
    if number == 0 {
        return findings.ok(Check::Sources, "no pool is configured to be filled from an xDS control plane");
    }
    let used = plan.sources.iter().filter(|source| source.is_used());
    let used: Vec<String> = used.map(|source| source.source.clone()).collect();
    let names = if used.is_empty() { String::new() } else { format!(": {}", named(used.clone())) };
    findings.ok(Check::Sources, format!("{} of {number} sources are in use{names}", used.len()));
    for source in &plan.sources {
        let Some((error, effect)) = source.problem() else { continue };
        let what = format!("{}: {error}", source.source);
        let means = format!("{effect}: {}", named(source.pool_names()));
        if source.is_used() {
            findings.warning(Check::Sources, what, &means, remedy(source));
        } else {
            findings.problem(Check::Sources, what, &means, remedy(source));
        }
    }
}

/// Returns the remedy for the error of a source.
fn remedy(source: &XdsSource) -> &'static str {
    match source.reason {
        None => {
            "pass a longer --within: the wait for a resource ends 15 s after its request, or 30 s with \
             resource_timer_is_transient_error, and an attempt to connect ends after 20 s"
        }
        Some(Reason::Connectivity) => {
            "check server_uri, channel_creds and call_creds of the bootstrap, firewalls, name resolution, and that the \
             control plane runs"
        }
        Some(Reason::Nack) => {
            "correct the resource at the control plane; docs/xds.md describes valid resources"
        }
        Some(Reason::Deleted | Reason::Timer) => {
            "check the name in `pools`, the node's id in the bootstrap, and that the control plane has this resource for it"
        }
        Some(Reason::Reported) => {
            "read the log of the control plane; check the name in `pools`, and the rights of the node's id there"
        }
    }
}
