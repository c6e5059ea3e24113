//! The remaining quota of calls: `x-ms-ratelimit-remaining-*` of an answer (W9). The writer decides what follows from
//! it.

use azure_core::http::Method;
use azure_core::http::headers::Headers;
use model::sample::GateClass;

/// Prefix of all headers of this kind.
const REMAINING: &str = "x-ms-ratelimit-remaining-";
/// Header that lists groups of operations; it belongs to the class of the request.
const RESOURCE: &str = "resource";
/// Prefixes of the other headers.
const SCOPES: [&str; 2] = ["subscription-", "tenant-"];

/// The smallest remaining quota in an answer, by class; `None` if the answer has no such header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Headroom {
    /// Of reads.
    pub reads: Option<u32>,
    /// Of writes.
    pub writes: Option<u32>,
}

impl Headroom {
    /// Returns the known quotas, class by class.
    pub fn by_class(self) -> impl Iterator<Item = (GateClass, u32)> {
        let all = [(GateClass::Reads, self.reads), (GateClass::Writes, self.writes)];
        all.into_iter().filter_map(|(class, left)| Some((class, left?)))
    }

    /// Reads the headers of an answer; ignores values that are not numbers.
    pub(crate) fn read(method: Method, headers: &Headers) -> Headroom {
        let request_class =
            if matches!(method, Method::Get | Method::Head) { GateClass::Reads } else { GateClass::Writes };
        let mut headroom = Headroom::default();
        for (name, value) in headers.iter() {
            let name = name.as_str().to_ascii_lowercase();
            let Some(what) = name.strip_prefix(REMAINING) else { continue };
            if what == RESOURCE {
                let groups = value.as_str().split(',').filter_map(|group| number(group.rsplit_once(';')?.1));
                groups.for_each(|left| headroom.record_class(request_class, left));
            } else if let (Some(class), Some(left)) = (class(what, request_class), number(value.as_str())) {
                headroom.record_class(class, left);
            }
        }
        headroom
    }

    fn record_class(&mut self, class: GateClass, left: u32) {
        let known = match class {
            GateClass::Reads => &mut self.reads,
            GateClass::Writes => &mut self.writes,
        };
        *known = Some(known.map_or(left, |known| known.min(left)));
    }
}

/// Returns the class of a header, by the last word of its name; deletes are not used.
fn class(what: &str, request_class: GateClass) -> Option<GateClass> {
    if !SCOPES.iter().any(|scope| what.starts_with(scope)) {
        return None;
    }
    match what.rsplit('-').next() {
        Some("reads" | "read") => Some(GateClass::Reads),
        Some("writes") => Some(GateClass::Writes),
        Some("requests") => Some(request_class),
        Some(_) | None => None,
    }
}

/// Parses a count; a fraction or a negative number is not one.
fn number(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: Method, headers: &[(&str, &str)]) -> (Option<u32>, Option<u32>) {
        let mut map = Headers::new();
        for (name, value) in headers {
            map.insert(name.to_ascii_lowercase(), (*value).to_owned());
        }
        let Headroom { reads, writes } = Headroom::read(method, &map);
        (reads, writes)
    }

    #[test]
    fn w9_the_lowest_remaining_quota_counts_for_its_class() {
        let get = |headers: &[(&str, &str)]| read(Method::Get, headers);
        assert_eq!(get(&[]), (None, None));
        assert_eq!(get(&[("x-ms-ratelimit-remaining-subscription-reads", "11999")]), (Some(11_999), None));
        let both = [
            ("x-ms-ratelimit-remaining-subscription-writes", "199"),
            ("x-ms-ratelimit-remaining-subscription-global-writes", "2999"),
            ("x-ms-ratelimit-remaining-tenant-reads", "42"),
            ("x-ms-ratelimit-remaining-subscription-resource-entities-read", "77"),
        ];
        assert_eq!(read(Method::Put, &both), (Some(42), Some(199)));
        assert_eq!(get(&[("x-ms-ratelimit-remaining-subscription-deletes", "1")]), (None, None));
        let requests = [("x-ms-ratelimit-remaining-subscription-resource-requests", "5")];
        assert_eq!((get(&requests), read(Method::Put, &requests)), ((Some(5), None), (None, Some(5))));
    }

    #[test]
    fn w9_operation_groups_belong_to_the_class_of_the_request() {
        let list = [("x-ms-ratelimit-remaining-resource", "A/B;41,C/D;5, E/F ; 9")];
        assert_eq!((read(Method::Get, &list), read(Method::Put, &list)), ((Some(5), None), (None, Some(5))));
    }

    #[test]
    fn w9_junk_is_ignored() {
        for junk in ["", "-1", "many", "1.5", "99999999999", ";", "A/B", "A/B;", "A/B;x,,;", "\u{fffd}"] {
            let headers = [
                ("x-ms-ratelimit-remaining-subscription-reads", junk),
                ("x-ms-ratelimit-remaining-resource", junk),
            ];
            assert_eq!(read(Method::Get, &headers), (None, None), "{junk:?}");
        }
        let foreign = [("x-ms-ratelimit-remaining-moon-reads", "3"), ("x-ratelimit-remaining-reads", "3")];
        assert_eq!(read(Method::Get, &foreign), (None, None));
    }
}
