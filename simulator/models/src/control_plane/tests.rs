//! Pending responses of a stream, by its requests and earlier responses.

use super::*;

type Served = Catalogue<&'static str, &'static str>;
type ResponseContents = Option<(String, Vec<&'static str>, Vec<&'static str>)>;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn pending(stream: &mut Subscriptions, kind: Kind, served: &Served) -> ResponseContents {
    let PendingResponse { version, resources, errors } = stream.pending_response(kind, served)?;
    let resources = resources.into_iter().map(|(_, resource)| resource).collect();
    Some((version, resources, errors.into_iter().map(|(_, error)| error).collect()))
}

#[test]
fn x2_a_stream_gets_new_endpoints_and_all_clusters() {
    let mut served = Served::default();
    for kind in Kind::ALL {
        served.set(kind, vec![("a".to_owned(), "a1"), ("b".to_owned(), "b1")]);
        let mut stream = Subscriptions::default();
        stream.on_request(kind, ("", ""), &names(&["a", "b", "absent"]), &served, false);
        assert_eq!(pending(&mut stream, kind, &served), Some(("1".into(), vec!["a1", "b1"], vec![])));
        assert_eq!(pending(&mut stream, kind, &served), None, "all of it is known");
        served.set(kind, vec![("b".to_owned(), "b2")]);
        let new = match kind {
            Kind::Clusters => vec!["a1", "b2"],
            Kind::Endpoints => vec!["b2"],
        };
        assert_eq!(pending(&mut stream, kind, &served), Some(("2".into(), new, vec![])));
        served.remove(kind, "a");
        let deleted = match kind {
            Kind::Clusters => Some(("3".into(), vec!["b2"], vec![])),
            // The protocol cannot report to clients that endpoints are gone.
            Kind::Endpoints => None,
        };
        assert_eq!(pending(&mut stream, kind, &served), deleted);
    }
}

#[test]
fn x2_an_error_hides_a_resource_until_forgotten() {
    let mut served = Served::default();
    served.set(Kind::Endpoints, vec![("a".to_owned(), "a1")]);
    let mut stream = Subscriptions::default();
    stream.on_request(Kind::Endpoints, ("", ""), &names(&["a"]), &served, false);
    served.fail(Kind::Endpoints, "a".to_owned(), "broken");
    assert_eq!(pending(&mut stream, Kind::Endpoints, &served), Some(("2".into(), vec![], vec!["broken"])));
    served.forget_error(Kind::Endpoints, "a");
    assert_eq!(pending(&mut stream, Kind::Endpoints, &served), Some(("3".into(), vec!["a1"], vec![])));
}

#[test]
fn x2_a_request_that_answers_an_older_response_is_ignored() {
    let mut served = Served::default();
    served.set(Kind::Endpoints, vec![("a".to_owned(), "a1"), ("b".to_owned(), "b1")]);
    let mut stream = Subscriptions::default();
    stream.on_request(Kind::Endpoints, ("", ""), &names(&["a"]), &served, false);
    stream.on_sent(Kind::Endpoints, "2");
    assert!(stream.is_last(Kind::Endpoints, "2") && stream.is_stale(Some(Kind::Endpoints), "1"));
    assert!(pending(&mut stream, Kind::Endpoints, &served).is_some());
    stream.on_request(Kind::Endpoints, ("", "1"), &names(&["a", "b"]), &served, false);
    assert_eq!(pending(&mut stream, Kind::Endpoints, &served), None, "it asked in answer to an older one");
    stream.on_request(Kind::Endpoints, ("1", "2"), &names(&["a", "b"]), &served, false);
    assert_eq!(pending(&mut stream, Kind::Endpoints, &served), Some(("1".into(), vec!["b1"], vec![])));
}

#[test]
fn x2_a_claimed_version_is_believed_only_if_trusted() {
    let mut served = Served::default();
    served.set(Kind::Endpoints, vec![("a".to_owned(), "a1")]);
    for (version, trusts, is_sent) in [("1", true, false), ("1", false, true), ("7", true, true)] {
        let mut stream = Subscriptions::default();
        stream.on_request(Kind::Endpoints, (version, ""), &names(&["a"]), &served, trusts);
        assert_eq!(pending(&mut stream, Kind::Endpoints, &served).is_some(), is_sent, "{version} {trusts}");
    }
    served.set(Kind::Endpoints, vec![("a".to_owned(), "a2")]);
    served.forget_versions();
    assert_eq!(served.version(Kind::Endpoints), "1", "versions begin again with a restart");
}
