//! The rights that the service account needs: those of docs/rbac.yaml, as a test ensures. Rights on Leases and the
//! ConfigMap are reviewed with their names, as in the rules there; only rights to create have no name.

use actors::kubernetes::{LeaseNames, NamespacedName};
use serde_json::{Value, json};

use super::finding::{Check, Findings, Severity};
use crate::cli::api_server::ApiServer;

/// The verb that RBAC cannot limit to a name: the object does not exist yet.
const CREATE: &str = "create";

/// The objects that a right is needed for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Within {
    /// All objects of the cluster.
    Cluster,
    /// The object with the namespace and name of our own Lease.
    Own,
    /// The Lease that the cloud-controller-manager takes too.
    Shared,
    /// The Deployment of the controller, if one is named.
    Deployment,
}

/// The rights that are needed on one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequiredPermission {
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    pub(super) verbs: &'static [&'static str],
    pub(super) within: Within,
    /// The effect of its absence.
    pub(super) without: &'static str,
}

/// All rights that the controller needs.
pub(super) const RIGHTS: [RequiredPermission; 12] = [
    RequiredPermission {
        group: "",
        resource: "services",
        verbs: &["list", "watch"],
        within: Within::Cluster,
        without: "Services cannot be read, so nothing is written",
    },
    RequiredPermission {
        group: "",
        resource: "nodes",
        verbs: &["list", "watch"],
        within: Within::Cluster,
        without: "Nodes cannot be read, so nothing is written",
    },
    RequiredPermission {
        group: "",
        resource: "nodes",
        verbs: &["patch"],
        within: Within::Cluster,
        without: "evicted nodes get no taint, so Pods are still scheduled on them, and a new leader may miss the eviction",
    },
    RequiredPermission {
        group: "discovery.k8s.io",
        resource: "endpointslices",
        verbs: &["list", "watch"],
        within: Within::Cluster,
        without: "EndpointSlices cannot be read, so nothing is written",
    },
    RequiredPermission {
        group: "",
        resource: "events",
        verbs: &["create", "patch", "list"],
        within: Within::Cluster,
        without: "Services and Nodes get no events, or lock failures of the cloud-controller-manager are not counted",
    },
    RequiredPermission {
        group: "",
        resource: "events",
        verbs: &["watch"],
        within: Within::Cluster,
        without: "evictions of nodes are not seen, so traffic reaches them until their probes fail",
    },
    RequiredPermission {
        group: "authentication.k8s.io",
        resource: "tokenreviews",
        verbs: &["create"],
        within: Within::Cluster,
        without: "the admin API cannot authenticate clients, and refuses requests that need a token",
    },
    RequiredPermission {
        group: "authorization.k8s.io",
        resource: "subjectaccessreviews",
        verbs: &["create"],
        within: Within::Cluster,
        without: "the admin API cannot authorize clients, and refuses requests that need a token",
    },
    RequiredPermission {
        group: "coordination.k8s.io",
        resource: "leases",
        verbs: &["get", "create", "update", "watch"],
        within: Within::Own,
        without: "this replica never leads, so nothing is written",
    },
    RequiredPermission {
        group: "coordination.k8s.io",
        resource: "leases",
        verbs: &["get", "create", "update", "watch"],
        within: Within::Shared,
        without: "this replica may never write beside the cloud-controller-manager, so nothing is written",
    },
    RequiredPermission {
        group: "",
        resource: "configmaps",
        verbs: &["get", "create", "update"],
        within: Within::Own,
        without: "nothing is written, because pauses and node records cannot be read",
    },
    RequiredPermission {
        group: "apps",
        resource: "deployments",
        verbs: &["get"],
        within: Within::Deployment,
        without: "events about the controller itself are attached to its Pod or Lease, not to its Deployment",
    },
];

/// The objects that rights are about.
pub(super) struct Objects<'a> {
    /// Both Leases; our ConfigMap has the namespace and name of our own Lease.
    pub(super) leases: &'a LeaseNames,
    /// The Deployment of the controller; `None` if none is named.
    pub(super) deployment: Option<&'a NamespacedName>,
}

impl Within {
    /// Returns the object: `Some(None)` for all objects, `None` if the object is not configured.
    fn object<'a>(self, objects: &Objects<'a>) -> Option<Option<&'a NamespacedName>> {
        match self {
            Within::Cluster => Some(None),
            Within::Own => Some(Some(&objects.leases.own)),
            Within::Shared => Some(Some(&objects.leases.shared)),
            Within::Deployment => objects.deployment.map(Some),
        }
    }

    /// Returns the severity of a missing right.
    fn severity(self) -> Severity {
        match self {
            Within::Cluster | Within::Own | Within::Shared => Severity::Problem,
            Within::Deployment => Severity::Warning,
        }
    }
}

