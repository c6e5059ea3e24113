//! Objects, lines and pages as the API server writes them, including recordings and invalid input.

use super::*;
use model::ids::{InstanceId, NodeUid};
use model::object::{NodeMarks, NodeObject, NotBefore, PreemptionObject};
use serde_json::{Value, json};
use simulator::models::kube::build;
use std::io::Write as _;

fn wall() -> jiff::Timestamp {
    "2026-01-02T03:04:10Z".parse().expect("a time")
}

fn object(kind: Kind, text: &str) -> Object {
    let read = line(kind, format!(r#"{{"type":"ADDED","object":{text}}}"#).as_bytes(), wall());
    let Line::Object(object) = read else { panic!("not an object: {read:?}") };
    object
}

#[test]
fn d1_a_service_is_read_with_policy_families_pause_and_labels() {
    let text = r#"{"metadata":{"name":"web","namespace":"shop","uid":"u-1","resourceVersion":"7",
        "labels":{"app":"web"},"annotations":{"azure-backend-pool-controller.io/pause":"true"}},
        "spec":{"type":"LoadBalancer","externalTrafficPolicy":"Local","ipFamilies":["IPv4","IPv6"]},
        "status":{"loadBalancer":{}}}"#;
    let Object::Service(service) = object(Kind::Services, text) else { panic!("not a service") };
    assert_eq!(service.key, ServiceKey::new("shop", "web"));
    assert_eq!(service.service_type, ServiceType::LoadBalancer);
    assert!(service.local && service.paused && !service.deleting);
    assert_eq!(service.families, [Family::V4, Family::V6]);
    assert_eq!(service.labels.get("app").map(|v| &**v), Some("web"));
}

#[test]
fn d3_a_service_is_internal_if_the_annotation_is_true() {
    for (value, expected) in [("true", true), ("false", false), ("True", false), ("", false)] {
        let text = format!(
            r#"{{"metadata":{{"name":"a","namespace":"b","uid":"u",
            "annotations":{{"service.beta.kubernetes.io/azure-load-balancer-internal":"{value}"}}}},"spec":{{}}}}"#
        );
        let Object::Service(service) = object(Kind::Services, &text) else { panic!("not a service") };
        assert_eq!(service.internal, expected, "{value:?}");
    }
}

