//! The documents describe exactly what the sources declare.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use actors::address_book::MAILBOXES;
use model::assignment::HeldReason;
use model::blocked::Blocked;
use model::node::NodeState;
use model::sample::PoolState;
use model::signals::Signal;
use model::view::{LeaseHolderKind, NodePoolState};
use model::write_record::Trigger;
use model::xds::cache::{CacheState, ResourceState};
use model::xds::facts::ResourceKind;
use serde_json::Value;

use crate::tidy;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the texts between quotation marks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// Returns the first cells of the table rows in the section with this heading, without back-ticks.
fn first_cells(document: &str, heading: &str) -> BTreeSet<String> {
    let section = document.split("\n## ").find(|section| section.starts_with(heading));
    let section = section.unwrap_or_else(|| panic!("there is no section {heading:?}"));
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    cells.map(|(cell, _)| cell.to_owned()).collect()
}

#[test]
fn every_event_reason_is_explained_and_no_other() {
    let words = read("actors/core/reporting/src/events/messages.rs");
    let body = words.split_once("fn reason(").and_then(|(_, rest)| rest.split_once("\n}\n"));
    let (body, _) = body.expect("messages.rs has the function reason");
    let values: BTreeSet<String> = quoted(body).map(str::to_owned).collect();
    assert!(values.len() >= 8, "{values:?}");
    assert_eq!(values, first_cells(&read("docs/errors.md"), "Events"));
}

#[test]
fn every_metric_is_explained_and_no_other() {
    let recorder = read("actors/src/recorder.rs");
    let constants =
        recorder.lines().filter(|line| line.starts_with("const ") && line.contains(": &str = \""));
    // The values of labels are constants too.
    let is_metric = |name: &&str| {
        let begins = ["cloudprovider_azure_", "backend_pool_controller_", "grpc_xds_client_"];
        begins.iter().any(|begin| name.starts_with(begin))
    };
    let declared: BTreeSet<String> =
        constants.flat_map(quoted).filter(is_metric).map(str::to_owned).collect();
    assert!(declared.len() >= 20, "{declared:?}");
    let metrics = read("docs/metrics.md");
    assert_eq!(declared, first_cells(&metrics, "Metrics"));
    let is_documented = |word: &&str| metrics.contains(&format!("`{word}`"));
    assert!(MAILBOXES.iter().all(is_documented), "docs/metrics.md names each mailbox: {MAILBOXES:?}");
    let states = CacheState::ALL.map(CacheState::as_str);
    assert!(states.iter().all(is_documented), "docs/metrics.md names each state of the cache: {states:?}");
    let source = read("actors/core/model/src/error.rs");
    let reasons = source.split_once("ReasonLabel(match self {").and_then(|(_, rest)| rest.split_once("})"));
    let (reasons, _) = reasons.expect("error.rs has the labels of reasons");
    let reasons: BTreeSet<String> = quoted(reasons).map(str::to_owned).collect();
    assert!(reasons.len() >= 9, "{reasons:?}");
    assert!(
        reasons.iter().all(|reason| is_documented(&reason.as_str())),
        "docs/metrics.md names each: {reasons:?}"
    );
    assert_eq!(reasons, enumerated(&api(), &["OneService", "service", "notManageable", "reason"]));
}

#[test]
fn every_held_reason_and_every_state_is_explained_and_no_other() {
    let reasons: BTreeSet<String> = HeldReason::ALL.iter().map(|reason| reason.as_str().to_owned()).collect();
    assert_eq!(reasons, first_cells(&read("docs/errors.md"), "Held removals"));
    let states: BTreeSet<String> = PoolState::ALL.iter().map(|state| state.as_str().to_owned()).collect();
    assert_eq!(states, first_cells(&read("docs/admin-api.md"), "Fields of a pool"));
    let metrics = read("docs/metrics.md");
    let is_documented = |word: &String| metrics.contains(&format!("`{word}`"));
    assert!(reasons.iter().chain(&states).all(is_documented), "docs/metrics.md names each of them");
    let api = api();
    assert_eq!(reasons, enumerated(&api, &["HeldReason"]));
    assert_eq!(states, enumerated(&api, &["PoolState"]));
    assert_eq!(states, fields(&api, &["Status", "pools", "byState"]));
}

