//! The holders of the shared Lease over time.

/// Maximum number of holds; later ones are dropped.
const MOST: usize = 100_000;
/// The controller's identity in the shared Lease (W7).
pub const OURS: &str = "azure-backend-pool-controller";

/// One hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The holder's identity.
    pub holder: String,
    /// Start, in microseconds.
    pub from_us: u64,
    /// End by a release or a take-over, in microseconds; `None` while it lasts.
    pub until_us: Option<u64>,
}

impl Hold {
    /// Returns whether the controller was the holder.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.holder.starts_with(OURS)
    }
}

/// All holds, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Holds(Vec<Hold>);

impl Holds {
    /// Records the holder of the Lease at `now_us`; an empty name means no holder.
    pub(crate) fn record(&mut self, holder: &str, now_us: u64) {
        match self.0.last_mut().filter(|hold| hold.until_us.is_none()) {
            Some(hold) if hold.holder == holder => return,
            Some(hold) => hold.until_us = Some(now_us),
            None => {}
        }
        if !holder.is_empty() && self.0.len() < MOST {
            self.0.push(Hold { holder: holder.to_owned(), from_us: now_us, until_us: None });
        }
    }

    /// Returns the holds.
    #[must_use]
    pub fn all(&self) -> &[Hold] {
        &self.0
    }

    /// Returns the total and the longest time of the selected holds between two times, in microseconds.
    #[must_use]
    pub fn within(&self, begin_us: u64, end_us: u64, count: impl Fn(&Hold) -> bool) -> (u64, u64) {
        let lasted = |hold: &Hold| {
            let until = hold.until_us.unwrap_or(end_us).min(end_us);
            until.saturating_sub(hold.from_us.max(begin_us))
        };
        let (mut sum, mut longest) = (0, 0);
        for hold in self.0.iter().filter(|hold| count(hold)) {
            sum += lasted(hold);
            longest = longest.max(lasted(hold));
        }
        (sum, longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w7_holds_are_measured_one_by_one() {
        let mut holds = Holds::default();
        for (holder, at) in [(OURS, 100), (OURS, 150), ("", 300), ("ccm", 400), (OURS, 500)] {
            holds.record(holder, at);
        }
        assert_eq!(holds.all().len(), 3);
        assert_eq!(holds.within(200, 1_000, Hold::is_ours), (600, 500));
        assert_eq!(holds.within(0, 1_000, |hold| !hold.is_ours()), (100, 100));
    }
}
