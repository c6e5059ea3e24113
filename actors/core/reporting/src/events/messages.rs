//! The text of each event: reason, type and message (E1).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crate::events::Severity;
use model::arm::{AdminState, Failure, FailureKind};
use model::assignment::HeldReason;
use model::ids::{LbName, PoolId, ServiceKey};
use model::object::Kind;
use model::report::{Effect, EventKind, ExcludedNodes, Report};
use model::sample::Caller;
use model::signals::Signal;
use model::view::admin_state_word;
use model::write_record::{MemberList, MemberRecord, WriteRecord};

/// Prefix of the newest message of combined events.
const COMBINED: &str = "(combined from similar events): ";
/// Longest message, in bytes: the API server refuses more than 1024, and each message may be combined.
const MAX_MESSAGE_BYTES: usize = 1024 - COMBINED.len();
/// Number of sources that a message names.
const NAMED: usize = 3;
/// Number of added and of removed members that a message names.
const NAMED_MEMBERS: usize = 5;
/// Longest name of a node in the list of changed members, in bytes.
const MAX_NODE: usize = 63;
const CUT: &str = "…";
/// Longest text about a source, in bytes.
const MAX_NOTE: usize = 320;
/// Length of the end of a message that is never cut for that text: it says what operators can do.
const END: usize = 336;
const GUIDANCE: &str =
    "To retrigger, cause an endpoint change for the Service (e.g., restart or scale a backing pod).";
/// The guidance for a pool that is filled from an xDS source, so that no Service gets events.
const GUIDANCE_OF_SOURCE: &str =
    "To retrigger, have the control plane send a changed assignment, or request an attempt of the pool.";

/// Returns the reason, in CamelCase.
pub(super) fn reason(what: &EventKind) -> &'static str {
    match what {
        EventKind::Updated { .. } => "LoadBalancerBackendPoolUpdated",
        EventKind::Retrying { .. } => "LoadBalancerBackendPoolUpdateRetrying",
        EventKind::FailedTerminal { .. } | EventKind::FailedExhausted { .. } => {
            "LoadBalancerBackendPoolUpdateFailed"
        }
        EventKind::NotManageable { .. } => "BackendPoolNotManageable",
        EventKind::Shared { .. } => "BackendPoolShared",
        EventKind::Blocked { .. } => "BackendPoolWritesBlocked",
        EventKind::WritesLost { .. } => "BackendPoolWritesLost",
        EventKind::LeaseHeld { .. } => "SharedLeaseHeldByOtherClient",
        EventKind::Contested { .. } => "BackendPoolContested",
        EventKind::Quarantined { .. } => "BackendPoolQuarantined",
        EventKind::Held { .. } => "BackendPoolRemovalHeld",
        EventKind::RemovalsStopped { .. } => "BackendPoolRemovalsStopped",
        EventKind::SourceFailing { .. } => "XdsResourceError",
        EventKind::SourceRecovered { .. } => "XdsResourceRecovered",
        EventKind::DataError { .. } => "ServiceEndpointsIncomplete",
        EventKind::Undecodable { .. } => "ObjectUndecodable",
        EventKind::AdminDown { .. } => "LoadBalancerAdminStateDown",
        EventKind::AdminRestored { .. } => "LoadBalancerAdminStateNone",
        EventKind::AdminFailed { .. } => "LoadBalancerAdminStateUpdateFailed",
        EventKind::AdminHeld { .. } => "LoadBalancerAdminStateHeld",
        EventKind::AdminForeign { .. } => "LoadBalancerAdminStateForeign",
    }
}

/// Returns the type: `Normal` or `Warning`.
pub(super) fn severity(what: &EventKind) -> Severity {
    match what {
        EventKind::Updated { .. }
        | EventKind::SourceRecovered { .. }
        | EventKind::AdminDown { .. }
        | EventKind::AdminRestored { .. } => Severity::Normal,
        EventKind::Retrying { .. }
        | EventKind::FailedTerminal { .. }
        | EventKind::FailedExhausted { .. }
        | EventKind::NotManageable { .. }
        | EventKind::Shared { .. }
        | EventKind::Blocked { .. }
        | EventKind::WritesLost { .. }
        | EventKind::LeaseHeld { .. }
        | EventKind::Contested { .. }
        | EventKind::Quarantined { .. }
        | EventKind::Held { .. }
        | EventKind::RemovalsStopped { .. }
        | EventKind::SourceFailing { .. }
        | EventKind::DataError { .. }
        | EventKind::Undecodable { .. }
        | EventKind::AdminFailed { .. }
        | EventKind::AdminHeld { .. }
        | EventKind::AdminForeign { .. } => Severity::Warning,
    }
}

