//! Valid contents of a bootstrap, and the errors about invalid ones.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;

use envoy_types::pb::google::protobuf::value::Kind;
use proptest::prelude::*;

use super::*;

/// A bootstrap with all known fields.
const FULL: &str = r#"{
  "xds_servers": [
    {
      "server_uri": "dns:///istiod.istio-system.svc:15012",
      "channel_creds": [
        {"type": "google_default"},
        {"type": "tls", "config": {
          "ca_certificate_file": "/xds/ca.pem", "certificate_file": "/xds/tls.crt", "private_key_file": "/xds/tls.key",
          "refresh_interval": "600.5s", "newer": true}},
        {"type": "insecure"}
      ],
      "call_creds": [
        {"type": "newer", "config": 7},
        {"type": "jwt_token_file", "config": {"jwt_token_file": "/xds/one"}},
        {"type": "jwt_token_file", "config": {"jwt_token_file": "/xds/two"}}
      ],
      "server_features": ["xds_v3", "fail_on_data_errors", 7, {"x": []}, null, "resource_timer_is_transient_error"],
      "newer": 1
    },
    {"server_uri": "second:15010", "channel_creds": [{"type": "insecure", "config": {}}]}
  ],
  "node": {
    "id": "pools-1", "cluster": "west", "locality": {"region": "r", "zone": "z", "sub_zone": "s"},
    "metadata": {"a": null, "b": true, "c": 1.5, "d": "planted-secret", "e": [1, {"f": "g"}], "h": {}}, "newer": 1
  },
  "certificate_providers": {"inst": {"plugin_name": "file_watcher", "config": {}}},
  "authorities": {"other.test": {}},
  "newer": {}
}"#;

