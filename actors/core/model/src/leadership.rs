//! Whether this process may write, and until when: said by the Leader, asked by each machine that acts on it
//! (docs/design/coordination.md, W8).

use std::time::Duration;

use crate::ids::Epoch;
use crate::machine::Now;

/// How much of leadership must be left when a PUT is sent (W8).
pub const PERMIT_MARGIN: Duration = Duration::from_secs(25);

/// Whether this process may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It may not.
    Standby,
    /// It may, in this term, until the permit time at the latest.
    Leading {
        /// The term.
        epoch: Epoch,
        /// Until when leadership is certain; [`Now::NEVER`] where there is no other replica.
        until: Now,
    },
}

impl Standing {
    /// The term in which it may write; `None`: it may not.
    #[must_use]
    pub fn term(self) -> Option<Epoch> {
        match self {
            Standing::Standby => None,
            Standing::Leading { epoch, .. } => Some(epoch),
        }
    }

    /// Whether a term goes on, as far as was said; its end may be no longer certain.
    #[must_use]
    pub fn leads(self) -> bool {
        self.term().is_some()
    }

    /// Whether leadership is certain at this moment.
    #[must_use]
    pub fn leads_for_certain(self, now: Now) -> bool {
        match self {
            Standing::Standby => false,
            Standing::Leading { until, .. } => now < until,
        }
    }

    /// Until when a PUT may be sent, that moment included; `None`: none may (W8).
    #[must_use]
    pub fn send_before(self) -> Option<Now> {
        match self {
            Standing::Standby => None,
            Standing::Leading { until: Now::NEVER, .. } => Some(Now::NEVER),
            Standing::Leading { until, .. } => Some(until.minus(PERMIT_MARGIN)),
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
    fn w8_a_put_may_be_sent_until_25_s_before_leadership_is_no_longer_certain() {
        let leading = Standing::Leading { epoch: Epoch(3), until: at(45) };
        assert_eq!((leading.term(), leading.leads()), (Some(Epoch(3)), true));
        assert_eq!(leading.send_before(), Some(at(20)));
        assert!(leading.leads_for_certain(at(44)) && !leading.leads_for_certain(at(45)));
        let alone = Standing::Leading { epoch: Epoch(1), until: Now::NEVER };
        assert_eq!(alone.send_before(), Some(Now::NEVER), "there is no other replica");
        let standby = Standing::Standby;
        assert_eq!((standby.term(), standby.leads(), standby.send_before()), (None, false, None));
        assert!(!standby.leads_for_certain(Now::ZERO));
    }
}