/// Returns the message of combined events: the newest one, marked.
pub(super) fn combined(newest: &str) -> String {
    format!("{COMBINED}{newest}")
}

/// Returns the message of a report, short enough to be combined. The text about the source of its pool comes last (X4).
pub(super) fn full_message(report: &Report) -> String {
    let message = message(&report.what, report.note.is_some());
    let Some(note) = &report.note else { return message };
    let note = format!(" [{}]", cut_to(note.to_string(), MAX_NOTE));
    let room = MAX_MESSAGE_BYTES.saturating_sub(note.len());
    format!("{}{note}", cut_inside(message, room))
}

/// Returns the message, short enough to be combined with others.
pub(super) fn message(what: &EventKind, of_source: bool) -> String {
    match what {
        EventKind::Updated { pool, members, record } => updated(pool, *members, record),
        EventKind::Retrying { pool: _, retry, max, failure } => {
            let head = format!("Backend pool update failed, will retry ({retry}/{max}): {}: ", code(failure));
            around(&head, &error(failure), "")
        }
        EventKind::FailedTerminal { pool, failure, compared_again_in } => {
            let tail = format!(".{}", compared_again(pool, *compared_again_in, of_source));
            around("Backend pool update failed (non-retriable): ", &whole(failure), &tail)
        }
        EventKind::FailedExhausted { pool, retries, failure, compared_again_in } => {
            let head = format!("Backend pool update failed after {retries} retries: ");
            let guidance = if of_source { GUIDANCE_OF_SOURCE } else { GUIDANCE };
            let tail = format!(". {guidance}{}", compared_again(pool, *compared_again_in, of_source));
            around(&head, &whole(failure), &tail)
        }
        EventKind::NotManageable { pool, reason, attempted: _ } => {
            cut(format!("Members of backend pool {pool} are not written: {reason}"))
        }
        EventKind::Shared { pool, services } => shared(pool, services),
        EventKind::Blocked { caller, fault, lb } => blocked(*caller, fault, lb.as_ref()),
        EventKind::WritesLost { pool, writes, left_for } => writes_lost(pool, *writes, *left_for),
        EventKind::LeaseHeld { holder } => lease_held(holder),
        EventKind::Contested { pool, members, left_for } => cut(format!(
            "Another client keeps adding {} to backend pool {pool} that no endpoint requires; they stay there for {} s",
            counted(*members, "member"),
            left_for.as_secs()
        )),
        EventKind::Quarantined { pool, broken } => cut(format!(
            "Backend pool {pool} is no longer written: {broken}. This is an internal error: report it, and restart the \
             controller to try again"
        )),
        EventKind::Held { pool, reason, members, enforced, excluded } => {
            let why = if of_source { why_of_source(*reason) } else { why(*reason) };
            held(pool, (why, excluded.as_ref()), *members, *enforced)
        }
        EventKind::RemovalsStopped { pools, of, enforced } => removals_stopped(*pools, *of, *enforced),
        EventKind::SourceFailing { sources, pools, effect, error } => {
            source_failing(sources, *pools, *effect, error)
        }
        EventKind::SourceRecovered { sources } => cut(format!("No more errors in {}", some(sources))),
        EventKind::DataError { endpoints, example } => {
            let concerned = match endpoints {
                0 => "Endpoints".to_owned(),
                known => counted(*known, "endpoint"),
            };
            let head = format!("{concerned} cannot be placed in a backend pool: ");
            around(&head, example, "")
        }
        EventKind::Undecodable { kind, object, error, kept } => undecodable(*kind, object, error, *kept),
        EventKind::AdminDown { pools, balancers, signals, unknown } => {
            admin_down(*pools, *balancers, signals, unknown.as_ref())
        }
        EventKind::AdminRestored { pools } => cut(format!(
            "The node gets traffic again: admin state None restored in {}",
            counted(*pools, "pool")
        )),
        EventKind::AdminFailed { pool, why, retry, next } => admin_failed(pool.as_ref(), why, *retry, *next),
        EventKind::AdminHeld { down, ready } => cut(format!(
            "Drain limit reached: {down} of {ready} Ready nodes are already Down, and more nodes wait. A node proceeds \
             when fewer are Down, when it is not Ready, or when an operator releases it"
        )),
        EventKind::AdminForeign { pools, example, state } => admin_foreign(*pools, example, *state),
    }
}