/// Returns a bootstrap with one server of these fields.
fn of_server(fields: &str) -> String {
    format!(r#"{{"xds_servers": [{{{fields}}}], "node": {{"id": "pools-1"}}}}"#)
}

/// Returns a bootstrap with a server of this target and with these additional credentials.
fn of_target(uri: &str, creds: &str) -> String {
    of_server(&format!(r#""server_uri": {uri:?}, "channel_creds": [{{"type": {creds:?}}}]"#))
}

fn target(uri: &str) -> Result<Target, String> {
    let parsed = Bootstrap::parse(&of_target(uri, "insecure"));
    parsed.map(|bootstrap| bootstrap.configs()[0].target.clone()).map_err(|error| error.to_string())
}

fn refused(text: &str) -> String {
    Bootstrap::parse(text).expect_err(text).to_string()
}

#[test]
fn x2_a_full_bootstrap_is_read_and_newer_fields_are_skipped() {
    let bootstrap = Bootstrap::parse(FULL).unwrap();
    let (both, neither) = (Policy { fail_on_data_errors: true, timer_is_transient: true }, Policy::default());
    let servers = bootstrap.servers();
    let shown: Vec<(&str, Policy)> = servers.iter().map(|server| (&*server.uri, server.policy)).collect();
    assert_eq!(shown, [("dns:///istiod.istio-system.svc:15012", both), ("second:15010", neither)]);
    let [first, second] = bootstrap.configs() else { panic!("there are two servers") };
    let tls = TlsFiles {
        ca: Some(PathBuf::from("/xds/ca.pem")),
        identity: Some((PathBuf::from("/xds/tls.crt"), PathBuf::from("/xds/tls.key"))),
    };
    assert_eq!(first.channel, Channel::Tls(tls));
    assert_eq!(first.tokens, [PathBuf::from("/xds/one"), PathBuf::from("/xds/two")]);
    assert_eq!((&second.channel, second.tokens.len()), (&Channel::Insecure, 0));
    assert_eq!(bootstrap.node_id(), "pools-1");
    assert!(bootstrap.warnings().is_empty(), "{:?}", bootstrap.warnings());
}

#[test]
fn x2_the_node_has_our_identity_and_features() {
    let node = Bootstrap::parse(FULL).unwrap().node("1.2.3");
    let message = node.message();
    assert_eq!((message.id.as_str(), message.cluster.as_str()), ("pools-1", "west"));
    let locality = message.locality.as_ref().unwrap();
    let locality = [&locality.region, &locality.zone, &locality.sub_zone];
    assert_eq!(locality, ["r", "z", "s"]);
    assert_eq!(message.user_agent_name, "azure-backend-pool-controller");
    assert_eq!(format!("{:?}", message.user_agent_version_type), r#"Some(UserAgentVersion("1.2.3"))"#);
    let features = ["envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw"];
    assert_eq!(message.client_features, features);
    let fields = &message.metadata.as_ref().unwrap().fields;
    let kind = |name: &str| fields[name].kind.clone().unwrap();
    assert_eq!(kind("a"), Kind::NullValue(0));
    assert_eq!(kind("b"), Kind::BoolValue(true));
    assert_eq!(kind("c"), Kind::NumberValue(1.5));
    assert_eq!(kind("d"), Kind::StringValue("planted-secret".to_owned()));
    let Kind::ListValue(list) = kind("e") else { panic!("a list stays one") };
    assert_eq!(list.values[0].kind, Some(Kind::NumberValue(1.0)));
    assert!(matches!(&list.values[1].kind, Some(Kind::StructValue(inner)) if inner.fields.contains_key("f")));
    assert!(matches!(kind("h"), Kind::StructValue(inner) if inner.fields.is_empty()));
}

#[test]
fn c1_metadata_and_inline_text_are_not_shown_by_debug() {
    let bootstrap = Bootstrap::parse(FULL).unwrap();
    let source = Source::Inline(FULL.to_owned());
    for shown in [format!("{bootstrap:?}"), format!("{:?}", bootstrap.node("1")), format!("{source:?}")] {
        assert!(!shown.contains("planted-secret"), "{shown}");
    }
}

#[test]
fn x2_a88_unknown_features_are_ignored() {
    let policy = |features: &str| {
        let server = format!(
            r#""server_uri": "a:1", "channel_creds": [{{"type": "insecure"}}], "server_features": {features}"#
        );
        let bootstrap = Bootstrap::parse(&of_server(&server)).unwrap();
        let policy = bootstrap.servers()[0].policy;
        (policy.fail_on_data_errors, policy.timer_is_transient, bootstrap.warnings().join("\n"))
    };
    assert_eq!(policy("null"), (false, false, String::new()));
    assert_eq!(policy(r#"["FAIL_ON_DATA_ERRORS", "trusted_xds_server"]"#), (false, false, String::new()));
    assert_eq!(policy(r#"["fail_on_data_errors"]"#), (true, false, String::new()));
    assert_eq!(policy(r#"["resource_timer_is_transient_error"]"#), (false, true, String::new()));
    let (fails, patient, warning) = policy(r#"["ignore_resource_deletion"]"#);
    assert_eq!((fails, patient), (false, false));
    assert!(
        warning.starts_with("xds_servers[0].server_features: ignore_resource_deletion is deprecated"),
        "{warning}"
    );
    let (_, patient, warning) = policy(r#"["resource_timer_is_transient_failure"]"#);
    assert!(!patient && warning.contains("write resource_timer_is_transient_error"), "{warning}");
}

#[test]
fn x2_fields_without_an_effect_cause_warnings() {
    let text = r#"{"xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "insecure"}]}],
        "authorities": {"a": {"xds_servers": []}, "b": {"xds_servers": null}, "c": {}, "d": 7}}"#;
    let bootstrap = Bootstrap::parse(text).unwrap();
    assert_eq!(bootstrap.node_id(), "");
    let [node, authorities] = bootstrap.warnings() else { panic!("{:?}", bootstrap.warnings()) };
    assert!(node.starts_with("node.id is missing"), "{node}");
    assert!(authorities.starts_with("authorities: the xds_servers of 1 of them"), "{authorities}");
}

/// Returns invalid bootstraps, each with a part of its error.
fn faults() -> Vec<(String, &'static str)> {
    let mut faults = faults_of_credentials();
    faults.extend(faults_elsewhere());
    faults
}

/// Returns a bootstrap with a server that has these fields in addition to its target.
fn of_reached(fields: &str) -> String {
    of_server(&format!(r#""server_uri": "a:1", {fields}"#))
}

/// Returns a bootstrap with a server with TLS and these call credentials.
fn secure(call: &str) -> String {
    of_reached(&format!(r#""channel_creds": [{{"type": "tls"}}], "call_creds": {call}"#))
}

fn faults_of_credentials() -> Vec<(String, &'static str)> {
    let server = of_reached;
    let tls = |config: &str| server(&format!(r#""channel_creds": [{{"type": "tls", "config": {config}}}]"#));
    vec![
        (
            of_server(r#""server_uri": "a:1""#),
            "xds_servers[0].channel_creds: is missing: list a supported type",
        ),
        (
            server(r#""channel_creds": []"#),
            "xds_servers[0].channel_creds: none of a supported type: list one of",
        ),
        (
            server(r#""channel_creds": [{"type": "xds"}]"#),
            "xds_servers[0].channel_creds: none of a supported",
        ),
        (server(r#""channel_creds": [{}]"#), "xds_servers[0].channel_creds[0].type: is missing"),
        (
            server(r#""channel_creds": [{"type": "insecure"}, {"type": 1}]"#),
            "channel_creds[1].type: is a number",
        ),
        (tls(r#"{"certificate_file": "a"}"#), "channel_creds[0].config.private_key_file: is missing"),
        (tls(r#"{"private_key_file": "a"}"#), "channel_creds[0].config.certificate_file: is missing"),
        (tls(r#"{"ca_certificate_file": 1}"#), "channel_creds[0].config.ca_certificate_file: is a number"),
        (
            tls(r#"{"refresh_interval": "10m"}"#),
            "channel_creds[0].config.refresh_interval: is not a duration",
        ),
        (tls("[]"), "channel_creds[0].config: is a list: make it an object"),
        (secure("{}"), "xds_servers[0].call_creds: is an object: make it a list"),
        (
            server(
                r#""channel_creds": [{"type": "insecure"}],
                   "call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": "/t"}}]"#,
            ),
            "xds_servers[0].call_creds: a token is never sent over an insecure channel: use channel_creds of type tls",
        ),
    ]
}

fn faults_elsewhere() -> Vec<(String, &'static str)> {
    let server = of_reached;
    vec![
        ("7".to_owned(), "the document: is a number: make it an object"),
        ("{}".to_owned(), "xds_servers: is missing: list at least one server with server_uri"),
        (r#"{"xds_servers": []}"#.to_owned(), "xds_servers: is empty: list at least one server"),
        (r#"{"xds_servers": {}}"#.to_owned(), "xds_servers: is an object: make it a list"),
        (r#"{"xds_servers": ["a:1"]}"#.to_owned(), "xds_servers[0]: is a string: make it an object"),
        (of_server(""), "xds_servers[0].server_uri: is missing: give the server as host:port"),
        (of_server(r#""server_uri": 7"#), "xds_servers[0].server_uri: is a number: make it a string"),
        (
            secure(r#"[{"type": "jwt_token_file"}]"#),
            "call_creds[0].config: is missing: name the file of the token",
        ),
        (
            secure(r#"[{"type": "jwt_token_file", "config": {"jwt_token_file": ""}}]"#),
            "call_creds[0].config.jwt_token_file: is missing: name the file of the token",
        ),
        (
            server(r#""channel_creds": [{"type": "tls"}], "server_features": "x""#),
            "server_features: is a string",
        ),
        (
            of_target("unix:/run/xds", "tls"),
            "xds_servers[0].server_uri: a unix socket is reached without TLS",
        ),
        (of_target("a:1", "insecure").replace(r#""pools-1""#, "7"), "node.id: is a number: make it a string"),
        (
            of_target("a:1", "insecure").replace(r#""id""#, r#""metadata": [], "id""#),
            "node.metadata: is a list: make it an object",
        ),
        (
            of_target("a:1", "insecure").replace(r#""node""#, r#""authorities": 1, "node""#),
            "authorities: is a number: make it an object",
        ),
    ]
}

#[test]
fn x2_missing_or_wrong_fields_are_named_by_path_with_a_remedy() {
    for (text, words) in faults() {
        let message = refused(&text);
        assert!(
            message.starts_with("xDS bootstrap: ") && message.contains(words),
            "{text}\n{message}\n{words}"
        );
    }
}

#[test]
fn x2_invalid_json_is_reported_with_its_position() {
    let error = Bootstrap::parse("{\n  \"xds_servers\": [}").unwrap_err();
    assert!(error.to_string().starts_with("xDS bootstrap is not JSON"), "{error}");
    assert!(error.source().unwrap().to_string().contains("line 2 column 19"), "{:?}", error.source());
}

#[test]
fn x2_call_credentials_of_other_types_are_skipped() {
    let text = of_server(
        r#""server_uri": "a:1", "channel_creds": [{"type": "insecure"}], "call_creds": [{"type": "newer"}]"#,
    );
    assert_eq!(Bootstrap::parse(&text).unwrap().configs()[0].tokens.len(), 0);
}

#[test]
fn x2_refresh_intervals_are_durations_of_protobuf() {
    let parse = |interval: &str| {
        let creds = format!(
            r#""server_uri": "a:1", "channel_creds": [{{"type": "tls", "config": {{"refresh_interval": {interval}}}}}]"#
        );
        Bootstrap::parse(&of_server(&creds)).is_ok()
    };
    for good in [r#""600s""#, r#""0s""#, r#""0.000000001s""#, r#""315576000000s""#, "null"] {
        assert!(parse(good), "{good}");
    }
    for bad in
        [r#""600""#, r#""s""#, r#"".5s""#, r#""1.s""#, r#""-1s""#, r#""1.0000000001s""#, r#""1e3s""#, "600"]
    {
        assert!(!parse(bad), "{bad}");
    }
    assert!(!parse(r#""315576000001s""#));
}

#[test]
fn x2_targets_are_those_of_grpc() {
    let tcp = |authority: &str| Ok(Target::Tcp { authority: authority.to_owned() });
    let unix = |path: &str| Ok(Target::Unix(path.to_owned()));
    assert_eq!(target("istiod.istio-system.svc:15010"), tcp("istiod.istio-system.svc:15010"));
    assert_eq!(target("xds_a.test"), tcp("xds_a.test:443"));
    assert_eq!(target("dns:///xds.test:1"), tcp("xds.test:1"));
    assert_eq!(target("dns:///xds.test"), tcp("xds.test:443"));
    assert_eq!(target("dns:xds.test:1"), tcp("xds.test:1"));
    assert_eq!(target("dns:/xds.test:1"), tcp("xds.test:1"));
    assert_eq!(target("10.0.0.1:65535"), tcp("10.0.0.1:65535"));
    assert_eq!(target("[fd00::1]:15010"), tcp("[fd00::1]:15010"));
    assert_eq!(target("[fd00::1]"), tcp("[fd00::1]:443"));
    assert_eq!(target("fd00::1"), tcp("[fd00::1]:443"));
    assert_eq!(target("dns:///[::1]:80"), tcp("[::1]:80"));
    assert_eq!(target("unix:/run/xds.sock"), unix("/run/xds.sock"));
    assert_eq!(target("unix:xds.sock"), unix("xds.sock"));
    assert_eq!(target("unix:///run/xds.sock"), unix("/run/xds.sock"));
    assert_eq!(target("unix:////run/xds.sock"), unix("/run/xds.sock"));
}

#[test]
fn x2_unreachable_targets_are_refused_with_valid_forms() {
    let cases = [
        ("", "is empty: write host:port"),
        ("https://xds.test", "https:// is not supported, a target is not a URL: write host:port"),
        ("xds:///xds.test", "xds:// is not supported"),
        ("dns://10.0.0.10/xds.test:1", "names a DNS server, which is not supported: leave it out"),
        ("dns://xds.test", "has no host: write it behind three slashes"),
        ("dns:///", "has no host"),
        (":80", "has no host"),
        ("xds.test:", "its port is not a number"),
        ("xds.test:0", "its port is not a number"),
        ("xds.test:65536", "its port is not a number"),
        ("xds.test:https", "its port is not a number"),
        ("ipv4:10.0.0.1:80", "its port is not a number"),
        ("xds test:80", "its host is not a valid host name"),
        ("xds.test/path", "its host is not a valid host name"),
        ("user@xds.test:80", "its host is not a valid host name"),
        ("[fd00::1:80", "has no closing bracket"),
        ("[fd00::1]80", "expected a port"),
        ("[xds.test]:80", "not an IPv6 address"),
        ("[fe80::1%eth0]:80", "not an IPv6 address"),
        ("unix:", "has no path: write unix:path"),
        ("unix:///", "has no path: write unix:path"),
        ("unix://run/xds.sock", "has no absolute path: write unix:///path"),
    ];
    for (uri, words) in cases {
        let message = target(uri).unwrap_err();
        assert!(message.starts_with("xDS bootstrap: xds_servers[0].server_uri: "), "{uri}: {message}");
        assert!(message.contains(words), "{uri}: {message}");
    }
}

#[test]
fn x2_the_configured_file_wins_over_the_variables_of_grpc() {
    let choose = |configured: Option<&str>, set: &[(&str, &str)]| {
        let set: BTreeMap<&str, &str> = set.iter().copied().collect();
        Source::choose(configured.map(Path::new), |name| set.get(name).map(OsString::from))
    };
    let (file, inline) = (("GRPC_XDS_BOOTSTRAP", "/grpc"), ("GRPC_XDS_BOOTSTRAP_CONFIG", "{}"));
    assert_eq!(choose(Some("/ours"), &[file, inline]).unwrap(), Source::File(PathBuf::from("/ours")));
    assert_eq!(choose(None, &[file, inline]).unwrap(), Source::File(PathBuf::from("/grpc")));
    assert_eq!(choose(None, &[inline]).unwrap(), Source::Inline("{}".to_owned()));
    let empty = ("GRPC_XDS_BOOTSTRAP", "");
    assert_eq!(choose(None, &[empty, inline]).unwrap(), Source::Inline("{}".to_owned()));
    let message = choose(None, &[empty, ("GRPC_XDS_BOOTSTRAP_CONFIG", "")]).unwrap_err().to_string();
    for remedy in ["the configuration", "GRPC_XDS_BOOTSTRAP to", "GRPC_XDS_BOOTSTRAP_CONFIG to"] {
        assert!(message.contains(remedy), "{message}");
    }
}

#[test]
fn x2_a_bootstrap_is_loaded_from_its_source_up_to_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bootstrap.json");
    let file = Source::File(path.clone());
    let missing = Bootstrap::load(&file).unwrap_err().to_string();
    assert!(missing.contains("bootstrap.json cannot be read"), "{missing}");
    fs::write(&path, FULL).unwrap();
    assert_eq!(Bootstrap::load(&file).unwrap().servers().len(), 2);
    assert_eq!(Bootstrap::load(&Source::Inline(FULL.to_owned())).unwrap().servers().len(), 2);
    // White space is valid JSON, so only the size is wrong.
    let at_limit = format!("{FULL}{}", " ".repeat(LARGEST - FULL.len()));
    let above = format!("{at_limit} ");
    fs::write(&path, &at_limit).unwrap();
    assert!(Bootstrap::load(&file).is_ok() && Bootstrap::load(&Source::Inline(at_limit)).is_ok());
    fs::write(&path, &above).unwrap();
    for source in [file.clone(), Source::Inline(above)] {
        assert!(matches!(Bootstrap::load(&source), Err(BootstrapError::TooLarge)), "{source}");
    }
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(Bootstrap::load(&file), Err(BootstrapError::NotText)));
    assert_eq!(file.to_string(), format!("file {}", path.display()));
}

/// Returns arbitrary JSON, partly with known names.
fn json() -> impl Strategy<Value = Value> {
    let names = [
        "xds_servers",
        "server_uri",
        "channel_creds",
        "call_creds",
        "server_features",
        "type",
        "config",
        "node",
        "id",
        "metadata",
        "locality",
        "authorities",
        "jwt_token_file",
        "refresh_interval",
    ];
    let texts = ["insecure", "tls", "jwt_token_file", "a:1", "[", "unix:", "dns://", "1.s", "\u{e9}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(texts.to_vec()).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        let fields = prop::collection::vec((prop::sample::select(names.to_vec()), inner.clone()), 0..6);
        let object = fields.prop_map(|fields| {
            Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
        });
        prop_oneof![prop::collection::vec(inner, 0..4).prop_map(Value::from), object]
    })
}

/// Returns the bytes of a file: arbitrary ones, those of a good bootstrap with changes, and endless brackets.
fn file() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..3_u8);
    let changed = prop::collection::vec(change, 0..8).prop_map(|changes| {
        let mut bytes = FULL.as_bytes().to_vec();
        for (at, byte, how) in changes {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        bytes
    });
    let deep = (1..10_000_usize).prop_map(|depth| {
        let node = format!(r#","node":{{"metadata":{{"deep":{}"#, "[".repeat(depth));
        let servers = r#"{"xds_servers":[{"server_uri":"a:1","channel_creds":[{"type":"insecure"}]}]"#;
        format!("{servers}{node}{}}}}}}}", "]".repeat(depth)).into_bytes()
    });
    prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..256),
        2 => json().prop_map(|value| value.to_string().into_bytes()),
        6 => changed,
        1 => deep,
        1 => (LARGEST - 1..LARGEST + 2).prop_map(|size| vec![b' '; size]),
    ]
}

proptest! {
    #[test]
    fn x2_any_json_is_accepted_or_refused_with_a_path(value in json()) {
        match Bootstrap::parse(&value.to_string()) {
            Ok(bootstrap) => prop_assert!(!bootstrap.servers().is_empty()),
            Err(BootstrapError::Field { path, fault }) => prop_assert!(!path.is_empty() && !fault.is_empty()),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn x2_any_file_is_accepted_or_refused_with_a_position(bytes in file()) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("bootstrap.json");
        fs::write(&path, &bytes).expect("the folder can be written");
        match Bootstrap::load(&Source::File(path)) {
            Ok(bootstrap) => {
                prop_assert!(!bootstrap.servers().is_empty());
                prop_assert!(bootstrap.servers().iter().all(|server| !server.uri.is_empty()));
            }
            Err(BootstrapError::Field { path, fault }) => prop_assert!(!path.is_empty() && !fault.is_empty()),
            Err(BootstrapError::Syntax { source }) => {
                let position = format!("line {} column {}", source.line(), source.column());
                prop_assert!(source.to_string().contains(&position), "{}", source);
                prop_assert!(serde_json::from_slice::<Value>(&bytes).is_err());
            }
            Err(BootstrapError::NotText) => prop_assert!(std::str::from_utf8(&bytes).is_err()),
            Err(BootstrapError::TooLarge) => prop_assert!(bytes.len() > LARGEST),
            Err(error @ (BootstrapError::Missing | BootstrapError::Read { .. })) => {
                prop_assert!(false, "{}", error);
            }
        }
    }

    #[test]
    fn x2_any_target_is_an_address_or_refused(uri in "\\PC{0,40}|(dns:)?(//)?/?[\\[\\]a-z0-9:./]{0,24}") {
        if let Ok(Target::Tcp { authority }) = Target::parse(&uri) {
            let address = format!("http://{authority}").parse::<http::Uri>();
            prop_assert!(address.is_ok_and(|address| address.port_u16().is_some_and(|port| port > 0)), "{authority}");
        }
    }
}
