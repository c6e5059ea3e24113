//! Large responses: the memory of a process that reads one, and the handling of one that exceeds a limit.

use std::process::Command;

use model::machine::Wall;
use model::xds::stream::StreamEvent;

use super::super::assignment::{MAX_ENDPOINTS, MAX_IN_RESPONSE, MAX_LOCALITIES};
use super::super::{MAX_ERRORS, MAX_RESOURCES, MAX_VERSION};
use model::xds::{Invalid, ResourceValue};

use super::followed::Following;
use super::*;

/// The largest message that the driver receives.
const MESSAGE: usize = 16 << 20;

/// Additional memory that a response may take, compared with [`MAX_ENDPOINTS`] legitimate endpoints, in bytes.
const ABOVE: usize = 64 << 20;

/// Responses of equal fields have this fraction of [`MESSAGE`], and may take this fraction of [`ABOVE`].
const SHARE: usize = 16;

/// Names the file with the response that [`reads_the_response_of_its_environment`] reads.
const FILE: &str = "XDS_TEST_RESPONSE";

/// Text before the peak memory of the process, in bytes.
const PEAK: &str = "peak bytes: ";

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let seven = u8::try_from(number & 0x7f).unwrap();
        number >>= 7;
        if number == 0 {
            bytes.push(seven);
            return bytes;
        }
        bytes.push(seven | 0x80);
    }
}

/// Returns a field with a length.
fn field(number: usize, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [varint(number << 3 | 2), varint(value.len()), value.to_vec()].concat()
}

/// Repeats a field for this many bytes.
fn fill(bytes: usize, number: usize, value: impl AsRef<[u8]>) -> Vec<u8> {
    let one = field(number, value);
    one.repeat(bytes / one.len())
}

fn any(type_url: &str, value: impl AsRef<[u8]>) -> Vec<u8> {
    [field(1, type_url), field(2, value)].concat()
}

fn of_kind(kind: ResourceKind, rest: impl AsRef<[u8]>) -> Vec<u8> {
    [field(1, "9"), field(4, kind.type_url()), field(5, "n"), rest.as_ref().to_vec()].concat()
}

/// Returns a response whose only assignment has the requested name and this content.
fn assigned(rest: impl AsRef<[u8]>) -> Vec<u8> {
    let assignment = [field(1, "web"), rest.as_ref().to_vec()].concat();
    of_kind(ResourceKind::Endpoints, field(2, any(ResourceKind::Endpoints.type_url(), assignment)))
}

/// Returns an endpoint as control planes send them.
fn endpoint(n: usize) -> Vec<u8> {
    let address = format!("10.{}.{}.{}", n >> 16 & 255, n >> 8 & 255, n & 255);
    let socket = [field(2, address), vec![0x18, 0x50]].concat();
    field(1, field(1, field(1, socket)))
}

/// Returns a valid assignment of this many endpoints, with a full pool in each priority.
fn legitimate(endpoints: usize) -> Vec<u8> {
    let locality = |priority: usize| {
        let members = (priority * 1_000..(priority + 1) * 1_000).flat_map(|n| field(2, endpoint(n)));
        let head = [field(1, field(1, "region")), vec![0x28], varint(priority)].concat();
        field(2, [head, members.collect()].concat())
    };
    (0..endpoints / 1_000).flat_map(locality).collect()
}

/// Returns a resource with another name than the requested one.
fn other(rest: impl AsRef<[u8]>) -> Vec<u8> {
    let assignment = [field(1, "other"), rest.as_ref().to_vec()].concat();
    field(2, any(ResourceKind::Endpoints.type_url(), assignment))
}

fn wrapped(rest: Vec<u8>) -> Vec<u8> {
    of_kind(ResourceKind::Endpoints, field(2, any(WRAPPER, rest)))
}