/// Returns the pool, the changes, for which Services, why, and ARM's correlation id. The names of members are cut if
/// they take too much room.
fn updated(pool: &PoolId, members: usize, record: &WriteRecord) -> String {
    let WriteRecord { trigger, services, added, removed, correlation_id, down: _, restored: _ } = record;
    let head = format!(
        "Load balancer backend pool updated successfully: {pool} has {} ({} added, {} removed)",
        counted(members, "member"),
        added.count,
        removed.count
    );
    let changed = [("Added", added), ("Removed", removed)];
    let changed = changed.into_iter().filter(|(_, list)| list.count > 0);
    let middle: String = changed.map(|(word, list)| format!(". {word}: {}", first_members(list))).collect();
    let mut tail = String::new();
    let services: BTreeSet<Arc<str>> = services.iter().map(|key| Arc::from(key.to_string())).collect();
    if !services.is_empty() {
        let noun = if services.len() == 1 { "Service" } else { "Services" };
        write!(tail, ". {noun}: {}", some(&services)).expect("writing to a String cannot fail");
    }
    if let Some(trigger) = trigger {
        write!(tail, ". Trigger: {}", trigger.as_str()).expect("writing to a String cannot fail");
    }
    if let Some(id) = correlation_id {
        write!(tail, " (correlation id {id})").expect("writing to a String cannot fail");
    }
    around(&head, &middle, &tail)
}