#[test]
fn every_role_and_shared_lease_state_is_explained_and_no_other() {
    let words = |file: &str, head: &str| -> BTreeSet<String> {
        let source = read(file);
        let body = source.split_once(head).and_then(|(_, rest)| rest.split_once("\n    }\n"));
        let (body, _) = body.unwrap_or_else(|| panic!("{file} has {head:?}"));
        quoted(body).map(str::to_owned).collect()
    };
    let mut values = words("actors/core/coordination/src/leader.rs", "let role = match");
    values.extend(words("actors/core/writer/src/lease/status.rs", "fn state("));
    assert_eq!(values, first_cells(&read("docs/admin-api.md"), "Fields of `status`"));
    let api = api();
    let of = |part: &str, field: &str| enumerated(&api, &["Status", part, field]);
    let described: BTreeSet<String> =
        of("leadership", "role").into_iter().chain(of("sharedLease", "state")).collect();
    assert_eq!(values, described);
    let kind: BTreeSet<String> = LeaseHolderKind::ALL.iter().map(|kind| kind.as_str().to_owned()).collect();
    assert_eq!(kind, of("sharedLease", "holderKind"));
}

#[test]
fn every_reason_of_a_wait_is_explained_and_no_other() {
    let document = read("docs/admin-api.md");
    let section = document.split("\n## ").find(|section| section.starts_with("Why a pool waits"));
    let rows: Vec<&str> =
        section.expect("the section").lines().filter(|line| line.starts_with("| `")).collect();
    let expected = Blocked::ALL.map(|why| format!("| `{}` | {} |", why.as_str(), why.meaning()));
    assert_eq!(rows, expected, "in the order in which they apply");
    let words: BTreeSet<String> = Blocked::ALL.iter().map(|why| why.as_str().to_owned()).collect();
    assert_eq!(words, enumerated(&api(), &["BlockedBy"]));
}

#[test]
fn every_trigger_of_an_attempt_is_explained_and_no_other() {
    let words: BTreeSet<String> = Trigger::ALL.iter().map(|trigger| trigger.as_str().to_owned()).collect();
    assert_eq!(words, first_cells(&read("docs/admin-api.md"), "The last attempt"));
    assert_eq!(words, enumerated(&api(), &["Pool", "lastAttempt", "trigger"]));
}

#[test]
fn every_state_and_reason_of_a_node_is_explained() {
    let words = |all: &[&str]| -> BTreeSet<String> { all.iter().map(|&word| word.to_owned()).collect() };
    let document = read("docs/admin-api.md");
    let states = words(&NodeState::ALL.map(NodeState::as_str));
    assert_eq!(states, first_cells(&document, "Nodes that leave service"));
    let api = api();
    assert_eq!(states, enumerated(&api, &["NodeState"]));
    let sums = fields(&api, &["AdminState"]);
    assert!(states.is_subset(&sums), "each is counted: {sums:?}");

    let section = document.split("\n## ").find(|section| section.starts_with("Nodes that leave service"));
    let section = section.expect("the section");
    let is_documented = |word: &String| section.contains(&format!("`{word}`"));
    let reasons = words(&Signal::ALL.map(Signal::as_str));
    assert_eq!(reasons, enumerated(&api, &["Node", "reasons"]));
    let pools = words(&NodePoolState::ALL.map(NodePoolState::as_str));
    // A pool of a node in service needs no action.
    let all: BTreeSet<String> = pools.iter().cloned().chain(["in_service".to_owned()]).collect();
    assert_eq!(all, enumerated(&api, &["Node", "inPools", "state"]));
    let counted = fields(&api, &["Node", "pools"]);
    assert!(pools.is_subset(&counted), "{counted:?}");
    assert!(reasons.iter().chain(&all).all(is_documented), "the document names each of them");
}

#[test]
fn every_resource_state_and_pool_diagnostic_is_explained() {
    let words = |all: &[&str]| -> BTreeSet<String> { all.iter().map(|&word| word.to_owned()).collect() };
    let document = read("docs/admin-api.md");
    let states = words(&ResourceState::ALL.map(ResourceState::as_str));
    assert_eq!(states, first_cells(&document, "Resources of control planes"));
    let api = api();
    assert_eq!(states, enumerated(&api, &["ResourceState"]));
    let cached = words(&CacheState::ALL.map(CacheState::as_str));
    assert_eq!(cached, enumerated(&api, &["CacheState"]));
    let types = words(&ResourceKind::ALL.map(ResourceKind::resource_type));
    assert_eq!(types, enumerated(&api, &["ResourceType"]));
    let section = document.split("\n## ").find(|section| section.starts_with("Resources of control planes"));
    let section = section.expect("the section");
    let reasons = enumerated(&api, &["ResourceReason"]);
    let assigned = enumerated(&api, &["Assigned"]);
    let is_documented = |word: &String| section.contains(&format!("`{word}`"));
    assert!(
        cached.iter().chain(&types).chain(&reasons).chain(&assigned).all(is_documented),
        "it names each of them"
    );
    let xds = read("docs/xds.md");
    assert!(states.iter().all(|state| xds.contains(&format!("`{state}`"))), "docs/xds.md names each state");

    let source = read("actors/core/model/src/xds/diagnostic.rs");
    let body = source.split_once("\nimpl Diagnostic {").and_then(|(_, rest)| rest.split_once("\n}\n"));
    let (body, _) = body.expect("diagnostic.rs has the names of diagnostics");
    let diagnostics: BTreeSet<String> = quoted(body).map(str::to_owned).collect();
    assert!(diagnostics.len() >= 8, "{diagnostics:?}");
    assert_eq!(diagnostics, enumerated(&api, &["PoolDiagnostic", "reason"]));
    assert_eq!(diagnostics, first_cells(&xds, "Diagnostics"));
}

