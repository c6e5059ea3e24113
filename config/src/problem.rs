//! What is wrong with a configuration, and what to do about it. Owns the texts' shape; the readers own the contents.
//! Values of secret keys never reach this module.

use std::fmt;

/// The `field` of a problem that concerns a file as a whole.
pub const WHOLE_FILE: &str = "whole file";

/// One thing that the operator has to change before the service can start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: found {found}, expected {expected}; {remedy}", Subject(place, field))]
pub struct Problem {
    /// Where the value was written: a file, a line of it, or an environment variable.
    pub place: Place,
    /// The key with its full path, as the file spells it where it stands in a file.
    pub field: String,
    /// What stands there; never the value of a secret key.
    pub found: String,
    /// What belongs there.
    pub expected: String,
    /// What to do.
    pub remedy: String,
}

/// One thing that works, but probably not as its author meant it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where the value was written.
    pub place: Place,
    /// The key with its full path.
    pub field: String,
    /// What follows from the value.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, field, message } = self;
        write!(f, "{}: {message}", Subject(place, field))
    }
}

/// A place and the key there; a variable that is its own key is named once.
struct Subject<'a>(&'a Place, &'a str);

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(place, field) = self;
        match place {
            Place::Environment(name) if name == field => write!(f, "{place}"),
            Place::File(_) | Place::Line(..) | Place::Environment(_) => write!(f, "{place}: {field}"),
        }
    }
}

/// Where a configuration value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file, without a line because the key is absent or the file as a whole is meant.
    File(String),
    /// A line of a file, counted from 1.
    Line(String, usize),
    /// An environment variable.
    Environment(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) => f.write_str(name),
            Self::Line(name, line) => write!(f, "{name}:{line}"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
        }
    }
}

/// All problems of both files and the environment at once; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Report {
    problems: Vec<Problem>,
}

impl Report {
    /// Gathers problems; `None` when there are none.
    pub fn of(problems: Vec<Problem>) -> Option<Self> {
        (!problems.is_empty()).then_some(Self { problems })
    }

    /// The problems, those of the cloud configuration first, each file in its own order.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl From<Problem> for Report {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.problems.len() == 1 { "" } else { "s" };
        write!(f, "the configuration has {} problem{plural}", self.problems.len())?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n- {problem}"))
    }
}

/// Why one value was refused; the reader adds place, field and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// What was found, when a description of the node would not do.
    pub(crate) found: Option<String>,
    /// What belongs there.
    pub(crate) expected: String,
    /// What to do.
    pub(crate) remedy: String,
}

impl Mismatch {
    pub(crate) fn new(expected: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { found: None, expected: expected.into(), remedy: remedy.into() }
    }
}

/// What is wrong with a value or with one part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Where in the value the part is, such as `[2].source`; empty for the value as a whole.
    pub(crate) part: String,
    /// The part's line, from 1; `None` for the value's own.
    pub(crate) line: Option<usize>,
    /// Why it was refused.
    pub(crate) mismatch: Mismatch,
}

impl From<Mismatch> for Vec<Fault> {
    /// About the value as a whole.
    fn from(mismatch: Mismatch) -> Self {
        vec![Fault { part: String::new(), line: None, mismatch }]
    }
}
