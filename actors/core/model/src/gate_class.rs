//! The request classes that ARM throttles apart from each other (docs/design/writer.md, W6).

/// The two request classes of the throttle gate and the budget (W6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GateClass {
    /// GET and HEAD.
    Reads,
    /// All other methods.
    Writes,
}

impl GateClass {
    /// Both classes.
    pub const ALL: [GateClass; 2] = [GateClass::Reads, GateClass::Writes];

    /// Returns the value in metrics and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            GateClass::Reads => "reads",
            GateClass::Writes => "writes",
        }
    }
}