/// Returns the only block of this language in docs/xds.md.
fn example(language: &str) -> String {
    let document = read("docs/xds.md");
    let section = document.split("\n## ").find(|section| section.starts_with("Configuration"));
    let (_, rest) =
        section.and_then(|section| section.split_once(&format!("```{language}\n"))).expect("a block");
    rest.split_once("```").expect("the block ends").0.to_owned()
}

#[test]
fn the_examples_of_a_control_plane_are_valid() {
    let bootstrap = ::xds::Bootstrap::parse(&example("json")).expect("a good bootstrap");
    assert!(bootstrap.warnings().is_empty(), "{:?}", bootstrap.warnings());
    assert_eq!(bootstrap.node_id(), "backend-pools");
    let cloud = ::config::Source::new(
        "azure.json",
        r#"{
            "cloud": "AzurePublicCloud", "resourceManagerEndpoint": "http://127.0.0.1:9", "tenantId": "t-1",
            "subscriptionId": "s-1", "resourceGroup": "rg", "vnetName": "vnet", "loadBalancerSku": "standard",
            "loadBalancerBackendPoolConfigurationType": "nodeIP",
            "multipleStandardLoadBalancerConfigurations": [{ "name": "kubernetes", "primaryVMSet": "vmss" }]
        }"#,
    );
    let text = format!("identity: anonymous\n{}", example("yaml"));
    let controller = ::config::Source::new("controller.yaml", text);
    let loaded = ::config::Config::load(cloud, controller, &BTreeMap::new()).expect("a good configuration");
    let pools = &loaded.config.controller.pools;
    let sources: Vec<&str> = pools.iter().map(|pool| pool.source.as_str()).collect();
    assert_eq!(sources, ["eds:web", "eds:web", "cluster:api"]);
    assert!(loaded.config.controller.xds.bootstrap.is_some());
}

/// Returns the paths of the routes in a source with this method.
fn routes(source: &str, method: &str) -> BTreeSet<String> {
    let source = read(source);
    let routes = source
        .lines()
        .filter_map(|line| line.trim().split_once(&format!(".service({method}(")))
        .map(|(_, rest)| rest);
    let served: BTreeSet<String> = routes.filter_map(|rest| quoted(rest).next()).map(str::to_owned).collect();
    assert!(served.len() >= 4, "{served:?}");
    served
}

#[test]
fn every_route_is_explained_and_no_other() {
    for (source, method, heading) in [
        ("src/http/admin.rs", "get", "Admin API"),
        ("src/http/health.rs", "get", "Health and metrics"),
        ("src/http/post.rs", "post", "Requests"),
    ] {
        assert_eq!(routes(source, method), first_cells(&read("docs/admin-api.md"), heading));
    }
}

/// Returns the OpenAPI document.
fn api() -> Value {
    azure_backend_pool_controller::openapi_document()
}

/// Returns the schema at a path of fields below the schema with this name. Resolves references, lists and nullable
/// types.
fn schema<'a>(api: &'a Value, path: &[&str]) -> &'a Value {
    let behind = |mut schema: &'a Value| loop {
        let reference = schema["$ref"].as_str().and_then(|at| at.strip_prefix('#'));
        schema = match (reference, schema.get("oneOf").or(schema.get("items"))) {
            (Some(at), _) => api.pointer(at).unwrap_or_else(|| panic!("there is no {at}")),
            (None, Some(Value::Array(either))) => &either[0],
            (None, Some(items)) => items,
            (None, None) => return schema,
        };
    };
    let (name, fields) = path.split_first().expect("a name");
    let named = behind(&api["components"]["schemas"][*name]);
    fields.iter().fold(named, |schema, field| behind(&schema["properties"][*field]))
}