impl RequiredPermission {
    /// Returns the attributes of the access review of one verb.
    fn attributes(&self, verb: &str, object: Option<&NamespacedName>) -> Value {
        let mut attributes = json!({ "group": self.group, "resource": self.resource, "verb": verb });
        if let Some(NamespacedName { namespace, name }) = object {
            attributes["namespace"] = json!(&**namespace);
            if verb != CREATE {
                attributes["name"] = json!(&**name);
            }
        }
        attributes
    }

    fn name(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}

/// Reviews all rights.
pub(super) async fn check_rights(server: &ApiServer, objects: &Objects<'_>, findings: &mut Findings) {
    let (mut granted, mut reviewed) = (0, 0);
    for right in RIGHTS {
        let Some(object) = right.within.object(objects) else { continue };
        let mut missing = Vec::new();
        for verb in right.verbs {
            match allowed(server, &right.attributes(verb, object)).await {
                Ok(true) => granted += 1,
                Ok(false) => missing.push(*verb),
                Err(reason) => return report_unknown(&reason, findings),
            }
            reviewed += 1;
        }
        if !missing.is_empty() {
            let object = object.map(|it| format!(" in {} ({})", it.namespace, it.name)).unwrap_or_default();
            let what = format!("the account may not {} {}{object}", missing.join(", "), right.name());
            let remedy = "grant the rights in docs/rbac.yaml, in the namespaces and for the names of leaderElection, lease \
                          and DEPLOYMENT_NAME, to the service account of the controller";
            findings.push(right.within.severity(), Check::Rights, what, right.without, remedy);
        }
    }
    if granted == reviewed {
        findings.ok(Check::Rights, format!("the account has all {reviewed} rights of docs/rbac.yaml"));
    }
}

fn report_unknown(reason: &str, findings: &mut Findings) {
    let what = format!("the rights of the account cannot be reviewed: {reason}");
    let remedy =
        "let the account create selfsubjectaccessreviews.authorization.k8s.io; every account may, by default";
    let means = "the check could not determine whether the controller has its permissions";
    findings.warning(Check::Rights, what, means, remedy);
}

async fn allowed(server: &ApiServer, attributes: &Value) -> Result<bool, String> {
    let answer = server.review_access(attributes).await?;
    if !answer.status.is_success() {
        return Err(answer.failure_text());
    }
    answer.body["status"]["allowed"].as_bool().ok_or_else(|| "the answer has no status.allowed".to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Namespace, API group, resource, verb, name; empty if not restricted.
    type Grant = [String; 5];

    fn texts(value: &Value) -> Vec<String> {
        value.as_array().expect("a list").iter().map(|it| it.as_str().expect("a text").to_owned()).collect()
    }

    fn granted() -> BTreeSet<Grant> {
        let documents = include_str!("../../../docs/rbac.yaml").split("\n---\n");
        let roles = documents.map(|text| serde_saphyr::from_str::<Value>(text).expect("yaml"));
        let mut granted = BTreeSet::new();
        for role in roles.filter(|it| it["rules"].is_array()) {
            let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
            for rule in role["rules"].as_array().expect("rules") {
                let names = &rule["resourceNames"];
                let names = if names.is_null() { vec![String::new()] } else { texts(names) };
                for group in texts(&rule["apiGroups"]) {
                    for resource in texts(&rule["resources"]) {
                        for verb in texts(&rule["verbs"]) {
                            granted.extend(
                                names.iter().map(|name| {
                                    [namespace, &group, &resource, &verb, name].map(str::to_owned)
                                }),
                            );
                        }
                    }
                }
            }
        }
        granted
    }

    #[test]
    fn check_reviews_exactly_the_rights_of_rbac_yaml() {
        let named = |name: &str| NamespacedName { namespace: "kube-system".into(), name: name.into() };
        let leases = LeaseNames {
            own: named("azure-backend-pool-controller"),
            shared: named("aks-managed-resource-locker"),
        };
        let deployment = named("azure-backend-pool-controller");
        let objects = Objects { leases: &leases, deployment: Some(&deployment) };
        let mut reviewed = BTreeSet::new();
        for right in RIGHTS {
            let object = right.within.object(&objects).expect("each object is named");
            for verb in right.verbs {
                let attributes = right.attributes(verb, object);
                let keys = ["namespace", "group", "resource", "verb", "name"];
                reviewed.insert(keys.map(|key| attributes[key].as_str().unwrap_or_default().to_owned()));
            }
        }
        assert_eq!(reviewed, granted());
    }
}