/// Returns the first members of a list, and the number of further ones.
fn first_members(list: &MemberList) -> String {
    let first: Vec<String> = list.named.iter().take(NAMED_MEMBERS).map(member).collect();
    let names = first.join(", ");
    match list.count.saturating_sub(first.len()) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

/// Returns the node with its address, as far as both are known.
fn member(member: &MemberRecord) -> String {
    let node = cut_to(member.node.to_string(), MAX_NODE);
    match &member.backend {
        Some(backend) if node.is_empty() || node == backend.to_string() => backend.to_string(),
        Some(backend) => format!("{node} ({backend})"),
        None if node.is_empty() => "an entry without a name".to_owned(),
        None => node,
    }
}

fn undecodable(kind: Kind, object: &str, error: &str, still_used: bool) -> String {
    let stays = if still_used { "stays in use" } else { "is no longer used" };
    around(&format!("{} {object} cannot be read; its last good state {stays}: ", one(kind)), error, "")
}

fn source_failing(sources: &BTreeSet<Arc<str>>, pools: usize, effect: Effect, error: &str) -> String {
    let pools = counted(pools, "backend pool");
    let becomes = match effect {
        Effect::Kept => "the last good endpoints stay in use in",
        Effect::Untouched => "no valid endpoints have been received, so nothing is written to",
        Effect::Emptied => "the last good endpoints are no longer used (fail_on_data_errors), which empties",
    };
    around(&format!("Error in {}; {becomes} {pools}: ", some(sources)), error, "")
}

/// Returns the first few of many names.
fn some(names: &BTreeSet<Arc<str>>) -> String {
    let first: Vec<&str> = names.iter().take(NAMED).map(|name| &**name).collect();
    match names.len().saturating_sub(NAMED) {
        0 => first.join(", "),
        more => format!("{} and {}", first.join(", "), counted(more, "other")),
    }
}

fn admin_down(
    pools: usize,
    balancers: usize,
    signals: &BTreeSet<Signal>,
    unknown: Option<&(usize, PoolId)>,
) -> String {
    let reasons: Vec<&str> = signals.iter().map(|signal| signal.as_str()).collect();
    let more = unknown.map_or_else(String::new, |(pools, example)| {
        let place = places(*pools, example);
        format!("; in {place} its admin state is unknown and stays unchanged")
    });
    cut(format!(
        "The node gets no new traffic: admin state Down in {} of {} ({}){more}",
        counted(pools, "pool"),
        counted(balancers, "load balancer"),
        reasons.join(", ")
    ))
}

/// Returns the name of one pool, or the number of several pools and the name of one of them.
fn places(pools: usize, example: &PoolId) -> String {
    match pools {
        0 | 1 => format!("pool {example}"),
        more => format!("{more} pools, such as {example},"),
    }
}

fn admin_failed(pool: Option<&PoolId>, why: &str, retry: u32, next: Option<Duration>) -> String {
    let place = pool.map_or_else(String::new, |pool| format!("pool {pool}: "));
    let count = if retry == 0 { String::new() } else { format!(" (retry {retry})") };
    let next = next.map_or_else(String::new, |next| {
        format!("; the next try is in {} s", next.as_secs_f64().ceil().max(1.0))
    });
    let why = why.trim_end().trim_end_matches('.');
    around(&format!("Admin state update failed: {place}"), why, &format!("{count}{next}"))
}

fn admin_foreign(pools: usize, example: &PoolId, state: AdminState) -> String {
    let (place, state) = (places(pools, example), admin_state_word(state));
    cut(format!(
        "Another client set the admin state of the node in {place} to {state}; it stays unchanged, because no signal \
         says that the node leaves service"
    ))
}

fn blocked(caller: Caller, fault: &str, lb: Option<&LbName>) -> String {
    let what = match caller {
        Caller::Membership => "backend pools",
        Caller::AdminState => "admin states in backend pools",
    };
    let place = lb.map_or_else(String::new, |lb| format!(" of load balancer {lb}"));
    let head = format!("Writes of {what}{place} wait, because several failed in the same way: ");
    around(&head, fault.trim_end_matches('.'), ". One write at a time is tried; a success ends this")
}

fn writes_lost(pool: &PoolId, writes: u64, left_for: Option<Duration>) -> String {
    let next = left_for.map_or_else(
        || "it is written again".to_owned(),
        |left_for| format!("the next try waits {} s unless an endpoint changes", left_for.as_secs()),
    );
    cut(format!(
        "Azure Resource Manager reported writes of backend pool {pool} as done, but the pool does not have them \
         ({writes} so far); {next}"
    ))
}

fn lease_held(holder: &str) -> String {
    let head = "Writes of backend pools wait for the Lease that is shared with the cloud-controller-manager; it is held by ";
    let tail = ", which is neither this controller nor the cloud-controller-manager. It is taken over once it has not changed for 15 minutes; \
                if that holder no longer runs, empty holderIdentity of the Lease";
    around(head, holder, tail)
}

fn shared(pool: &PoolId, services: &[ServiceKey]) -> String {
    let mut names: Vec<String> = services.iter().map(ToString::to_string).collect();
    names.sort_unstable();
    let head = format!("Backend pool {pool} is used by several Services; it gets the members of all: ");
    around(&head, &names.join(", "), "")
}

fn why(reason: HeldReason) -> &'static str {
    match reason {
        HeldReason::EmptyConfirm => "a Service would lose its last member; this waits for confirmation",
        HeldReason::NoUsableNode => {
            "the Service has endpoints but no usable node, or one of its slices or nodes cannot be read"
        }
        HeldReason::LastMember => {
            "the Service has endpoints but none that counts, and none of their nodes is in the pool"
        }
        HeldReason::Fraction => "a new list removes so much of the pool that a second list must confirm it",
        HeldReason::Breaker => "too many backend pools would lose most of their members at the same time",
        HeldReason::AddOnly => "the mode add-only removes no member",
    }
}

/// Returns why a removal is held back from a pool that is filled from an xDS source. No Service gets events about
/// such a pool.
fn why_of_source(reason: HeldReason) -> &'static str {
    match reason {
        HeldReason::EmptyConfirm => "no endpoint is assigned to it any more; this waits for confirmation",
        HeldReason::LastMember => {
            "endpoints are assigned, but none takes new traffic, and none of them is in the pool"
        }
        HeldReason::NoUsableNode => "endpoints are assigned but none is usable, or its source has an error",
        HeldReason::Fraction => {
            "the first assignment of the control plane removes so much of the pool that it must last for a while"
        }
        HeldReason::Breaker | HeldReason::AddOnly => why(reason),
    }
}

