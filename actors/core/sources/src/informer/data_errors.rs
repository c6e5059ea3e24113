//! The data errors of one Service (D6).

use std::sync::Arc;

/// The data errors of a Service, while they last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DataErrors {
    /// Number of affected endpoints.
    pub(super) endpoints: usize,
    /// Description of one of them.
    pub(super) example: Arc<str>,
    /// True if they were reported in this term.
    pub(super) reported: bool,
}
