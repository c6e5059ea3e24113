//! What is said of a source: what is assigned by it, and what operators are told beside it (X3, X4).

use std::fmt;
use std::sync::Arc;

use crate::level::Provenance;
use crate::xds::assignment::LoadAssignment;
use crate::xds::cache::{Error, Reason};
use crate::xds::facts::{Code, Key};

/// What is known of one source: a level.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceFact {
    /// What the pools are to do.
    pub assigned: Assigned,
    /// How that has come (G1).
    pub provenance: Provenance,
    /// What goes with every event, error and status of these pools; it asks for no write (X3, X4).
    pub note: Note,
}

/// What is assigned by a source. `Unknown` and `Dropped` differ in what becomes of members that are in the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Assigned {
    /// Nothing was ever known; the reason, if it is not only waited for. The pool stays as it is (X3).
    Unknown(Option<Fault>),
    /// The pool gets its members of this. It may be empty: that is for the guards (G2).
    Usable(Arc<LoadAssignment>),
    /// What was in use is not to be used any more, because `fail_on_data_errors` is configured; the
    /// reason. The pool is emptied, unguarded (X3).
    Dropped(Fault),
}

impl Assigned {
    /// The word for the admin API.
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
    /// What follows from what a source holds, from why what it asks for is not there, and from what is wrong besides.
    #[must_use]
    pub fn new(
        held: &Held,
        provenance: Provenance,
        fault: Option<Fault>,
        ambient: Vec<Fault>,
        node_id: &Arc<str>,
    ) -> SourceFact {
        let assigned = match held {
            Held::Nothing => Assigned::Unknown(fault),
            Held::Assignment(assignment) => Assigned::Usable(Arc::clone(assignment)),
            Held::Lost(cause) => Assigned::Dropped(fault.unwrap_or_else(|| cause.clone())),
        };
        let mut fact = SourceFact { assigned, provenance, note: Note::Node(Arc::clone(node_id)) };
        let mut errors: Vec<Fault> = Vec::new();
        for fault in ambient {
            // That a server is not reached is wrong with all resources, and told once.
            if fact.error() != Some(&fault) && !errors.contains(&fault) {
                errors.push(fault);
            }
        }
        if !errors.is_empty() {
            fact.note = Note::Errors(errors);
        }
        fact
    }

    /// Takes over what must not be lost of an older fact that this one replaces before it was acted on: the doubt
    /// about how it came (G1).
    pub fn absorb(&mut self, older: &SourceFact) {
        self.provenance = self.provenance.max(older.provenance);
    }

    /// What is assigned, if it is in use.
    #[must_use]
    pub fn assignment(&self) -> Option<&Arc<LoadAssignment>> {
        match &self.assigned {
            Assigned::Usable(assignment) => Some(assignment),
            Assigned::Unknown(_) | Assigned::Dropped(_) => None,
        }
    }

    /// Whether what is assigned is what the source says now: nothing is wrong beside it (G2).
    #[must_use]
    pub fn stands(&self) -> bool {
        self.ambient().is_empty()
    }

    /// What is wrong beside what is in use.
    #[must_use]
    pub fn ambient(&self) -> &[Fault] {
        match &self.note {
            Note::Errors(faults) => faults,
            Note::Node(_) => &[],
        }
    }

    /// Why nothing is in use; `None`: something is, or is waited for.
    #[must_use]
    pub fn error(&self) -> Option<&Fault> {
        match &self.assigned {
            Assigned::Unknown(fault) => fault.as_ref(),
            Assigned::Usable(_) => None,
            Assigned::Dropped(fault) => Some(fault),
        }
    }
}

/// What operators are told of a source beside all else (X4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// What is wrong with its resources, of which the one in use is not given up: first the cluster, then the endpoints
    /// in use, then those that are to take their place.
    Errors(Vec<Fault>),
    /// Nothing is; the id by which the control plane knows us.
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

/// What is wrong, for operators: its reason, and no status code (X4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// With which resource; `None`: with all of them, since the server is not reached.
    pub resource: Option<Key>,
    /// What kind of thing it is.
    pub reason: Reason,
    /// What it is.
    pub message: Arc<str>,
}

impl Fault {
    /// What an error of a resource means.
    #[must_use]
    pub fn of(key: &Key, error: &Error) -> Fault {
        let resource = match error.reason {
            Reason::Connectivity => None,
            Reason::Nack | Reason::Deleted | Reason::Timer | Reason::Reported => Some(key.clone()),
        };
        // An error that was reported without words has only its code for a message.
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

/// What a control plane means by a code that it sends without words.
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
        | Code::DataLoss => "it cannot be sent, and it is not said why",
    }
}

/// What a source holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Held {
    /// It never held anything.
    #[default]
    Nothing,
    /// What is assigned.
    Assignment(Arc<LoadAssignment>),
    /// It has held something, and this has ended that.
    Lost(Fault),
}

impl Held {
    /// What is assigned.
    #[must_use]
    pub fn assignment(&self) -> Option<&Arc<LoadAssignment>> {
        match self {
            Held::Assignment(assignment) => Some(assignment),
            Held::Nothing | Held::Lost(_) => None,
        }
    }

    /// What is held is not to be used any more. What was lost before has been lost by what ended it then.
    pub fn lose(&mut self, fault: &Fault) {
        match self {
            Held::Assignment(_) => *self = Held::Lost(fault.clone()),
            Held::Nothing | Held::Lost(_) => {}
        }
    }
}