fn held(
    pool: &PoolId,
    (why, excluded): (&str, Option<&ExcludedNodes>),
    members: usize,
    enforced: bool,
) -> String {
    let members = counted(members, "member");
    let fate = if enforced {
        "is held back"
    } else {
        "would be held back if guards.mode were enforce, but proceeds"
    };
    let excluded = excluded.map_or_else(String::new, |ExcludedNodes { first, why, more }| {
        let more = if *more == 0 { String::new() } else { format!(" ({more} more are excluded)") };
        format!("; node {first} is excluded, because {why}{more}")
    });
    cut(format!("Removal of {members} from backend pool {pool} {fate}: {why}{excluded}"))
}

fn removals_stopped(pools: usize, of: usize, enforced: bool) -> String {
    let fate = if enforced {
        "all removals are paused until this clears or an operator releases them"
    } else {
        "guards.mode is observe, so their members are removed"
    };
    cut(format!(
        "{pools} of {of} backend pools would be left with less than half of the members that they had 5 minutes ago; {fate}"
    ))
}

/// Returns the name of one object of the kind.
fn one(kind: Kind) -> &'static str {
    match kind {
        Kind::Services => "Service",
        Kind::EndpointSlices => "EndpointSlice",
        Kind::Nodes => "Node",
        Kind::Preemptions => "Event",
    }
}

/// Returns ARM's code, or the place of another error.
fn code(failure: &Failure) -> String {
    failure.code.as_ref().map_or_else(|| place_of(failure.kind), ToString::to_string)
}

fn place_of(kind: FailureKind) -> String {
    match kind {
        FailureKind::Status(status) => format!("HTTP {status}"),
        FailureKind::Operation => "OperationFailed".to_owned(),
        FailureKind::NotConnected | FailureKind::Connection => "ConnectionFailed".to_owned(),
        FailureKind::Timeout => "Timeout".to_owned(),
        FailureKind::Undecodable(status) => format!("HTTP {status} with an unreadable body"),
        FailureKind::Credential => "NoToken".to_owned(),
        FailureKind::PermitExpired => "PermitExpired".to_owned(),
        FailureKind::GateClosed => "ThrottleGateClosed".to_owned(),
        FailureKind::Refused => "RequestRefused".to_owned(),
    }
}

/// Returns the message and the correlation id.
fn error(failure: &Failure) -> String {
    let mut text = failure.message.trim_end().to_owned();
    if let Some(id) = &failure.correlation_id {
        let space = if text.is_empty() { "" } else { " " };
        write!(text, "{space}(correlation id {id})").expect("writing to a String cannot fail");
    }
    text
}

/// Returns code, message and correlation id, without a full stop at the end.
fn whole(failure: &Failure) -> String {
    let (code, error) = (code(failure), error(failure));
    let text = if error.is_empty() { code } else { format!("{code}: {error}") };
    text.trim_end_matches('.').to_owned()
}

fn compared_again(pool: &PoolId, after: Option<Duration>, of_source: bool) -> String {
    match after {
        Some(after) => format!(" Backend pool {pool} is compared again in {} s.", after.as_secs_f64().ceil()),
        None if of_source => {
            format!(" Backend pool {pool} is not compared again until its assignment changes.")
        }
        None => format!(" Backend pool {pool} is not compared again until an endpoint changes."),
    }
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Joins head, middle and tail; cuts the middle so that the tail fits.
fn around(head: &str, middle: &str, tail: &str) -> String {
    let room = MAX_MESSAGE_BYTES.saturating_sub(head.len() + tail.len());
    cut(format!("{head}{}{tail}", cut_to(middle.to_owned(), room)))
}

fn cut(text: String) -> String {
    cut_to(text, MAX_MESSAGE_BYTES)
}

/// Cuts a long text before its end: the long part is an error in the middle.
fn cut_inside(text: String, longest: usize) -> String {
    if text.len() <= longest {
        return text;
    }
    let end = text.ceil_char_boundary(text.len().saturating_sub(END));
    let (text, end) = text.split_at(end);
    let room = longest.saturating_sub(end.len());
    format!("{}{end}", cut_to(text.to_owned(), room))
}

/// Cuts at a character boundary and marks the cut.
fn cut_to(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest.saturating_sub(CUT.len())));
        text.push_str(CUT);
    }
    text
}
