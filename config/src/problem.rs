//! Problems and warnings of a configuration, with remedies. This module owns the form of the messages; the readers own
//! their content. Values of secret keys never reach this module.

use std::fmt;

/// The `field` of a problem that concerns a file as a whole.
pub const WHOLE_FILE: &str = "whole file";

/// An error in the configuration, which prevents the start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: found {found}, expected {expected}; {remedy}", Subject(location, field))]
pub struct Problem {
    /// Location of the value: a file, a line of it, or an environment variable.
    pub location: Location,
    /// The key with its full path, spelled as in the file.
    pub field: String,
    /// Description of the value found; never the value of a secret key.
    pub found: String,
    /// Description of the expected value.
    pub expected: String,
    /// What to do.
    pub remedy: String,
}

/// A valid value that is probably a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Location of the value.
    pub location: Location,
    /// The key with its full path.
    pub field: String,
    /// The effect of the value.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, field, message } = self;
        write!(f, "{}: {message}", Subject(location, field))
    }
}

/// A location and a key; an environment variable that is also the key is named once.
struct Subject<'a>(&'a Location, &'a str);

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(location, field) = self;
        match location {
            Location::Environment(name) if name == field => write!(f, "{location}"),
            Location::File(_) | Location::Line(..) | Location::Environment(_) => {
                write!(f, "{location}: {field}")
            }
        }
    }
}

/// Location of a configuration value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file as a whole, or a file in which the key is absent.
    File(String),
    /// A line of a file, counted from 1.
    Line(String, usize),
    /// An environment variable.
    Environment(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) => f.write_str(name),
            Self::Line(name, line) => write!(f, "{name}:{line}"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
        }
    }
}

/// All problems of both files and the environment; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Report {
    problems: Vec<Problem>,
}

impl Report {
    /// Creates a report of these problems; `None` if there are none.
    pub fn of(problems: Vec<Problem>) -> Option<Self> {
        (!problems.is_empty()).then_some(Self { problems })
    }

    /// Returns the problems, those of the cloud configuration first, each file in its own order.
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

/// The reason for which a value is refused; the reader adds the location, the field and the value found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Description of the value found, if the default description does not fit.
    pub(crate) found: Option<String>,
    /// Description of the expected value.
    pub(crate) expected: String,
    /// What to do.
    pub(crate) remedy: String,
}

impl Mismatch {
    pub(crate) fn new(expected: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { found: None, expected: expected.into(), remedy: remedy.into() }
    }
}

/// An error in a value or in one part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Path of the part within the value, such as `[2].source`; empty for the value as a whole.
    pub(crate) part: String,
    /// The part's line, from 1; `None` if it is that of the value.
    pub(crate) line: Option<usize>,
    /// The reason.
    pub(crate) mismatch: Mismatch,
}

impl From<Mismatch> for Vec<Fault> {
    /// Creates a fault of the value as a whole.
    fn from(mismatch: Mismatch) -> Self {
        vec![Fault { part: String::new(), line: None, mismatch }]
    }
}
