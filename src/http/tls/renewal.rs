//! Whether what was found in the files of a certificate and its key takes the place of what is shown to clients.

use aws_lc_rs::digest::{Context, SHA256};

/// What was found, as a digest: equal means that nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The digest of these parts, each with its length before it.
    pub(super) fn of(parts: [&[u8]; 2]) -> Fingerprint {
        let mut context = Context::new(&SHA256);
        for part in parts {
            context.update(&part.len().to_be_bytes());
            context.update(part);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        Fingerprint(digest)
    }
}

/// What becomes of what was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    /// It is what is shown.
    Same,
    /// It is shown from now on.
    Replace,
    /// It cannot be used, which nobody was told of; what is shown stays.
    Tell,
    /// It cannot be used, as was told before; what is shown stays.
    Told,
}

/// What is shown, and what was told of since.
#[derive(Debug)]
pub(super) struct Renewal {
    shown: Fingerprint,
    /// What cannot be used and was found last.
    told: Option<Fingerprint>,
}

impl Renewal {
    /// That this is shown.
    pub(super) fn new(shown: Fingerprint) -> Renewal {
        Renewal { shown, told: None }
    }

    /// Decides about what was found. What cannot be used is told of once, and again after something else was found.
    pub(super) fn step(&mut self, found: Fingerprint, usable: bool) -> Decision {
        if found == self.shown {
            self.told = None;
            Decision::Same
        } else if usable {
            *self = Renewal::new(found);
            Decision::Replace
        } else if self.told == Some(found) {
            Decision::Told
        } else {
            self.told = Some(found);
            Decision::Tell
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(certificate: &str) -> Fingerprint {
        Fingerprint::of([certificate.as_bytes(), b"a key"])
    }

    #[test]
    fn h2_what_has_changed_is_shown_once_it_can_be_used() {
        let mut renewal = Renewal::new(found("first"));
        assert_eq!(renewal.step(found("first"), true), Decision::Same);
        assert_eq!(renewal.step(found("second"), true), Decision::Replace);
        assert_eq!(renewal.step(found("second"), true), Decision::Same);
        assert_eq!(renewal.step(found("first"), true), Decision::Replace, "whoever goes back is followed");
    }

    #[test]
    fn h2_what_cannot_be_used_is_told_of_once_until_something_else_is_found() {
        let mut renewal = Renewal::new(found("first"));
        assert_eq!(renewal.step(found("broken"), false), Decision::Tell);
        assert_eq!(renewal.step(found("broken"), false), Decision::Told);
        assert_eq!(renewal.step(found("gone"), false), Decision::Tell);
        assert_eq!(renewal.step(found("broken"), false), Decision::Tell);
        assert_eq!(renewal.step(found("first"), true), Decision::Same, "it was never replaced");
        assert_eq!(renewal.step(found("broken"), false), Decision::Tell);
        assert_eq!(renewal.step(found("second"), true), Decision::Replace);
        assert_eq!(renewal.step(found("broken"), false), Decision::Tell);
    }

    #[test]
    fn h2_each_file_counts_and_none_runs_into_the_other() {
        assert_eq!(Fingerprint::of([b"ab", b"c"]), Fingerprint::of([b"ab", b"c"]));
        let others: [[&[u8]; 2]; 4] = [[b"ab", b"d"], [b"a", b"bc"], [b"", b"abc"], [b"c", b"ab"]];
        for other in others {
            assert_ne!(Fingerprint::of([b"ab", b"c"]), Fingerprint::of(other));
        }
    }
}