/// Returns the enum values of the schema at this path.
fn enumerated(api: &Value, path: &[&str]) -> BTreeSet<String> {
    let words = schema(api, path)["enum"].as_array().unwrap_or_else(|| panic!("no list of words: {path:?}"));
    words.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the fields of the schema at this path.
fn fields(api: &Value, path: &[&str]) -> BTreeSet<String> {
    let fields = schema(api, path)["properties"].as_object().unwrap_or_else(|| panic!("no fields: {path:?}"));
    fields.keys().cloned().collect()
}

/// Collects all references of a document.
fn references(value: &Value, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            all.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|inner| references(inner, all));
        }
        Value::Array(items) => items.iter().for_each(|inner| references(inner, all)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the names of an operation's parameters that are in this part of a request.
fn parameters(api: &Value, operation: &Value, part: &str) -> BTreeSet<String> {
    let all = operation["parameters"].as_array().into_iter().flatten();
    let all = all.map(|parameter| {
        let at = parameter["$ref"].as_str().and_then(|at| at.strip_prefix('#')).expect("a reference");
        api.pointer(at).unwrap_or_else(|| panic!("there is no {at}"))
    });
    let named = all.filter(|parameter| parameter["in"] == part).inspect(|parameter| {
        assert_eq!(parameter["required"], part == "path", "{parameter}");
    });
    named.map(|parameter| parameter["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn every_route_is_in_the_openapi_document_and_no_other() {
    let api = api();
    let described = |method: &str| -> BTreeSet<String> {
        let paths = api["paths"].as_object().expect("paths").iter();
        paths.filter(|(_, item)| item.get(method).is_some()).map(|(path, _)| path.clone()).collect()
    };
    assert_eq!(described("get"), routes("src/http/admin.rs", "get"));
    assert_eq!(described("post"), routes("src/http/post.rs", "post"));
    let (mut ids, mut count) = (BTreeSet::new(), 0);
    for (path, item) in api["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            assert!(["get", "post"].contains(&method.as_str()), "{method} {path}");
            let named: BTreeSet<String> = path
                .split('{')
                .skip(1)
                .filter_map(|rest| rest.split_once('}'))
                .map(|(name, _)| name.to_owned())
                .collect();
            assert_eq!(parameters(&api, operation, "path"), named, "{method} {path}");
            ids.insert(operation["operationId"].as_str().expect("an id").to_owned());
            count += 1;
        }
    }
    assert_eq!(ids.len(), count, "operation ids are unique: {ids:?}");
    let document = read("docs/admin-api.md");
    let section =
        document.split("\n## ").find(|section| section.starts_with("Admin API")).expect("the section");
    for row in section.lines().filter(|line| line.starts_with("| `/")) {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let path = cells.next().expect("a path").trim_matches('`');
        let documented: BTreeSet<String> =
            cells.next().expect("parameters").split('`').skip(1).step_by(2).map(str::to_owned).collect();
        assert_eq!(parameters(&api, &api["paths"][path]["get"], "query"), documented, "{path}");
    }
    let mut all = BTreeSet::new();
    references(&api, &mut all);
    let lost: Vec<&String> =
        all.iter().filter(|at| at.strip_prefix('#').and_then(|at| api.pointer(at)).is_none()).collect();
    assert!(all.len() > 50 && lost.is_empty(), "{lost:?}");
}

#[test]
fn every_log_line_of_a_warning_or_an_error_is_explained() {
    let explained = first_cells(&read("docs/errors.md"), "Log");
    let mut documented = BTreeSet::new();
    for file in sources(&["src/", "actors/src/", "actors/arm/src/", "actors/xds/src/"]) {
        for call in ["tracing::warn!(", "tracing::error!(", "log_write!(warn,"] {
            for (at, _) in file.match_indices(call) {
                documented.insert(message(&file[at + call.len()..]));
            }
        }
    }
    assert!(documented.len() >= 10, "{documented:?}");
    assert_eq!(documented, explained);
}

/// Returns the message of a logging macro: the last quoted text before its closing parenthesis.
fn message(call: &str) -> String {
    let (mut depth, mut inside, mut end) = (0, false, call.len());
    for (at, letter) in call.char_indices() {
        match letter {
            '"' => inside = !inside,
            '(' if !inside => depth += 1,
            ')' if !inside && depth == 0 => {
                end = at;
                break;
            }
            ')' if !inside => depth -= 1,
            _ => {}
        }
    }
    quoted(&call[..end]).last().unwrap_or_default().to_owned()
}

/// Returns the texts of all sources below these folders, without unit tests.
fn sources(folders: &[&str]) -> Vec<String> {
    let below = |path: &str| folders.iter().any(|folder| path.starts_with(folder));
    let all = tidy::files(&[".rs"]).into_iter().filter(|(path, _)| below(path) && !tidy::is_test(path));
    all.map(|(_, text)| tidy::before_tests(&text).to_owned()).collect()
}
