//! Checks the Services that use pools, and their pools: by the same machines as in `run`, which write nothing here.

use std::collections::BTreeMap;

use model::view::{Candidacy, ServiceView, Snapshot};
use pool_core::comparison::{Comparison, End};

use super::finding::{Check, Findings};
use crate::cli::observe::{missing_text, named};

/// Reports the result of the comparison; `balancers` is the number of existing load balancers.
pub(super) fn report(comparison: &Comparison, end: End, balancers: usize, findings: &mut Findings) {
    let (snapshot, complete) = (&**comparison.snapshot(), end == End::Complete);
    if !complete {
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
    candidates(snapshot, complete, balancers, findings);
    pools(comparison, findings);
}

fn candidates(snapshot: &Snapshot, complete: bool, balancers: usize, findings: &mut Findings) {
    let mut by_candidacy: BTreeMap<Candidacy, Vec<&ServiceView>> = BTreeMap::new();
    for service in snapshot.services.values() {
        by_candidacy.entry(service.candidacy).or_default().push(service);
    }
    let candidates = by_candidacy.remove(&Candidacy::Candidate).unwrap_or_default();
    let others =
        by_candidacy.iter().map(|(reason, services)| format!("; {} {}", services.len(), reason.as_str()));
    let what = format!("{} Services are candidates{}", candidates.len(), others.collect::<String>());
    findings.ok(Check::Candidates, what);
    if let Some(services) = by_candidacy.get(&Candidacy::NotMultiSlb) {
        let what = format!("{} Services have no pool of their own", services.len());
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
        candidates.iter().filter(|it| it.pools.is_empty()).map(|it| it.key.to_string()).collect();
    // Before everything is compared, rules may exist that were not read yet.
    if without_rules.is_empty() || !complete {
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

fn pools(comparison: &Comparison, findings: &mut Findings) {
    let snapshot = &**comparison.snapshot();
    let mut refused: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for service in snapshot.services.values() {
        for (pool, reason) in
            service.not_manageable.iter().filter(|(pool, _)| !snapshot.refused.contains_key(pool))
        {
            refused.entry(reason.label().0).or_default().push(format!("{pool} ({})", service.key));
            texts.entry(reason.label().0).or_insert_with(|| reason.to_string());
        }
    }
    let proven = snapshot.pools.len();
    let count = refused.values().map(Vec::len).sum::<usize>() + snapshot.refused.len();
    findings.ok(Check::Pools, format!("{proven} pools are proven to be ours, {count} are not"));
    for (label, pools) in refused {
        let reason = texts.get(label).map_or("", String::as_str);
        let what = format!("{label}: {} pools are not written: {reason}: {}", pools.len(), named(pools));
        let means = "their members do not follow the endpoints";
        findings.warning(Check::Pools, what, means, "docs/errors.md has the remedy for each reason");
    }
    refused_sources(comparison, findings);
    let failed = snapshot.pools.values().filter_map(|pool| {
        let error = pool.last_error.as_ref()?;
        Some(format!("{}: {error}", pool.pool))
    });
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

/// Reports the configured pools that are not written.
fn refused_sources(comparison: &Comparison, findings: &mut Findings) {
    let mut refused: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (pool, reason) in &comparison.snapshot().refused {
        let source = comparison.source_of(pool).map(|source| format!(" ({source})")).unwrap_or_default();
        refused.entry(reason.label().0).or_default().push(format!("{pool}{source}: {reason}"));
    }
    for (label, pools) in refused {
        let what = format!("{label}: {} pools of `pools` are not written: {}", pools.len(), named(pools));
        let means = "their members do not follow their sources";
        findings.problem(Check::Pools, what, means, "docs/errors.md has the remedy for each reason");
    }
}
