//! When and how a change arrived.

use model::level::Provenance;
use model::machine::Now;

/// Time and provenance of the arrival of a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) now: Now,
    pub(super) provenance: Provenance,
}
