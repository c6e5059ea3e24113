//! The cooldown: how long the shared Lease is left to others after a hold (docs/design/writer.md, W7).
//!
//! A sign that the cloud-controller-manager waits adds 60 s. That is time for its next try, which we cannot predict.
//! The addition ends early when the cloud-controller-manager has held the Lease, released it, and left it alone for a
//! while: then its work is done.

use std::time::Duration;

use model::machine::Now;

/// Longest cooldown after a hold.
const MAX_COOLDOWN: Duration = Duration::from_secs(60);

/// Time for which the observation of another holder counts.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);

/// Addition for a sign that the cloud-controller-manager waits.
const EXTRA: Duration = Duration::from_secs(60);

/// Shortest interval between two additions.
const EXTRA_APART: Duration = Duration::from_secs(5 * 60);

/// Earliest time of the next take, and its reasons.
#[derive(Clone, Debug, Default)]
pub(super) struct Cooldown {
    /// End of the cooldown after our last hold.
    until: Now,
    /// Addition for clients that wait.
    extension: Option<CooldownExtension>,
    /// Time at which another holder was last observed.
    other: Option<Now>,
    /// Time of the last addition.
    extra: Option<Now>,
    /// Whether an addition follows at the end of the current hold.
    addition_due: bool,
}

/// An addition to the cooldown.
#[derive(Clone, Copy, Debug)]
struct CooldownExtension {
    /// Latest end.
    latest: Now,
    /// Early end, after another client has held the Lease and released it.
    done: Option<Now>,
}

impl Cooldown {
    /// Returns the end of the cooldown. `None`: the Lease may be taken.
    pub(super) fn until(&self, now: Now) -> Option<Now> {
        let extension = self
            .extension
            .map(|extension| extension.done.map_or(extension.latest, |done| done.min(extension.latest)));
        let until = extension.map_or(self.until, |extension| extension.max(self.until));
        (now < until).then_some(until)
    }

    /// Records a release by another client. If that client does not take the Lease again within this time, it waits
    /// no longer.
    pub(super) fn on_foreign_release(&mut self, now: Now, within: Duration) {
        self.on_foreign_holder(now);
        if let Some(extension) = &mut self.extension {
            extension.done = Some(now.plus(within));
        }
    }

    /// Records that another client holds the Lease, or just did.
    pub(super) fn on_foreign_holder(&mut self, now: Now) {
        self.other = Some(now);
    }

    /// Starts the cooldown after a hold: as long as the hold, if there are other holders.
    pub(super) fn hold_ended(&mut self, now: Now, held: Duration, least: Duration) {
        if self.other.is_some_and(|seen| now < seen.plus(REMEMBERED)) {
            self.until = self.until.max(now.plus(held.max(least).min(MAX_COOLDOWN)));
        }
        if std::mem::take(&mut self.addition_due) {
            self.add(now);
        }
    }

    /// Applies a sign that another client waits. It counts once, for the current hold if there is one, and at most
    /// once in five minutes. Returns whether it counted.
    pub(super) fn on_contention(&mut self, now: Now, held: bool) -> bool {
        if self.extra.is_some_and(|last| now < last.plus(EXTRA_APART)) {
            return false;
        }
        self.extra = Some(now);
        if held {
            self.addition_due = true;
        } else {
            self.add(now);
        }
        true
    }

    fn add(&mut self, now: Now) {
        self.extension = Some(CooldownExtension { latest: self.until.max(now).plus(EXTRA), done: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_secs(5);

    fn at(seconds: u64) -> Now {
        Now::from_millis(seconds * 1_000)
    }

    fn off_after(held: u64, other: Option<u64>) -> Option<u64> {
        let mut cooldown = Cooldown::default();
        if let Some(other) = other {
            cooldown.on_foreign_holder(at(other));
        }
        cooldown.hold_ended(at(10_000), Duration::from_secs(held), LEAST);
        cooldown.until(at(10_000)).map(|until| until.since(at(10_000)).as_secs())
    }

    #[test]
    fn w7_it_is_off_as_long_as_it_was_held_at_least_5_at_most_60_seconds() {
        for (held, cooldown) in [(0, 5), (4, 5), (5, 5), (17, 17), (60, 60), (75, 60)] {
            assert_eq!(off_after(held, Some(9_000)), Some(cooldown), "held for {held} s");
        }
    }

    #[test]
    fn w7_it_is_off_only_where_another_holder_was_seen_within_the_last_hour() {
        assert_eq!(off_after(20, None), None);
        assert_eq!(off_after(20, Some(6_401)), Some(20));
        assert_eq!(off_after(20, Some(6_400)), None);
    }

    #[test]
    fn w7_a_sign_of_a_waiting_ccm_adds_60_s_once_in_5_minutes() {
        let mut cooldown = Cooldown::default();
        cooldown.hold_ended(at(1_000), LEAST, LEAST);
        assert!(cooldown.on_contention(at(1_000), false));
        assert!(!cooldown.on_contention(at(1_000), false));
        assert_eq!(cooldown.until(at(1_000)), Some(at(1_060)));
        assert!(!cooldown.on_contention(at(1_299), false));
        assert_eq!(cooldown.until(at(1_299)), None);
        assert!(cooldown.on_contention(at(1_300), false));
        assert_eq!(cooldown.until(at(1_300)), Some(at(1_360)));
    }

    #[test]
    fn w7_the_addition_ends_when_another_holder_has_had_the_lease() {
        let mut cooldown = Cooldown::default();
        cooldown.on_foreign_holder(at(900));
        cooldown.hold_ended(at(1_000), Duration::from_secs(20), LEAST);
        assert!(cooldown.on_contention(at(1_000), false));
        assert_eq!(cooldown.until(at(1_000)), Some(at(1_080)));
        cooldown.on_foreign_release(at(1_003), LEAST);
        assert_eq!(cooldown.until(at(1_003)), Some(at(1_020)), "the cooldown is still as long as the hold");
        cooldown.on_foreign_release(at(1_018), LEAST);
        assert_eq!(cooldown.until(at(1_018)), Some(at(1_023)), "it has come again");
        cooldown.on_foreign_release(at(1_078), LEAST);
        assert_eq!(cooldown.until(at(1_078)), Some(at(1_080)), "in any case it is no more than 60 s");
        assert_eq!(cooldown.until(at(1_080)), None);
    }

    #[test]
    fn w7_the_addition_is_full_if_the_release_came_before_the_sign() {
        let mut cooldown = Cooldown::default();
        cooldown.on_foreign_release(at(900), LEAST);
        assert_eq!(cooldown.until(at(900)), None);
        cooldown.hold_ended(at(1_000), Duration::from_secs(20), LEAST);
        assert!(cooldown.on_contention(at(1_000), false));
        assert_eq!(cooldown.until(at(1_000)), Some(at(1_080)));
    }

    #[test]
    fn w7_a_sign_that_comes_during_a_hold_counts_at_its_end() {
        let mut cooldown = Cooldown::default();
        cooldown.on_foreign_holder(at(990));
        assert!(cooldown.on_contention(at(1_000), true));
        assert_eq!(cooldown.until(at(1_000)), None);
        cooldown.hold_ended(at(1_010), Duration::from_secs(10), LEAST);
        assert_eq!(cooldown.until(at(1_010)), Some(at(1_080)));
    }
}
