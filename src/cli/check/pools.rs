//! The Services that want a pool and what the controller makes of their pools: the very machines of `run`, watched while
//! they write nothing.

use std::collections::BTreeMap;

use model::view::{Candidacy, ServiceView, Snapshot};
use pool_core::comparison::{Comparison, End};

use super::finding::{Check, Findings};
use crate::cli::observe::{named, told};

/// Tells what was seen; `found` is how many load balancers exist.
pub(super) fn tell(comparison: &Comparison, end: End, found: usize, findings: &mut Findings) {
    let (snapshot, complete) = (&**comparison.snapshot(), end == End::Complete);
    if !complete {
        let why = told(&comparison.missing());
        let what = format!("not everything was compared in time: {why}");
        let means = "what follows is not complete";
        findings.problem(
            Check::Candidates,
            what,
            means,
            "see the findings above; for large clusters pass --within",
        );
    }
    candidates(snapshot, complete, found, findings);
    pools(comparison, findings);
}

fn candidates(snapshot: &Snapshot, complete: bool, found: usize, findings: &mut Findings) {
    let mut by_candidacy: BTreeMap<Candidacy, Vec<&ServiceView>> = BTreeMap::new();
    for service in snapshot.services.values() {
        by_candidacy.entry(service.candidacy).or_default().push(service);
    }
    let candidates = by_candidacy.remove(&Candidacy::Candidate).unwrap_or_default();
    let others = by_candidacy.iter().map(|(why, services)| format!("; {} {}", services.len(), why.as_str()));
    let what = format!("{} Services are candidates{}", candidates.len(), others.collect::<String>());
    findings.ok(Check::Candidates, what);
    if let Some(services) = by_candidacy.get(&Candidacy::NotMultiSlb) {
        let what = format!("{} Services have no pool of their own", services.len());
        let means = "the cloud configuration has no multipleStandardLoadBalancerConfigurations, so no members are \
                     written; nodes that leave service are taken out of traffic all the same, unless \
                     enableLoadBalancerAdminState is false";
        findings.warning(
            Check::Candidates,
            what,
            means,
            "check that this is the cloud-controller-manager's own file",
        );
    }
    let without: Vec<String> =
        candidates.iter().filter(|it| it.pools.is_empty()).map(|it| it.key.to_string()).collect();
    // Before everything was looked at, their rules may only not have been seen yet.
    if without.is_empty() || !complete {
        return;
    }
    let count = without.len();
    let what = format!("{count} candidates have no load-balancing rule: {}", named(without));
    let means = "they are not managed until the cloud-controller-manager makes their rules";
    let remedy = "read the events of these Services; check that the names of the load balancers above are those that the \
                  cloud-controller-manager uses";
    if found == 0 {
        findings.problem(Check::LoadBalancers, what, "no managed load balancer exists for them", remedy);
    } else {
        findings.warning(Check::Candidates, what, means, remedy);
    }
}

fn pools(comparison: &Comparison, findings: &mut Findings) {
    let snapshot = &**comparison.snapshot();
    let mut refused: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut words: BTreeMap<&str, String> = BTreeMap::new();
    for service in snapshot.services.values() {
        for (pool, why) in
            service.not_manageable.iter().filter(|(pool, _)| !snapshot.refused.contains_key(pool))
        {
            refused.entry(why.label().0).or_default().push(format!("{pool} ({})", service.key));
            words.entry(why.label().0).or_insert_with(|| why.to_string());
        }
    }
    let proven = snapshot.pools.len();
    let count = refused.values().map(Vec::len).sum::<usize>() + snapshot.refused.len();
    findings.ok(Check::Pools, format!("{proven} pools are proven to be ours, {count} are not"));
    for (label, pools) in refused {
        let why = words.get(label).map_or("", String::as_str);
        let what = format!("{label}: {} pools are not written: {why}: {}", pools.len(), named(pools));
        let means = "their members stay as they are, whatever the endpoints do";
        findings.warning(Check::Pools, what, means, "docs/errors.md has each reason with what to do");
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
            "docs/errors.md has each error with what to do",
        );
    }
}

/// The listed pools that are not written: a pool is listed in order to be filled.
fn refused_sources(comparison: &Comparison, findings: &mut Findings) {
    let mut refused: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (pool, why) in &comparison.snapshot().refused {
        let source = comparison.source_of(pool).map(|source| format!(" ({source})")).unwrap_or_default();
        refused.entry(why.label().0).or_default().push(format!("{pool}{source}: {why}"));
    }
    for (label, pools) in refused {
        let what = format!("{label}: {} pools of `pools` are not written: {}", pools.len(), named(pools));
        let means = "they are not filled, whatever their sources say";
        findings.problem(Check::Pools, what, means, "docs/errors.md has each reason with what to do");
    }
}
