//! Decides whether a certificate and its key, as found in their files, replace the pair that the server presents
//! (H2).
//!
//! The shell reads the files, computes the digest of their contents, and reports whether the pair is usable.

/// Digest of the contents of the files; equal digests mean that nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Wraps a digest.
    #[must_use]
    pub const fn of_digest(digest: [u8; 32]) -> Fingerprint {
        Fingerprint(digest)
    }
}

/// Result of one read of the files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateRead<Pair, Fault> {
    /// Digest of the contents.
    pub fingerprint: Fingerprint,
    /// The usable pair, or why the files contain none.
    pub pair: Result<Pair, Fault>,
}

/// Decision about a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision<Pair, Fault> {
    /// Present this pair to clients from now on.
    Present(Pair),
    /// Keep presenting the current pair, and report this fault to operators.
    Report(Fault),
    /// Keep presenting the current pair; there is nothing to report.
    Keep,
}

/// State of the pair that the server presents, and of the last reported fault.
#[derive(Debug)]
pub struct Renewal {
    shown: Fingerprint,
    /// Digest of the last unusable contents; `None` if the last contents were usable.
    reported: Option<Fingerprint>,
}

impl Renewal {
    /// Creates the state for a server that presents this pair.
    #[must_use]
    pub fn new(shown: Fingerprint) -> Renewal {
        Renewal { shown, reported: None }
    }

    /// Evaluates one read. An unusable pair is reported once, and again only after other contents were found.
    pub fn step<Pair, Fault>(&mut self, found: CertificateRead<Pair, Fault>) -> Decision<Pair, Fault> {
        let CertificateRead { fingerprint, pair } = found;
        if fingerprint == self.shown {
            self.reported = None;
            return Decision::Keep;
        }
        match pair {
            Ok(pair) => {
                *self = Renewal::new(fingerprint);
                Decision::Present(pair)
            }
            Err(_) if self.reported == Some(fingerprint) => Decision::Keep,
            Err(fault) => {
                self.reported = Some(fingerprint);
                Decision::Report(fault)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a read of contents with this number; `usable` says whether they form a pair.
    fn found(content: u8, usable: bool) -> CertificateRead<u8, u8> {
        let fingerprint = Fingerprint::of_digest([content; 32]);
        CertificateRead { fingerprint, pair: if usable { Ok(content) } else { Err(content) } }
    }

    #[test]
    fn h2_a_changed_certificate_is_output_once_it_is_usable() {
        let mut renewal = Renewal::new(found(1, true).fingerprint);
        assert_eq!(renewal.step(found(1, true)), Decision::Keep);
        assert_eq!(renewal.step(found(2, true)), Decision::Present(2));
        assert_eq!(renewal.step(found(2, true)), Decision::Keep);
        assert_eq!(renewal.step(found(1, true)), Decision::Present(1), "an older certificate is followed");
    }

    #[test]
    fn h2_an_unusable_certificate_is_reported_once() {
        let mut renewal = Renewal::new(found(1, true).fingerprint);
        assert_eq!(renewal.step(found(8, false)), Decision::Report(8));
        assert_eq!(renewal.step(found(8, false)), Decision::Keep);
        assert_eq!(renewal.step(found(9, false)), Decision::Report(9));
        assert_eq!(renewal.step(found(8, false)), Decision::Report(8));
        assert_eq!(renewal.step(found(1, true)), Decision::Keep, "it was never replaced");
        assert_eq!(renewal.step(found(8, false)), Decision::Report(8));
        assert_eq!(renewal.step(found(2, true)), Decision::Present(2));
        assert_eq!(renewal.step(found(8, false)), Decision::Report(8));
    }

    proptest! {
        #[test]
        fn h2_the_last_usable_pair_stays_in_use(
            looks in prop::collection::vec(0_u8..8, 0..100),
        ) {
            // Few distinct contents, so that earlier ones recur often.
            let is_usable = |content: u8| content < 4;
            let mut renewal = Renewal::new(found(0, true).fingerprint);
            let (mut shown, mut last) = (0, 0);
            for content in looks {
                let decision = renewal.step(found(content, is_usable(content)));
                match decision {
                    Decision::Present(pair) => {
                        prop_assert!(is_usable(pair) && pair == content && pair != shown);
                        shown = pair;
                    }
                    Decision::Report(fault) => {
                        prop_assert!(!is_usable(fault) && fault == content && fault != last);
                    }
                    Decision::Keep => {
                        prop_assert!(content == shown || content == last, "{} is skipped", content);
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
