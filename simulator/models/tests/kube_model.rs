//! The model of kube-apiserver answers like the real one (docs/design/surface.md, Z1).

#[path = "kube_model/events.rs"]
mod events;
#[path = "kube_model/faults.rs"]
mod faults;
#[path = "kube_model/listing.rs"]
mod listing;
#[path = "kube_model/properties.rs"]
mod properties;
#[path = "kube_model/recorded.rs"]
mod recorded;
#[path = "kube_model/watching.rs"]
mod watching;
#[path = "kube_model/writing.rs"]
mod writing;

use serde_json::Value;
use simulator_models::kube::build::{Endpoint, Family, endpoint_slice, service};
use simulator_models::kube::{KubeModel, Reply, Request, Settings, WatchId};

/// A model with the clock of the test.
struct Server {
    model: KubeModel,
    now: u64,
}

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/demo/endpointslices";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

impl Server {
    fn new() -> Server {
        Server { model: KubeModel::new(Settings::default()), now: 0 }
    }

    fn with(settings: Settings) -> Server {
        Server { model: KubeModel::new(settings), now: 0 }
    }

    fn handle(&mut self, request: &Request) -> Reply {
        self.model.handle(request, self.now)
    }

    /// Returns status and body of a request that is not a watch.
    fn send(&mut self, request: &Request) -> (u16, Value) {
        match self.handle(request) {
            Reply::Answer { status, body, .. } => {
                (status, serde_json::from_slice(&body).expect("the answer is JSON"))
            }
            Reply::Watch(..) | Reply::Refused => panic!("expected an answer to {}", request.path_and_query),
        }
    }

    fn get(&mut self, path: &str) -> (u16, Value) {
        self.send(&Request::new("GET", path))
    }

    fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        self.send(&Request::new("POST", path).with_body("application/json", body))
    }

    fn put(&mut self, path: &str, body: &Value) -> (u16, Value) {
        self.send(&Request::new("PUT", path).with_body("application/json", body))
    }

    fn patch(&mut self, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        self.send(&Request::new("PATCH", path).with_body(kind, body))
    }

    fn delete(&mut self, path: &str) -> (u16, Value) {
        self.send(&Request::new("DELETE", path))
    }

    /// Opens a watch; returns its first lines, decoded.
    fn watch(&mut self, path: &str) -> (WatchId, Vec<Value>) {
        match self.handle(&Request::new("GET", path)) {
            Reply::Watch(id, lines) => (id, decode(&lines)),
            other @ (Reply::Answer { .. } | Reply::Refused) => panic!("expected a watch, got {other:?}"),
        }
    }

    fn poll(&mut self, id: WatchId) -> Vec<Value> {
        decode(&self.model.poll_watch(id, self.now))
    }

    /// Applies slice `index` of Service `web` in `demo` with one ready endpoint for each node.
    fn slice(&mut self, index: usize, nodes: &[&str]) -> u64 {
        let endpoints: Vec<Endpoint> = nodes.iter().map(|node| Endpoint::ready(node)).collect();
        let slice = endpoint_slice("demo", "web", index, &endpoints, Family::V4);
        self.model.apply(slice, self.now).expect("a slice")
    }

    fn service(&mut self, name: &str) -> u64 {
        self.model.apply(service("demo", name, &[80], &[Family::V4]), self.now).expect("a service")
    }
}

fn decode<L: AsRef<[u8]>>(lines: &[L]) -> Vec<Value> {
    let lines = lines.iter().map(AsRef::as_ref);
    lines
        .map(|line: &[u8]| {
            assert_eq!(line.last(), Some(&b'\n'), "each line has its end");
            serde_json::from_slice(line).expect("a line is JSON")
        })
        .collect()
}

/// Returns types and names of watch events, such as `ADDED web`.
fn event_names(events: &[Value]) -> Vec<String> {
    events
        .iter()
        .map(|event| {
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or("-");
            format!("{} {name}", event["type"].as_str().unwrap_or("?"))
        })
        .collect()
}

fn version_of(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().expect("a resourceVersion");
    text.parse().expect("a number")
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("a list");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("a name")).collect()
}
