//! The state of a source: its assignment, and the note for operators (X3, X4).

use std::fmt;
use std::sync::Arc;

use crate::level::Provenance;
use crate::xds::assignment::LoadAssignment;
use crate::xds::cache::{Error, Reason};
use crate::xds::facts::{Code, ResourceKey};

/// The state of one source, as a level.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceFact {
    /// The assignment for the pools.
    pub assigned: Assigned,
    /// How the assignment arrived (G1).
    pub provenance: Provenance,
    /// The note for every event, error and status of these pools. A new note alone causes no write (X3, X4).
    pub note: Note,
}

/// The assignment of a source. `Unknown` and `Dropped` treat the current members of a pool differently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Assigned {
    /// No assignment has ever been known; with the fault, unless it is only awaited. The pools stay unchanged (X3).
    Unknown(Option<Fault>),
    /// The assignment in use. It may be empty; the guards handle that (G2).
    Usable(Arc<LoadAssignment>),
    /// The last assignment is no longer used, because `fail_on_data_errors` is configured; with the fault. The pools
    /// are emptied without guards (X3).
    Dropped(Fault),
}

impl Assigned {
    /// Returns the value in the admin API.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Assigned::Unknown(_) => "unknown",
            Assigned::Usable(_) => "usable",
            Assigned::Dropped(_) => "dropped",
        }
    }
}

impl SourceFact {
    /// Creates the state from the source's assignment, the reason why a requested resource is missing, and other
    /// errors.
    #[must_use]
    pub fn new(
        held: &HeldAssignment,
        provenance: Provenance,
        fault: Option<Fault>,
        ambient: Vec<Fault>,
        node_id: &Arc<str>,
    ) -> SourceFact {
        let assigned = match held {
            HeldAssignment::Nothing => Assigned::Unknown(fault),
            HeldAssignment::Assignment(assignment) => Assigned::Usable(Arc::clone(assignment)),
            HeldAssignment::Lost(cause) => Assigned::Dropped(fault.unwrap_or_else(|| cause.clone())),
        };
        let mut fact = SourceFact { assigned, provenance, note: Note::Node(Arc::clone(node_id)) };
        let mut errors: Vec<Fault> = Vec::new();
        for fault in ambient {
            // An unreachable server affects all resources, and is reported once.
            if fact.error() != Some(&fault) && !errors.contains(&fault) {
                errors.push(fault);
            }
        }
        if !errors.is_empty() {
            fact.note = Note::Errors(errors);
        }
        fact
    }

    /// Takes over what must survive of an older state that was replaced before it was processed: the more doubtful
    /// provenance (G1).
    pub fn absorb(&mut self, older: &SourceFact) {
        self.provenance = self.provenance.max(older.provenance);
    }

    /// Returns the assignment in use, if there is one.
    #[must_use]
    pub fn assignment(&self) -> Option<&Arc<LoadAssignment>> {
        match &self.assigned {
            Assigned::Usable(assignment) => Some(assignment),
            Assigned::Unknown(_) | Assigned::Dropped(_) => None,
        }
    }

    /// Returns true if the assignment is the current one of the source: there are no ambient errors (G2).
    #[must_use]
    pub fn stands(&self) -> bool {
        self.ambient().is_empty()
    }

    /// Returns the ambient errors beside the assignment in use.
    #[must_use]
    pub fn ambient(&self) -> &[Fault] {
        match &self.note {
            Note::Errors(faults) => faults,
            Note::Node(_) => &[],
        }
    }

    /// Returns the reason why no assignment is in use; `None`: one is in use or awaited.
    #[must_use]
    pub fn error(&self) -> Option<&Fault> {
        match &self.assigned {
            Assigned::Unknown(fault) => fault.as_ref(),
            Assigned::Usable(_) => None,
            Assigned::Dropped(fault) => Some(fault),
        }
    }
}

/// The note of a source for operators (X4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// Errors of its resources while one stays in use: first the cluster, then the endpoints in use, then the
    /// endpoints that will replace them.
    Errors(Vec<Fault>),
    /// No errors; the node id by which the control plane identifies us.
    Node(Arc<str>),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Errors(faults) => {
                for (n, fault) in faults.iter().enumerate() {
                    let before = if n == 0 { "" } else { "; " };
                    write!(f, "{before}{fault}")?;
                }
                Ok(())
            }
            Note::Node(id) => write!(f, "xDS node id: {id}"),
        }
    }
}

/// An error for operators: its reason without a status code (X4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The affected resource; `None`: all resources, because the server cannot be reached.
    pub resource: Option<ResourceKey>,
    /// The kind of error.
    pub reason: Reason,
    /// Description.
    pub message: Arc<str>,
}

impl Fault {
    /// Returns the fault that an error of a resource causes.
    #[must_use]
    pub fn of(key: &ResourceKey, error: &Error) -> Fault {
        let resource = match error.reason {
            Reason::Connectivity => None,
            Reason::Nack | Reason::Deleted | Reason::Timer | Reason::Reported => Some(key.clone()),
        };
        // An error that was reported without a text has only its code as a message.
        let is_mute = error.reason == Reason::Reported && *error.message == *error.code.as_str();
        let message = if is_mute { Arc::from(meaning(error.code)) } else { Arc::clone(&error.message) };
        Fault { resource, reason: error.reason, message }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(resource) = &self.resource {
            write!(f, "{resource}: ")?;
        }
        match self.reason {
            Reason::Reported => write!(f, "the control plane reports: {}", self.message),
            Reason::Connectivity | Reason::Nack | Reason::Deleted | Reason::Timer => {
                f.write_str(&self.message)
            }
        }
    }
}

/// Returns the meaning of a code that a control plane sends without a text.
fn meaning(code: Code) -> &'static str {
    match code {
        Code::NotFound => "it does not exist",
        Code::PermissionDenied | Code::Unauthenticated => "it may not be read",
        Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted | Code::Aborted => {
            "it cannot be sent at present"
        }
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss => "it cannot be sent, and no reason was given",
    }
}

/// The assignment that a source holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum HeldAssignment {
    /// The source has never had an assignment.
    #[default]
    Nothing,
    /// The source has this assignment.
    Assignment(Arc<LoadAssignment>),
    /// The source had an assignment, and this fault ended its use.
    Lost(Fault),
}

impl HeldAssignment {
    /// Returns the assignment, if there is one.
    #[must_use]
    pub fn assignment(&self) -> Option<&Arc<LoadAssignment>> {
        match self {
            HeldAssignment::Assignment(assignment) => Some(assignment),
            HeldAssignment::Nothing | HeldAssignment::Lost(_) => None,
        }
    }

    /// Ends the use of the assignment. If it was lost before, the earlier fault stays.
    pub fn lose(&mut self, fault: &Fault) {
        match self {
            HeldAssignment::Assignment(_) => *self = HeldAssignment::Lost(fault.clone()),
            HeldAssignment::Nothing | HeldAssignment::Lost(_) => {}
        }
    }
}
