//! docs/rbac.yaml for one test: the account, the own Lease and the ConfigMap are in the test's namespace, and the
//! shared Lease may be the test's own.

use serde_json::{Value, json};

use crate::support::controller::shared_lease;
use crate::support::objects::ACCOUNT;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Returns its objects for a test in this namespace, each with the path of its collection.
pub(super) fn of_test(namespace: &str) -> Vec<(String, Value)> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(include_str!("../../../docs/rbac.yaml")).expect("docs/rbac.yaml is YAML");
    documents.into_iter().map(|object| placed(object, namespace)).collect()
}

fn placed(mut object: Value, namespace: &str) -> (String, Value) {
    let text = |value: &Value| value.as_str().expect("docs/rbac.yaml names it").to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    if let Some(subject) = object.get_mut("subjects") {
        subject[0]["namespace"] = json!(namespace);
    }
    let is_about_shared_lease = name == format!("{ACCOUNT}-shared-lease");
    let path = match (kind.as_str(), is_about_shared_lease) {
        ("ServiceAccount", false) => {
            object["metadata"]["namespace"] = json!(namespace);
            format!("/api/v1/namespaces/{namespace}/serviceaccounts")
        }
        // The same for all tests.
        ("ClusterRole", false) => format!("{RBAC}/clusterroles"),
        ("ClusterRoleBinding", false) => {
            object["metadata"]["name"] = json!(format!("{namespace}-{name}"));
            format!("{RBAC}/clusterrolebindings")
        }
        ("Role" | "RoleBinding", false) => {
            object["metadata"]["namespace"] = json!(namespace);
            format!("{RBAC}/namespaces/{namespace}/{}s", kind.to_lowercase())
        }
        ("Role" | "RoleBinding", true) => {
            object["metadata"]["name"] = json!(format!("{namespace}-{name}"));
            if kind == "RoleBinding" {
                object["roleRef"]["name"] = object["metadata"]["name"].clone();
            }
            for rule in object.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(names) = rule.get_mut("resourceNames").and_then(Value::as_array_mut) {
                    names.push(json!(shared_lease(namespace)));
                }
            }
            format!("{RBAC}/namespaces/{}/{}s", text(&object["metadata"]["namespace"]), kind.to_lowercase())
        }
        (kind, _) => panic!("docs/rbac.yaml has an unknown {kind} {name}"),
    };
    (path, object)
}
