//! Checks the xDS sources of pools (X2-X4): whether each source is in use, and if not, why.

use model::xds::cache::Reason;
use model::xds::name::Name;
use model::xds::source::{Assigned, Fault, SourceFact};
use pool_core::comparison::{Comparison, ListedSource, Missing};

use super::finding::{Check, Findings};
use crate::cli::observe::named;

/// Reports the state of all sources.
pub(super) fn report(comparison: &Comparison, findings: &mut Findings) {
    let sources = comparison.sources();
    if sources.is_empty() {
        return findings.ok(Check::Sources, "no pool is configured to be filled from an xDS control plane");
    }
    let is_used = |source: &&ListedSource<'_>| source.fact.is_some_and(|fact| fact.assignment().is_some());
    let used: Vec<String> = sources.iter().filter(is_used).map(|source| source.name.to_string()).collect();
    let names = if used.is_empty() { String::new() } else { format!(": {}", named(used.clone())) };
    findings.ok(Check::Sources, format!("{} of {} sources are in use{names}", used.len(), sources.len()));
    for source in &sources {
        if let Some(fact) = source.fact {
            report_fault(source, fact, findings);
        }
    }
    let has_error = |name: &Name| {
        sources.iter().any(|of| of.name == name && of.fact.is_some_and(|fact| fact.error().is_some()))
    };
    for missing in comparison.missing() {
        if let Missing::Source(name, _) = &missing
            && !has_error(name)
        {
            let means = "the members of its pools are not known";
            let remedy = "pass a longer --within: the wait for a resource ends 15 s after its request, or 30 s with \
                          resource_timer_is_transient_error, and an attempt to connect ends after 20 s";
            findings.problem(Check::Sources, missing.to_string(), means, remedy);
        }
    }
}

/// Reports the fault of a source, if there is one.
fn report_fault(source: &ListedSource<'_>, fact: &SourceFact, findings: &mut Findings) {
    let name = source.name;
    let pools = named(source.pools.iter().map(ToString::to_string).collect());
    match &fact.assigned {
        Assigned::Unknown(None) => {}
        Assigned::Unknown(Some(fault)) => {
            let means = format!("nothing is written to {pools}");
            findings.problem(Check::Sources, format!("{name}: {fault}"), &means, remedy(fault));
        }
        Assigned::Usable(_) => {
            if let Some(first) = fact.ambient().first() {
                let what = format!("{name} is in use, with an error: {}", fact.note);
                let means = format!("{pools} keep the last good endpoints");
                findings.warning(Check::Sources, what, &means, remedy(first));
            }
        }
        Assigned::Dropped(fault) => {
            let means = format!(
                "the last good endpoints are no longer used (fail_on_data_errors), which empties {pools}"
            );
            findings.problem(Check::Sources, format!("{name}: {fault}"), &means, remedy(fault));
        }
    }
}

/// Returns the remedy for a fault.
fn remedy(fault: &Fault) -> &'static str {
    match fault.reason {
        Reason::Connectivity => {
            "check server_uri, channel_creds and call_creds of the bootstrap, firewalls, name resolution, and that the \
             control plane runs"
        }
        Reason::Nack => "correct the resource at the control plane; docs/xds.md describes valid resources",
        Reason::Deleted | Reason::Timer => {
            "check the name in `pools`, the node's id in the bootstrap, and that the control plane has this resource for it"
        }
        Reason::Reported => {
            "read the log of the control plane; check the name in `pools`, and the rights of the node's id there"
        }
    }
}
