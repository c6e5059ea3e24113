//! Whether what was found in the files of a certificate and its key takes the place of what clients are shown (H2).
//!
//! The shell reads the files, makes the digest of what is in them, and says whether it can be used.

/// What was found, as a digest: equal means that nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of what has this digest.
    #[must_use]
    pub const fn of_digest(digest: [u8; 32]) -> Fingerprint {
        Fingerprint(digest)
    }
}

/// What a look at the files has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found<Pair, Fault> {
    /// Its digest.
    pub fingerprint: Fingerprint,
    /// What can be shown, or why nothing of it can.
    pub pair: Result<Pair, Fault>,
}

/// What becomes of what was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision<Pair, Fault> {
    /// Clients are shown this from now on.
    Show(Pair),
    /// What is shown stays, and operators are told why.
    Tell(Fault),
    /// What is shown stays, and there is nothing to tell.
    Stay,
}

/// What is shown, and what was told of since.
#[derive(Debug)]
pub struct Renewal {
    shown: Fingerprint,
    /// What cannot be used and was found last.
    told: Option<Fingerprint>,
}

impl Renewal {
    /// A renewal while this is shown.
    #[must_use]
    pub fn new(shown: Fingerprint) -> Renewal {
        Renewal { shown, told: None }
    }

    /// Decides about what was found. What cannot be used is told of once, and again after something else was found.
    pub fn step<Pair, Fault>(&mut self, found: Found<Pair, Fault>) -> Decision<Pair, Fault> {
        let Found { fingerprint, pair } = found;
        if fingerprint == self.shown {
            self.told = None;
            return Decision::Stay;
        }
        match pair {
            Ok(pair) => {
                *self = Renewal::new(fingerprint);
                Decision::Show(pair)
            }
            Err(_) if self.told == Some(fingerprint) => Decision::Stay,
            Err(fault) => {
                self.told = Some(fingerprint);
                Decision::Tell(fault)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is in the files, by its number; it says itself whether it can be used.
    fn found(content: u8, usable: bool) -> Found<u8, u8> {
        let fingerprint = Fingerprint::of_digest([content; 32]);
        Found { fingerprint, pair: if usable { Ok(content) } else { Err(content) } }
    }

    #[test]
    fn h2_what_has_changed_is_shown_once_it_can_be_used() {
        let mut renewal = Renewal::new(found(1, true).fingerprint);
        assert_eq!(renewal.step(found(1, true)), Decision::Stay);
        assert_eq!(renewal.step(found(2, true)), Decision::Show(2));
        assert_eq!(renewal.step(found(2, true)), Decision::Stay);
        assert_eq!(renewal.step(found(1, true)), Decision::Show(1), "an older certificate is followed");
    }

    #[test]
    fn h2_what_cannot_be_used_is_told_of_once_until_something_else_is_found() {
        let mut renewal = Renewal::new(found(1, true).fingerprint);
        assert_eq!(renewal.step(found(8, false)), Decision::Tell(8));
        assert_eq!(renewal.step(found(8, false)), Decision::Stay);
        assert_eq!(renewal.step(found(9, false)), Decision::Tell(9));
        assert_eq!(renewal.step(found(8, false)), Decision::Tell(8));
        assert_eq!(renewal.step(found(1, true)), Decision::Stay, "it was never replaced");
        assert_eq!(renewal.step(found(8, false)), Decision::Tell(8));
        assert_eq!(renewal.step(found(2, true)), Decision::Show(2));
        assert_eq!(renewal.step(found(8, false)), Decision::Tell(8));
    }

    proptest! {
        #[test]
        fn h2_the_last_usable_pair_is_shown_and_each_unusable_one_told_once(
            looks in prop::collection::vec(0_u8..8, 0..100),
        ) {
            // What is found is one of few, so that it returns often.
            let is_usable = |content: u8| content < 4;
            let mut renewal = Renewal::new(found(0, true).fingerprint);
            let (mut shown, mut last) = (0, 0);
            for content in looks {
                let decision = renewal.step(found(content, is_usable(content)));
                match decision {
                    Decision::Show(pair) => {
                        prop_assert!(is_usable(pair) && pair == content && pair != shown);
                        shown = pair;
                    }
                    Decision::Tell(fault) => {
                        prop_assert!(!is_usable(fault) && fault == content && fault != last);
                    }
                    Decision::Stay => {
                        prop_assert!(content == shown || content == last, "{} is passed over", content);
                    }
                }
                if is_usable(content) {
                    prop_assert_eq!(shown, content, "the last that can be used is shown");
                }
                last = content;
            }
        }
    }
}