/// Returns responses of equal fields, of this size. Decoding takes time and memory in proportion to the number of
/// fields.
fn of_equal_fields(bytes: usize) -> Vec<(&'static str, Vec<u8>)> {
    let many = |one: Vec<u8>| of_kind(ResourceKind::Endpoints, one.repeat(bytes / one.len()));
    let reported = field(7, [field(1, field(1, "web")), field(2, [0x08, 0x05])].concat());
    vec![
        ("localities", assigned(fill(bytes, 2, []))),
        ("endpoints", assigned(field(2, fill(bytes, 2, [])))),
        ("additional addresses", assigned(field(2, field(2, field(1, fill(bytes, 4, [])))))),
        ("values in metadata", assigned(field(2, field(2, field(3, fill(bytes, 1, [])))))),
        ("named endpoints", assigned(fill(bytes, 5, [0x0a, 0x01, 0x61]))),
        ("drops", assigned(field(4, fill(bytes, 2, [])))),
        ("unknown fields", assigned(fill(bytes, 1_000, []))),
        ("unknown fields of the response", of_kind(ResourceKind::Endpoints, fill(bytes, 1_000, []))),
        ("resources", of_kind(ResourceKind::Endpoints, fill(bytes, 2, []))),
        ("parts of a cluster", {
            let cluster = [field(1, "shop"), fill(bytes, 43, [])].concat();
            of_kind(ResourceKind::Cluster, field(2, any(ResourceKind::Cluster.type_url(), cluster)))
        }),
        (
            "anys in anys",
            of_kind(
                ResourceKind::Endpoints,
                field(2, any("type.googleapis.com/google.protobuf.Any", fill(bytes, 2, []))),
            ),
        ),
        ("resources in a wrapper", wrapped(fill(bytes, 2, []))),
        ("aliases of a wrapper", wrapped(fill(bytes, 4, []))),
        ("a wrapper in a wrapper", wrapped(field(2, any(WRAPPER, fill(bytes, 4, []))))),
        ("errors", of_kind(ResourceKind::Endpoints, fill(bytes, 7, []))),
        ("errors of a name", many(reported)),
        ("details of an error", of_kind(ResourceKind::Endpoints, field(7, field(2, fill(bytes, 3, []))))),
    ]
}

/// Returns responses at the limits of what is read, or with texts of the greatest length.
fn of_full_size(legitimate: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    const FULL: usize = MESSAGE - 512;
    let eds = ResourceKind::Endpoints.type_url();
    let many = |one: Vec<u8>| of_kind(ResourceKind::Endpoints, one.repeat(FULL / one.len()));
    // More than the limit of a response; the rest is only counted.
    let some =
        |one: Vec<u8>, each: usize| of_kind(ResourceKind::Endpoints, one.repeat(2 * MAX_IN_RESPONSE / each));
    let status = |message: &[u8]| [vec![0x08, 0x05], field(2, message)].concat();
    let long = vec![b'x'; FULL];
    let invalid = field(1, field(1, field(1, field(2, "\u{1}"))));
    vec![
        ("endpoints of many localities", assigned(fill(FULL, 2, fill(200, 2, [])))),
        ("invalid endpoints", assigned(field(2, fill(MAX_ENDPOINTS * invalid.len(), 2, invalid)))),
        (
            "endpoints of many assignments",
            some(other(field(2, fill(2 * MAX_ENDPOINTS, 2, []))), MAX_ENDPOINTS),
        ),
        ("localities of many assignments", some(other(fill(2 * MAX_LOCALITIES, 2, [])), MAX_LOCALITIES)),
        ("valid endpoints of many assignments", many(other(legitimate))),
        ("small assignments", many(other([]))),
        (
            "small clusters",
            of_kind(
                ResourceKind::Cluster,
                fill(FULL, 2, any(ResourceKind::Cluster.type_url(), field(1, "x"))),
            ),
        ),
        ("wrappers", many(field(2, any(WRAPPER, [])))),
        ("a long name", of_kind(ResourceKind::Endpoints, field(2, any(eds, field(1, &long))))),
        ("a long name in a wrapper", wrapped(field(3, &long))),
        ("a long name of endpoints", {
            // EDS from ADS.
            let eds_config = [field(1, [0x1a, 0x00]), field(2, &long)].concat();
            let cluster = [field(1, "shop"), vec![0x10, 0x03], field(3, eds_config)].concat();
            of_kind(ResourceKind::Cluster, field(2, any(ResourceKind::Cluster.type_url(), cluster)))
        }),
        ("a long name of an error", of_kind(ResourceKind::Endpoints, field(7, field(1, field(1, &long))))),
        ("a long message", of_kind(ResourceKind::Endpoints, field(7, field(2, status(&long))))),
        ("a long address", assigned(field(2, field(2, field(1, field(1, field(1, field(2, &long)))))))),
        ("a long type", of_kind(ResourceKind::Endpoints, field(2, field(1, &long)))),
        ("a long version", [of_kind(ResourceKind::Endpoints, []), field(1, &long)].concat()),
        ("a long nonce", [of_kind(ResourceKind::Endpoints, []), field(5, &long)].concat()),
        ("long versions of errors", {
            let version = field(1, &long[..MAX_VERSION]);
            [
                of_kind(ResourceKind::Endpoints, []),
                version,
                field(7, field(1, field(1, "web"))).repeat(10 * MAX_ERRORS),
            ]
            .concat()
        }),
    ]
}