#[test]
fn d3_only_ports_and_ingress_change_the_exposure() {
    let with = |ports: &str, ingress: &str, app: &str| {
        let text = format!(
            r#"{{"metadata":{{"name":"a","namespace":"b","uid":"u","labels":{{"app":"{app}"}}}},
            "spec":{{"ports":{ports}}},"status":{{"loadBalancer":{ingress}}}}}"#
        );
        let Object::Service(service) = object(Kind::Services, &text) else { panic!("not a service") };
        service.exposure
    };
    let base = with(r#"[{"port":80}]"#, "{}", "x");
    assert_eq!(base, with(r#"[{"port":80}]"#, "{}", "y"));
    assert_ne!(base, with(r#"[{"port":81}]"#, "{}", "x"));
    assert_ne!(base, with(r#"[{"port":80}]"#, r#"{"ingress":[{"ip":"1.2.3.4"}]}"#, "x"));
}

#[test]
fn d4_absent_conditions_have_the_apis_defaults() {
    let text = r#"{"metadata":{"name":"web-1","namespace":"shop","uid":"s","resourceVersion":"9",
        "labels":{"kubernetes.io/service-name":"web"},
        "annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"2026-01-02T03:04:08Z"}},
        "endpoints":[
          {"addresses":["10.1.0.1"],"nodeName":"n1"},
          {"addresses":["10.1.0.2"],"nodeName":"n2","conditions":{"ready":false,"terminating":true}},
          {"addresses":["10.1.0.3"]}]}"#;
    let Object::Slice(slice) = object(Kind::EndpointSlices, text) else { panic!("not a slice") };
    assert_eq!(slice.service, Some(ServiceKey::new("shop", "web")));
    assert_eq!(slice.trigger_age, Some(Duration::from_secs(2)));
    let found: Vec<_> =
        slice.endpoints.iter().map(|e| (e.node.is_some(), e.ready, e.serving, e.terminating)).collect();
    assert_eq!(found, [(true, true, true, false), (true, false, false, true), (false, true, true, false)]);
}

#[test]
fn d4_the_address_type_of_a_slice_is_read() {
    let read = |address_type: Value| {
        let mut slice = build::endpoint_slice("shop", "web", 0, &[], build::Family::V4);
        slice["addressType"] = address_type;
        let text = json!({ "type": "MODIFIED", "object": slice }).to_string();
        line(Kind::EndpointSlices, text.as_bytes(), wall())
    };
    for (address_type, expected) in [
        (json!("IPv4"), AddressType::Ip(Family::V4)),
        (json!("IPv6"), AddressType::Ip(Family::V6)),
        (json!("FQDN"), AddressType::Fqdn),
        (json!(""), AddressType::Unset),
        (json!(null), AddressType::Unset),
    ] {
        let Line::Object(Object::Slice(slice)) = read(address_type) else { panic!("not a slice") };
        assert_eq!(slice.address_type, expected);
    }
    let text = r#"{"metadata":{"name":"web-1","namespace":"shop","uid":"s"}}"#;
    let Object::Slice(slice) = object(Kind::EndpointSlices, text) else { panic!("not a slice") };
    assert_eq!(slice.address_type, AddressType::Unset);
    let read = read(json!("IPv5"));
    let Line::Undecodable { key, error, .. } = &read else { panic!("{read:?}") };
    assert!(key.is_some() && error.contains("addressType"), "{error}");
}

#[test]
fn a_slice_without_endpoints_or_owner_is_decoded() {
    let text = r#"{"metadata":{"name":"x","namespace":"y","uid":"s"},"endpoints":null}"#;
    let Object::Slice(slice) = object(Kind::EndpointSlices, text) else { panic!("not a slice") };
    assert_eq!((slice.service.clone(), slice.endpoints.len()), (None, 0));
}

#[test]
fn d5_labels_and_taints_that_exclude_a_node_are_decoded() {
    let node = |labels: &str, taints: &str, ready: &str| {
        let text = format!(
            r#"{{"metadata":{{"name":"n","uid":"u","labels":{labels}}},"spec":{{"taints":{taints}}},
            "status":{{"addresses":[{{"type":"Hostname","address":"n"}},{{"type":"InternalIP","address":"10.0.0.4"}},
            {{"type":"InternalIP","address":"fd00::4"}},{{"type":"InternalIP","address":"none"}}],
            "conditions":[{{"type":"Ready","status":"{ready}"}}]}}}}"#
        );
        let Object::Node(node) = object(Kind::Nodes, &text) else { panic!("not a node") };
        node
    };
    let none = NodeMarks::default();
    let plain = node("{}", "null", "False");
    assert_eq!((plain.marks, plain.ready, plain.internal_ips.len()), (none, false, 2));
    let (excluded, unmanaged) = (NodeMarks { excluded: true, ..none }, NodeMarks { unmanaged: true, ..none });
    let control_plane = NodeMarks { control_plane: true, ..none };
    for (labels, marks) in [
        (r#"{"node.kubernetes.io/exclude-from-external-load-balancers":""}"#, excluded),
        (r#"{"kubernetes.azure.com/managed":"False"}"#, unmanaged),
        (r#"{"kubernetes.azure.com/managed":"true"}"#, none),
        (r#"{"node-role.kubernetes.io/control-plane":""}"#, control_plane),
        (r#"{"node-role.kubernetes.io/master":""}"#, control_plane),
    ] {
        assert_eq!(node(labels, "[]", "True").marks, marks, "{labels}");
    }
    let doomed = r#"[{"key":"ToBeDeletedByClusterAutoscaler","value":"1","effect":"NoSchedule"}]"#;
    let doomed = node("{}", doomed, "True");
    let [taint] = &doomed.taints[..] else { panic!("one taint") };
    let fields = [&*taint.key, &*taint.value, &*taint.effect];
    assert_eq!(fields, ["ToBeDeletedByClusterAutoscaler", "1", "NoSchedule"]);
}

/// Returns the time of arrival minus these seconds.
fn ago(seconds: i64) -> String {
    (wall() - jiff::SignedDuration::from_secs(seconds)).to_string()
}

fn node_of(object: &Value) -> Arc<NodeObject> {
    let Object::Node(node) = self::object(Kind::Nodes, &object.to_string()) else { panic!("not a node") };
    node
}

fn seconds(duration: Option<Duration>) -> Option<u64> {
    duration.map(|duration| duration.as_secs())
}

#[test]
fn n2_the_virtual_machine_and_the_age_of_a_node_are_read() {
    let mut object = build::node("n1", &["10.0.0.4"], &[], true, &[]);
    object["metadata"]["creationTimestamp"] = "1970-01-01T00:00:01Z".into();
    let node = node_of(&object);
    assert_eq!(node.instance, object["spec"]["providerID"].as_str().and_then(InstanceId::of_provider_id));
    assert!(node.instance.is_some());
    assert_eq!((node.created, node.preempt.as_ref()), (Some(Wall::from_micros(1_000_000)), None));
    object["metadata"]["creationTimestamp"] = "yesterday".into();
    object["spec"]["providerID"] = Value::Null;
    let node = node_of(&object);
    assert_eq!((node.created, node.instance.as_ref()), (None, None), "no other field is lost");
}

#[test]
fn n1_an_eviction_condition_has_its_time_and_deadline() {
    const NOTICE: &str = "Preempt Scheduled: Fri, 02 Jan 2026 03:04:30 GMT. DurationInSeconds: -1.  For more \
                          information, see https://aka.ms/aks/scheduledevents.";
    let with = |kind: &str, message: &str, since: &str| {
        let condition = build::condition(kind, "VMEventScheduled", message, since);
        build::with_condition(build::node("n1", &["10.0.0.4"], &[], true, &[]), condition)
    };
    let node = node_of(&with("VMEventScheduled", NOTICE, &ago(5)));
    assert!(node.ready);
    let preempt = node.preempt.as_ref().expect("a notice");
    assert_eq!(
        (seconds(preempt.age), preempt.not_before),
        (Some(5), Some(NotBefore::In(Duration::from_secs(20))))
    );
    assert_eq!(preempt.at, Some(wall_of(ago(5).parse().expect("a time"))));
    assert!(preempt.message.starts_with("Preempt Scheduled: Fri, 02 Jan 2026 03:04:30 GMT."), "{preempt:?}");

    let late = NOTICE.replace("03:04:30", "03:04:05");
    let node = node_of(&with("PreemptionScheduled", &late, "never"));
    let preempt = node.preempt.as_ref().expect("a notice");
    assert_eq!(
        (preempt.at, preempt.age, preempt.not_before),
        (None, None, Some(NotBefore::Ago(Duration::from_secs(5))))
    );
    for seconds_ahead in [59, 61, 3_600] {
        let ahead = node_of(&with("VMEventScheduled", "Preempt Started", &ago(-seconds_ahead)));
        let ahead = ahead.preempt.as_ref().expect("a notice");
        assert_eq!((ahead.age, ahead.not_before), (Some(Duration::ZERO), None), "clocks differ");
    }

    let two = build::condition("PreemptionScheduled", "SpotEvictionIncoming", "", &ago(1));
    let node = node_of(&build::with_condition(with("VMEventScheduled", NOTICE, &ago(9)), two.clone()));
    assert_eq!(node.preempt.as_ref().and_then(|preempt| preempt.age), Some(Duration::from_secs(9)));
    let node = node_of(&build::with_condition(with("VMEventScheduled", "", &ago(9)), two));
    assert_eq!(node.preempt.as_ref().and_then(|preempt| preempt.age), Some(Duration::from_secs(1)));

    for (kind, message, status) in [
        ("VMEventScheduled", NOTICE, "False"),
        ("VMEventScheduled", NOTICE, "Unknown"),
        ("VMEventScheduled", "Freeze Scheduled: Fri, 02 Jan 2026 03:04:30 GMT", "True"),
        ("PreemptionScheduled", NOTICE, "False"),
    ] {
        let mut object = with(kind, message, &ago(5));
        object["status"]["conditions"][1]["status"] = status.into();
        assert_eq!(node_of(&object).preempt, None, "{kind} {message} {status}");
    }
}

fn preemption_of(event: &Value) -> Arc<PreemptionObject> {
    let Object::Preemption(event) = object(Kind::Preemptions, &event.to_string()) else { panic!("no event") };
    event
}

/// Returns an Event in the API server's format.
fn event(message: &str, times: &Value) -> Value {
    let mut event = build::node_event("n1.17a", "n1", "PreemptScheduled", message, "2026-01-02T03:04:05Z");
    event["metadata"]["uid"] = "e-1".into();
    event["metadata"]["resourceVersion"] = "77".into();
    for (field, value) in times.as_object().expect("fields") {
        event[field] = value.clone();
    }
    event
}

#[test]
fn n1_an_eviction_event_is_read_in_every_format() {
    let old = json!({ "firstTimestamp": ago(90), "lastTimestamp": ago(4) });
    let read = preemption_of(&event("Preempt Scheduled: Fri, 02 Jan 2026 03:04:30 GMT", &old));
    assert_eq!(read.key, EventKey { namespace: "default".into(), name: "n1.17a".into() });
    assert_eq!((&read.resource_version, read.node.as_str()), (&ResourceVersion("77".into()), "n1"));
    assert_eq!(read.uid, None, "the node's name is no uid");
    assert_eq!((seconds(read.age), read.not_before), (Some(4), Some(NotBefore::In(Duration::from_secs(20)))));

    let none = json!({ "firstTimestamp": null, "lastTimestamp": null });
    let unset = |more: Value| {
        let (mut all, Value::Object(more)) = (none.clone(), more) else { panic!("fields") };
        all.as_object_mut().expect("fields").extend(more);
        preemption_of(&event("Preempt Started", &all))
    };
    let single = unset(json!({ "eventTime": ago(3) }));
    assert_eq!((seconds(single.age), single.not_before), (Some(3), None));
    let series = json!({ "count": 5, "lastObservedTime": ago(2) });
    let repeated = unset(json!({ "eventTime": ago(30), "series": series }));
    assert_eq!(seconds(repeated.age), Some(2));
    assert_eq!((unset(json!({})).at, unset(json!({})).age), (None, None));

    let mut created = event("Preempt Started", &none);
    created["metadata"]["creationTimestamp"] = ago(7).into();
    assert_eq!(seconds(preemption_of(&created).age), Some(7));
    created["involvedObject"]["uid"] = "11111111-2222-4333-8444-555555555555".into();
    let uid = NodeUid::new("11111111-2222-4333-8444-555555555555");
    assert_eq!(preemption_of(&created).uid, Some(uid));
    created["involvedObject"]["uid"] = "".into();
    assert_eq!(preemption_of(&created).uid, None);
}

#[test]
fn n1_the_names_of_nodes_in_events_are_read_without_case() {
    for (name, uid) in [("N1", "N1"), ("N1", "n1"), ("n1", "N1"), ("n1", "")] {
        let mut event = event("Preempt Started", &json!({}));
        event["involvedObject"]["name"] = name.into();
        event["involvedObject"]["uid"] = uid.into();
        let read = preemption_of(&event);
        assert_eq!((read.node.as_str(), read.uid.as_ref()), ("n1", None), "{name} {uid}");
    }
}

#[test]
fn n1_an_event_that_is_no_notice_is_isolated_and_named() {
    let good = event("Preempt Started", &json!({}));
    let key = ObjectKey::Preemption(EventKey { namespace: "default".into(), name: "n1.17a".into() });
    for (pointer, value) in [
        ("/involvedObject/kind", json!("Pod")),
        ("/involvedObject/name", json!("")),
        ("/reason", json!("RebootScheduled")),
        ("/message", json!(7)),
    ] {
        let mut wrong = good.clone();
        *wrong.pointer_mut(pointer).expect("it is set") = value;
        let text = json!({ "type": "MODIFIED", "object": wrong }).to_string();
        let read = line(Kind::Preemptions, text.as_bytes(), wall());
        let Line::Undecodable { key: named, resource_version, .. } = &read else {
            panic!("{pointer}: {read:?}")
        };
        assert_eq!((named, resource_version), (&Some(key.clone()), &Some(ResourceVersion("77".into()))));
    }
    let text = json!({ "type": "DELETED", "object": good }).to_string();
    let gone = line(Kind::Preemptions, text.as_bytes(), wall());
    assert!(matches!(&gone, Line::Deleted { key: named, .. } if *named == key), "{gone:?}");
}

#[test]
fn an_undecodable_object_is_isolated_and_named() {
    let text = br#"{"type":"MODIFIED","object":{"metadata":{"name":"web","namespace":"shop","uid":"u",
        "resourceVersion":"8"},"spec":{"type":7}}}"#;
    let Line::Undecodable { key, owner, resource_version, error } = line(Kind::Services, text, wall()) else {
        panic!("decoded")
    };
    assert_eq!(key, Some(ObjectKey::Service(ServiceKey::new("shop", "web"))));
    assert_eq!((owner, resource_version), (Owner::Nobody, Some(ResourceVersion("8".into()))));
    assert!(error.contains("invalid type"), "{error}");
}

/// Returns the key, the owner and the version, which are read even from an undecodable object.
fn named(kind: Kind, metadata: &str) -> (Option<ObjectKey>, Owner, Option<String>) {
    let text =
        format!(r#"{{"type":"ADDED","object":{{"metadata":{metadata},"spec":7,"status":7,"endpoints":7}}}}"#);
    match line(kind, text.as_bytes(), wall()) {
        Line::Undecodable { key, owner, resource_version, .. } => {
            (key, owner, resource_version.map(|version| version.0.to_string()))
        }
        decoded @ (Line::Object(_) | Line::Deleted { .. } | Line::Bookmark { .. } | Line::Error(_)) => {
            panic!("decoded: {decoded:?}")
        }
    }
}

#[test]
fn d6_metadata_of_undecodable_objects_is_read_per_field() {
    let web_1 = Some(ObjectKey::Slice(SliceKey { namespace: "shop".into(), name: "web-1".into() }));
    let web = Owner::Service(ServiceKey::new("shop", "web"));
    let of = r#""kubernetes.io/service-name""#;
    let slice =
        |rest: &str| named(Kind::EndpointSlices, &format!(r#"{{"name":"web-1","namespace":"shop",{rest}}}"#));
    let version = Some("9".to_owned());
    let good =
        format!(r#""uid":"u","resourceVersion":"9","labels":{{"other":7,{of}:"web"}},"annotations":7"#);
    assert_eq!(slice(&good), (web_1.clone(), web.clone(), version));
    assert_eq!(slice(&format!(r#""resourceVersion":9,"labels":{{{of}:"web"}}"#)), (web_1.clone(), web, None));
    for labels in ["7", &format!("{{{of}:7}}"), &format!("{{{of}:null}}")] {
        assert_eq!(
            slice(&format!(r#""labels":{labels}"#)),
            (web_1.clone(), Owner::Unknown, None),
            "{labels}"
        );
    }
    let nameless =
        [r#"{"name":"web-1"}"#, r#"{"namespace":"shop"}"#, r#"{"name":7,"namespace":"shop"}"#, "7"];
    for metadata in nameless {
        assert_eq!(named(Kind::EndpointSlices, metadata).0, None, "{metadata}");
    }
    let labelled = format!(r#"{{"name":"n","namespace":"shop","labels":{{{of}:"web"}}}}"#);
    let node = Some(ObjectKey::Node(NodeName::new("n")));
    assert_eq!(named(Kind::Nodes, &labelled), (node, Owner::Nobody, None));
}

#[test]
fn d6_an_undecodable_slice_without_a_service_label_has_no_owner() {
    let of = r#""kubernetes.io/service-name""#;
    let slice = |rest: &str| {
        named(Kind::EndpointSlices, &format!(r#"{{"name":"web-1","namespace":"shop"{rest}}}"#)).1
    };
    for labels in ["null", "{}", r#"{"app":"web","other":7}"#, &format!(r#"{{{of}:""}}"#)] {
        assert_eq!(slice(&format!(r#","labels":{labels}"#)), Owner::Nobody, "{labels}");
    }
    assert_eq!(slice(""), Owner::Nobody, "an object without labels");
    let elsewhere = named(Kind::EndpointSlices, &format!(r#"{{"name":"web-1","labels":{{{of}:"web"}}}}"#)).1;
    assert_eq!(elsewhere, Owner::Unknown, "without a namespace");
}

#[test]
fn w7_class_and_ingress_of_a_service_are_read() {
    let read = |class: &str, balancer: &str| {
        let text = format!(
            r#"{{"metadata":{{"name":"a","namespace":"b","uid":"u"}},
            "spec":{{"type":"LoadBalancer"{class}}},"status":{{{balancer}}}}}"#
        );
        let Object::Service(service) = object(Kind::Services, &text) else { panic!("not a service") };
        (service.has_class, service.has_ingress)
    };
    assert_eq!(read("", r#""loadBalancer":{"ingress":[{"ip":"20.0.0.1","ipMode":"VIP"}]}"#), (false, true));
    assert_eq!(read(r#","loadBalancerClass":"example.com/lb""#, r#""loadBalancer":{}"#), (true, false));
    for nothing in [
        "",
        r#""loadBalancer":null"#,
        r#""loadBalancer":{"ingress":null}"#,
        r#""loadBalancer":{"ingress":[]}"#,
    ] {
        assert_eq!(read(r#","loadBalancerClass":null"#, nothing), (false, false), "{nothing}");
    }
}

#[test]
fn a_deletion_needs_only_the_name() {
    let text = br#"{"type":"DELETED","object":{"metadata":{"name":"web","namespace":"shop","labels":7}}}"#;
    let deleted = line(Kind::Services, text, wall());
    let Line::Deleted { key, owner: Owner::Nobody, resource_version } = deleted else {
        panic!("{deleted:?}")
    };
    assert_eq!(key, ObjectKey::Service(ServiceKey::new("shop", "web")));
    assert_eq!(resource_version, ResourceVersion::default());
}

#[test]
fn q2_a_deleted_slice_has_its_owner() {
    let meta = r#"{"name":"web-1","namespace":"shop","labels":{"kubernetes.io/service-name":"web"}}"#;
    let text = format!(r#"{{"type":"DELETED","object":{{"metadata":{meta}}}}}"#);
    let deleted = line(Kind::EndpointSlices, text.as_bytes(), wall());
    let Line::Deleted { owner, .. } = deleted else { panic!("{deleted:?}") };
    assert_eq!(owner, Owner::Service(ServiceKey::new("shop", "web")));
}

#[test]
fn one_invalid_item_of_a_list_does_not_affect_others() {
    let body = br#"{"kind":"ServiceList","metadata":{"resourceVersion":"5","continue":"tok"},"items":[
        {"metadata":{"name":"a","namespace":"n","uid":"1"}},
        {"metadata":{"name":"b","namespace":"n","uid":"2"},"spec":7},
        {"metadata":{"name":"c","namespace":"n","uid":"3"}}]}"#;
    let page = page(Kind::Services, body, wall()).expect("a list");
    let good: Vec<bool> = page.items.iter().map(|item| matches!(item, Line::Object(_))).collect();
    assert_eq!(good, [true, false, true]);
    assert_eq!(page.next.as_deref(), Some("tok"));
}

#[test]
fn d6_a_list_without_a_version_is_refused() {
    let refused = page(Kind::Nodes, br#"{"metadata":{},"items":[]}"#, wall());
    assert!(refused.expect_err("refused").contains("metadata.resourceVersion"));
}

#[test]
fn errors_and_bookmarks_of_a_real_server_are_understood() {
    let read = |text: &str| line(Kind::Nodes, text.as_bytes(), wall());
    let expired =
        r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410}}"#;
    assert!(matches!(read(expired), Line::Error(WatchFailure::Expired)));
    let end = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12",
        "annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
    assert!(matches!(read(end), Line::Bookmark { list_end: true, .. }));
    let refused = r#"{"type":"ERROR","object":{"code":400,"message":"sendInitialEvents is forbidden"}}"#;
    assert!(matches!(read(refused), Line::Error(WatchFailure::StreamingRefused(_))));
    let old_etcd = r#"{"type":"ERROR","object":{"code":500,"reason":"InternalError","message":"Internal error occurred:
        a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled"}}"#
        .replace('\n', " ");
    assert!(matches!(read(&old_etcd), Line::Error(WatchFailure::StreamingRefused(_))));
}

/// Decodes real watch events of a rollout, if the recording is present.
#[test]
fn every_recorded_watch_event_is_decoded() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../shared/data/kubernetes/endpointslice_watch_rollout_1.36.2.jsonl"
    );
    let Ok(recorded) = std::fs::read_to_string(path) else {
        let skipped = writeln!(std::io::stderr(), "skipped: no recorded watch at {path}");
        return assert!(skipped.is_ok());
    };
    let mut count = 0;
    for text in recorded.lines().filter(|text| !text.trim().is_empty()) {
        count += 1;
        let read = line(Kind::EndpointSlices, text.as_bytes(), wall());
        let good = matches!(read, Line::Object(_) | Line::Deleted { .. } | Line::Bookmark { .. });
        assert!(good, "line {count}: {read:?}");
    }
    assert!(count > 100, "only {count} events");
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        for kind in Kind::ALL {
            let decoded = line(kind, &bytes, wall());
            let isolated = matches!(decoded, Line::Undecodable { .. });
            proptest::prop_assert!(isolated);
            proptest::prop_assert!(page(kind, &bytes, wall()).is_err());
        }
    }

    #[test]
    fn no_json_instead_of_an_object_makes_the_decoder_panic(
        value in "(null|true|7|\"x\"|\\[\\]|\\{\\}|\\{\"metadata\":(null|\\[\\]|\\{\"name\":(7|\"a\")\\})\\})",
        event in "(ADDED|MODIFIED|DELETED|BOOKMARK|ERROR|OTHER)",
    ) {
        for kind in Kind::ALL {
            let text = format!(r#"{{"type":"{event}","object":{value}}}"#);
            let decoded = line(kind, text.as_bytes(), wall());
            let is_object = matches!(decoded, Line::Object(_));
            proptest::prop_assert!(!is_object, "{:?}", decoded);
        }
    }
}
