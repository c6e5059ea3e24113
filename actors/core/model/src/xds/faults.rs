//! The faults of a received resource, as one text for its control plane (X2).

use std::fmt;

/// Returns a text of a control plane for a message: quoted, escaped and shortened.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 120;
    let mut rest = text.chars();
    let head: String = rest.by_ref().take(SHOWN).collect();
    let more = if rest.next().is_some() { "…" } else { "" };
    format!("{head:?}{more}")
}

/// The faults of a resource, by field. Only the first few are reported, because one mistake of a control plane may
/// occur in a thousand endpoints.
#[derive(Debug, Default)]
pub(super) struct Faults {
    listed: Vec<String>,
    omitted: usize,
}

impl Faults {
    /// The maximum number of reported faults.
    const MAX_LISTED: usize = 5;

    /// Adds a fault of the field with this path.
    pub(super) fn add(&mut self, path: impl fmt::Display, fault: impl fmt::Display) {
        if self.listed.len() < Faults::MAX_LISTED {
            self.listed.push(format!("{path}: {fault}"));
        } else {
            self.omitted += 1;
        }
    }

    /// Returns the value if there are no faults, else the faults.
    pub(super) fn end<T>(self, value: T) -> Result<T, String> {
        let Faults { listed, omitted } = self;
        match (listed.is_empty(), omitted) {
            (true, _) => Ok(value),
            (false, 0) => Err(listed.join("; ")),
            (false, _) => Err(format!("{}; and {omitted} more", listed.join("; "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_the_control_plane_is_quoted_escaped_and_cut() {
        assert_eq!(quoted("a\"b\n"), "\"a\\\"b\\n\"");
        assert_eq!(quoted(&"ü".repeat(120)), format!("\"{}\"", "ü".repeat(120)));
        assert_eq!(quoted(&"ü".repeat(121)), format!("\"{}\"…", "ü".repeat(120)));
    }

    #[test]
    fn the_first_faults_are_listed_and_the_others_counted() {
        let of = |count: usize| {
            let mut faults = Faults::default();
            (0..count).for_each(|n| faults.add(format_args!("endpoints[{n}]"), "is wrong"));
            faults.end(())
        };
        assert_eq!(of(0), Ok(()));
        assert_eq!(of(2).expect_err("two"), "endpoints[0]: is wrong; endpoints[1]: is wrong");
        let many = of(1_000).expect_err("many");
        assert!(many.ends_with("endpoints[4]: is wrong; and 995 more"), "{many}");
    }
}
