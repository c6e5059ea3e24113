//! Whether this process may write, and until when. The Leader publishes it, and each machine that acts on it checks it
//! (docs/design/coordination.md, W8).

use std::time::Duration;

use crate::ids::Epoch;
use crate::machine::Now;

/// The minimum remaining time of leadership when a PUT is sent (W8).
pub const PERMIT_MARGIN: Duration = Duration::from_secs(25);

/// The leadership of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leadership {
    /// This process may not write.
    Standby,
    /// This process may write in this term, until the permit time at the latest.
    Leading {
        /// The term.
        epoch: Epoch,
        /// The end of certain leadership; [`Now::NEVER`] when there is no other replica.
        until: Now,
    },
}

impl Leadership {
    /// Returns the term in which this process may write; `None`: this process may not write.
    #[must_use]
    pub fn term(self) -> Option<Epoch> {
        match self {
            Leadership::Standby => None,
            Leadership::Leading { epoch, .. } => Some(epoch),
        }
    }

    /// Returns true while a term lasts by the latest message, even if leadership is no longer certain.
    #[must_use]
    pub fn leads(self) -> bool {
        self.term().is_some()
    }

    /// Returns true if leadership is certain at `now`.
    #[must_use]
    pub fn leads_for_certain(self, now: Now) -> bool {
        match self {
            Leadership::Standby => false,
            Leadership::Leading { until, .. } => now < until,
        }
    }

    /// Returns the last time at which a PUT may be sent, inclusive; `None`: no PUT may be sent (W8).
    #[must_use]
    pub fn send_deadline(self) -> Option<Now> {
        match self {
            Leadership::Standby => None,
            Leadership::Leading { until: Now::NEVER, .. } => Some(Now::NEVER),
            Leadership::Leading { until, .. } => Some(until.minus(PERMIT_MARGIN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Now {
        Now::from_millis(second * 1_000)
    }

    #[test]
    fn w8_no_put_is_sent_in_the_last_25_s_of_leadership() {
        let leading = Leadership::Leading { epoch: Epoch(3), until: at(45) };
        assert_eq!((leading.term(), leading.leads()), (Some(Epoch(3)), true));
        assert_eq!(leading.send_deadline(), Some(at(20)));
        assert!(leading.leads_for_certain(at(44)) && !leading.leads_for_certain(at(45)));
        let alone = Leadership::Leading { epoch: Epoch(1), until: Now::NEVER };
        assert_eq!(alone.send_deadline(), Some(Now::NEVER), "there is no other replica");
        let standby = Leadership::Standby;
        assert_eq!((standby.term(), standby.leads(), standby.send_deadline()), (None, false, None));
        assert!(!standby.leads_for_certain(Now::ZERO));
    }
}