/// Reads a response as the controller does, in a separate process. Does nothing without [`FILE`].
#[test]
fn reads_the_response_of_its_environment() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let mut following = Following::new();
    let bytes = std::fs::read(file).unwrap();
    let event = match response(&bytes) {
        Ok(response) => StreamEvent::Response(following.stream, response, Wall::default()),
        Err(_) => StreamEvent::Undecodable(following.stream),
    };
    // The driver frees the message before it handles the response.
    drop(bytes);
    following.step(event);
    let answered = following.requests.iter().filter_map(|(request, _)| request.error.as_ref());
    assert!(answered.map(|nack| nack.message.len()).sum::<usize>() < 64 << 10);
    let names = following.requests.iter().flat_map(|(request, _)| &request.names);
    assert!(names.map(|name| name.len()).sum::<usize>() < 64 << 10);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    println!("{PEAK}{}", kilobytes << 10);
}

/// Returns the peak memory, in bytes, of a process that reads this response.
fn peak(bytes: &[u8]) -> usize {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let test = "decode::tests::large::reads_the_response_of_its_environment";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(FILE, file.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{text}\n{}", String::from_utf8_lossy(&child.stderr));
    let peak = text.lines().find_map(|line| line.split_once(PEAK)).expect("it prints its peak").1;
    peak.trim().parse().unwrap()
}

#[test]
fn c1_no_response_costs_more_than_64_mib() {
    let legitimate = legitimate(MAX_ENDPOINTS);
    let empty = peak(&of_kind(ResourceKind::Endpoints, []));
    let most = peak(&assigned(&legitimate)) + ABOVE;
    // The memory of the process without a response does not grow with the response.
    let most_of_share = empty + (most - empty) / SHARE;
    let equal = of_equal_fields((MESSAGE - 512) / SHARE).into_iter().map(|bomb| (bomb, most_of_share));
    let full = of_full_size(&legitimate).into_iter().map(|bomb| (bomb, most));
    let mut over = Vec::new();
    for ((name, bytes), most) in equal.chain(full) {
        assert!(bytes.len() <= MESSAGE + (3 << 20), "{name} is not received: {}", bytes.len());
        let peak = peak(&bytes);
        println!("{name}: {} KiB of {} KiB", peak >> 10, most >> 10);
        if peak > most {
            over.push(format!("{name}: {} KiB of {} KiB", peak >> 10, most >> 10));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
}

/// Returns the error of the only resource of a response.
fn refused(bytes: &[u8]) -> Invalid {
    let response = response(bytes).unwrap();
    assert_eq!((response.resources.len(), response.excess), (1, None));
    validate(ResourceKind::Endpoints, &response.resources[0]).unwrap_err()
}

#[test]
fn x2_as_many_endpoints_as_are_read_are_valid() {
    let bytes = assigned(legitimate(MAX_ENDPOINTS));
    let resources = response(&bytes).unwrap().resources;
    let (_, ResourceValue::Endpoints(assignment)) = validate(ResourceKind::Endpoints, &resources[0]).unwrap()
    else {
        panic!("it is not an assignment")
    };
    let addresses = assignment.priorities.iter().map(|priority| priority.addresses.len());
    assert_eq!(addresses.sum::<usize>(), MAX_ENDPOINTS);
}

#[test]
fn x2_an_oversized_assignment_is_refused_by_name() {
    let endpoints = |count: usize| field(2, fill(2 * count, 2, []));
    let more_addresses = field(2, field(2, field(1, fill(2 * MAX_IN_RESPONSE, 4, []))));
    for (bytes, fault) in [
        (assigned(fill(2 * MAX_LOCALITIES + 2, 2, [])), "are 10001 localities"),
        (assigned(endpoints(MAX_ENDPOINTS + 1)), "are more than 100000"),
        (assigned([endpoints(MAX_ENDPOINTS), endpoints(1)].concat()), "are more than 100000"),
        (assigned(more_addresses), "make more than 400000 in one response"),
    ] {
        let Invalid { name, message } = refused(&bytes);
        assert_eq!(name.as_deref(), Some("web"));
        assert!(message.starts_with(&format!("endpoints: {fault}")), "{message}");
    }
}

#[test]
fn x2_oversized_assignments_use_no_room_of_the_others() {
    let of = |name: &str, endpoints: usize| {
        let assignment = [field(1, name), field(2, fill(2 * endpoints, 2, []))].concat();
        field(2, any(ResourceKind::Endpoints.type_url(), assignment))
    };
    let large: Vec<u8> = (0..9).flat_map(|_| of("large", MAX_ENDPOINTS + 1)).collect();
    let fitting: Vec<u8> = (0..3).flat_map(|_| of("fits", MAX_ENDPOINTS)).collect();
    let bytes = of_kind(ResourceKind::Endpoints, [large, fitting].concat());
    let resources = response(&bytes).unwrap().resources;
    let is_read = |received: &Received| matches!(received.body, Ok(Body::Endpoints(_)));
    assert_eq!(resources.iter().filter(|received| is_read(received)).count(), 3);
    assert!(resources.iter().rev().take(3).all(is_read));
}

#[test]
fn x2_an_excess_of_resources_and_errors_is_reported() {
    let small = field(2, any(ResourceKind::Endpoints.type_url(), field(1, "x")));
    let all = of_kind(
        ResourceKind::Endpoints,
        [small.repeat(MAX_RESOURCES), field(7, []).repeat(MAX_ERRORS)].concat(),
    );
    assert_eq!(response(&all).unwrap().excess, None);
    let more = response(&[all, small, field(7, [])].concat()).unwrap();
    assert_eq!((more.resources.len(), more.errors.len()), (MAX_RESOURCES, MAX_ERRORS));
    let words = more.excess.unwrap();
    assert!(
        words.contains("resources: are 10001") && words.contains("resource_errors: are 10001"),
        "{words}"
    );
}

#[test]
fn x2_a_response_with_an_oversized_answer_is_skipped() {
    for number in [1, 5] {
        let of = |length: usize| {
            [of_kind(ResourceKind::Endpoints, []), field(number, vec![b'x'; length])].concat()
        };
        assert!(response(&of(MAX_VERSION)).is_ok());
        let error = response(&of(MAX_VERSION + 1)).unwrap_err();
        assert!(error.to_string().contains("longer than 65536 bytes"), "{error}");
    }
}

#[test]
fn x2_a_field_of_another_type_is_malformed() {
    let number = [0x10, 0x01];
    let unnamed = refused(&assigned(number));
    assert!(unnamed.message.contains("malformed") && unnamed.name.is_none(), "{unnamed:?}");
    assert!(refused(&assigned(field(2, number))).message.contains("malformed"));
    assert!(response(&of_kind(ResourceKind::Endpoints, number)).is_err());
}

#[test]
fn x2_the_parts_of_an_any_are_merged() {
    let assignment = field(1, "web");
    let parts = [
        field(3, "web"),
        field(2, field(1, ResourceKind::Endpoints.type_url())),
        field(2, field(2, &assignment)),
    ];
    let bytes = of_kind(ResourceKind::Endpoints, field(2, any(WRAPPER, parts.concat())));
    let received = response(&bytes).unwrap().resources.remove(0);
    assert_eq!(*received.raw.bytes, assignment);
    assert!(validate(ResourceKind::Endpoints, &received).is_ok());
}
