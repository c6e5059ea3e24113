//! Health, version and API discovery, and the two kinds of review that need no storage.

use serde_json::{Value, json};

use super::KubeModel;
use super::request::{Reply, Request};
use super::resource::Resource;

impl KubeModel {
    /// Answers paths that are not about stored objects; `None` for other paths.
    pub(super) fn answer_fixed(&mut self, request: &Request, segments: &[String]) -> Option<Reply> {
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        if request.method == "POST" {
            let review: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
            let status = match segments.as_slice() {
                [
                    "apis",
                    "authorization.k8s.io",
                    "v1",
                    "selfsubjectaccessreviews" | "subjectaccessreviews",
                ] => self.access(&review),
                ["apis", "authentication.k8s.io", "v1", "tokenreviews"] => {
                    self.fault_effects.token_reviews += 1;
                    authenticated(&review)
                }
                _ => return None,
            };
            let Value::Object(mut answer) = review else {
                return Some(Reply::failure(&super::status::Failure::bad_request(
                    "the review is not an object",
                )));
            };
            answer.insert("status".to_owned(), status);
            return Some(ok(201, &Value::Object(answer)));
        }
        if request.method != "GET" {
            return None;
        }
        let body = match segments.as_slice() {
            ["readyz" | "livez" | "healthz"] => return Some(Reply::text(200, "ok")),
            ["version"] => version(&self.settings.git_version),
            ["api"] => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
            ["apis"] => {
                let groups: Vec<Value> = GROUPS.iter().map(|group| api_group(group)).collect();
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
            }
            ["apis", group] if GROUPS.contains(group) => {
                let mut answer = json!({"kind": "APIGroup", "apiVersion": "v1"});
                for key in ["name", "versions", "preferredVersion"] {
                    answer[key] = api_group(group)[key].clone();
                }
                answer
            }
            ["api", "v1"] => resource_list("", "v1"),
            ["apis", group, "v1"] if GROUPS.contains(group) => resource_list(group, &format!("{group}/v1")),
            _ => return None,
        };
        Some(ok(200, &body))
    }

    /// Answers an access review. Everything is allowed, except the kinds that `forbid` refuses and the actions that
    /// users with special names may not do: the model has no RBAC.
    fn access(&self, review: &Value) -> Value {
        let attributes = &review["spec"]["resourceAttributes"];
        let text = |key: &str| attributes[key].as_str().unwrap_or_default();
        let forbidden = self.faults.forbidden.iter().any(|resource| {
            let facts = resource.facts();
            facts.group == text("group") && facts.plural == text("resource")
        });
        let user = review["spec"]["user"].as_str().unwrap_or_default();
        if let Some(known) = USERS.iter().find(|known| known.name == user) {
            let attributes = &review["spec"]["nonResourceAttributes"];
            let text = |key: &str| attributes[key].as_str().unwrap_or_default();
            let allowed = text("verb") == "get" && known.may_get.iter().any(|url| covers(url, text("path")));
            let reason = if allowed { "a rule of the model lets it" } else { "no rule of the model lets it" };
            return json!({"allowed": allowed, "reason": reason});
        }
        if forbidden {
            json!({"allowed": false, "reason": "forbidden by the model"})
        } else {
            json!({"allowed": true})
        }
    }
}

const GROUPS: [&str; 5] = [
    "authentication.k8s.io",
    "authorization.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
];

/// A token that belongs to no user.
const INVALID_TOKEN: &str = "nobody";

/// A user with a token of its own, who may only `get` these paths.
struct User {
    token: &'static str,
    name: &'static str,
    may_get: &'static [&'static str],
}

const USERS: [User; 3] = [
    User { token: "outsiders-token", name: "outsider", may_get: &[] },
    // Rights of every account by the role system:discovery.
    User {
        token: "discoverers-token",
        name: "discoverer",
        may_get: &[
            "/api",
            "/api/*",
            "/apis",
            "/apis/*",
            "/healthz",
            "/livez",
            "/openapi",
            "/openapi/*",
            "/readyz",
            "/version",
            "/version/",
        ],
    },
    User { token: "readers-token", name: "reader", may_get: &["/azure-backend-pool-controller/*"] },
];

/// Returns whether a rule about this URL covers that path, as in RBAC.
fn covers(url: &str, path: &str) -> bool {
    url.strip_suffix('*').map_or(url == path, |prefix| path.starts_with(prefix))
}

/// Authenticates a token: any non-empty token belongs to one user, except [`INVALID_TOKEN`] and those of [`USERS`]; the
/// model has no passwords.
fn authenticated(review: &Value) -> Value {
    let user = |name: &str| json!({"authenticated": true, "user": {"username": name, "groups": ["system:authenticated"]}});
    match review["spec"]["token"].as_str() {
        None | Some("") => json!({"authenticated": false, "error": "token is empty"}),
        Some(INVALID_TOKEN) => json!({"authenticated": false, "error": "invalid bearer token"}),
        Some(token) => {
            let known = USERS.iter().find(|known| known.token == token);
            user(known.map_or("system:serviceaccount:default:client", |known| known.name))
        }
    }
}

fn ok(status: u16, body: &Value) -> Reply {
    Reply::json(status, body.to_string().into_bytes())
}

fn version(git_version: &str) -> Value {
    let mut numbers = git_version.trim_start_matches('v').split('.');
    let major = numbers.next().unwrap_or_default();
    let minor = numbers.next().unwrap_or_default();
    json!({"major": major, "minor": minor, "gitVersion": git_version, "gitTreeState": "clean",
        "platform": "linux/amd64"})
}

fn api_group(group: &str) -> Value {
    let version = json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
    json!({"name": group, "versions": [version.clone()], "preferredVersion": version})
}

fn resource_list(group: &str, group_version: &str) -> Value {
    let verbs = json!(["create", "delete", "get", "list", "patch", "update", "watch"]);
    let mut resources = Vec::new();
    for resource in Resource::ALL {
        let facts = resource.facts();
        if facts.group != group {
            continue;
        }
        resources.push(json!({"name": facts.plural, "singularName": facts.singular,
            "namespaced": facts.namespaced, "kind": facts.kind, "verbs": verbs}));
        if facts.has_status {
            resources.push(json!({"name": format!("{}/status", facts.plural), "singularName": "",
                "namespaced": facts.namespaced, "kind": facts.kind, "verbs": ["get", "patch", "update"]}));
        }
    }
    let reviews: &[(&str, &str)] = match group {
        "authentication.k8s.io" => &[("tokenreviews", "TokenReview")],
        "authorization.k8s.io" => &[
            ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
            ("subjectaccessreviews", "SubjectAccessReview"),
        ],
        _ => &[],
    };
    for (name, kind) in reviews {
        resources.push(json!({"name": name, "singularName": kind.to_lowercase(), "namespaced": false,
            "kind": kind, "verbs": ["create"]}));
    }
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
}
