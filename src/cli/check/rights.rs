//! What our service account must be allowed to do: the same as docs/rbac.yaml gives, which a test compares. Leases and
//! the ConfigMap are asked for by name, as the rules there go by it; only who creates has no name to go by yet.

use actors::kubernetes::{Place, Places};
use serde_json::{Value, json};

use super::finding::{Check, Findings, Severity};
use crate::cli::api_server::ApiServer;

/// The one verb that RBAC cannot limit to a name: the object has none before.
const CREATE: &str = "create";

/// Where a right is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Within {
    /// Everywhere.
    Cluster,
    /// On the object at the place of our own Lease.
    Own,
    /// On the Lease that the cloud-controller-manager takes too.
    Shared,
    /// On the Deployment that runs us, where one is named.
    Deployment,
}

/// What is needed of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Right {
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    pub(super) verbs: &'static [&'static str],
    pub(super) within: Within,
    /// What does not work without it.
    pub(super) why: &'static str,
}

/// All of it.
pub(super) const RIGHTS: [Right; 12] = [
    Right {
        group: "",
        resource: "services",
        verbs: &["list", "watch"],
        within: Within::Cluster,
        why: "which pools there are is never known, so nothing is written",
    },
    Right {
        group: "",
        resource: "nodes",
        verbs: &["list", "watch"],
        within: Within::Cluster,
        why: "the nodes' addresses are never known, so nothing is written",
    },
    Right {
        group: "",
        resource: "nodes",
        verbs: &["patch"],
        within: Within::Cluster,
        why: "a node that is evicted gets no taint, so pods go on being placed on it, and who leads next may not know of it",
    },
    Right {
        group: "discovery.k8s.io",
        resource: "endpointslices",
        verbs: &["list", "watch"],
        within: Within::Cluster,
        why: "which nodes host endpoints is never known, so nothing is written",
    },
    Right {
        group: "",
        resource: "events",
        verbs: &["create", "patch", "list"],
        within: Within::Cluster,
        why: "Services and Nodes get no events, or the waits of the cloud-controller-manager are not seen",
    },
    Right {
        group: "",
        resource: "events",
        verbs: &["watch"],
        within: Within::Cluster,
        why: "evictions of nodes are not seen, so traffic goes on to them until their probes fail",
    },
    Right {
        group: "authentication.k8s.io",
        resource: "tokenreviews",
        verbs: &["create"],
        within: Within::Cluster,
        why: "the admin API cannot tell who asks, and refuses what needs a token",
    },
    Right {
        group: "authorization.k8s.io",
        resource: "subjectaccessreviews",
        verbs: &["create"],
        within: Within::Cluster,
        why: "the admin API cannot tell who may ask, and refuses what needs a token",
    },
    Right {
        group: "coordination.k8s.io",
        resource: "leases",
        verbs: &["get", "create", "update", "watch"],
        within: Within::Own,
        why: "this replica never leads, so nothing is written",
    },
    Right {
        group: "coordination.k8s.io",
        resource: "leases",
        verbs: &["get", "create", "update", "watch"],
        within: Within::Shared,
        why: "this replica never may write beside the cloud-controller-manager, so nothing is written",
    },
    Right {
        group: "",
        resource: "configmaps",
        verbs: &["get", "create", "update"],
        within: Within::Own,
        why: "nothing is written, because it is not known what operators have paused and which nodes are Down by us, and starts \
              are not noted",
    },
    Right {
        group: "apps",
        resource: "deployments",
        verbs: &["get"],
        within: Within::Deployment,
        why: "events about the controller itself are attached to its Pod, or else to its own Lease, and not to its Deployment",
    },
];

/// The objects that rights are about.
pub(super) struct Objects<'a> {
    /// Both Leases; our ConfigMap is at the place of our own.
    pub(super) places: &'a Places,
    /// The Deployment that runs us; `None`: none is named, and none is read.
    pub(super) deployment: Option<&'a Place>,
}

impl Within {
    /// The object that it is about; `None`: about all. Without the outer one, it is about nothing that there is.
    fn place<'a>(self, objects: &Objects<'a>) -> Option<Option<&'a Place>> {
        match self {
            Within::Cluster => Some(None),
            Within::Own => Some(Some(&objects.places.own)),
            Within::Shared => Some(Some(&objects.places.shared)),
            Within::Deployment => objects.deployment.map(Some),
        }
    }

    /// How bad it is that such a right is missing.
    fn severity(self) -> Severity {
        match self {
            Within::Cluster | Within::Own | Within::Shared => Severity::Problem,
            Within::Deployment => Severity::Warning,
        }
    }
}

impl Right {
    /// What the API server is asked about one verb.
    fn attributes(&self, verb: &str, place: Option<&Place>) -> Value {
        let mut attributes = json!({ "group": self.group, "resource": self.resource, "verb": verb });
        if let Some(Place { namespace, name }) = place {
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

/// Asks for each right.
pub(super) async fn look(server: &ApiServer, objects: &Objects<'_>, findings: &mut Findings) {
    let (mut granted, mut asked) = (0, 0);
    for right in RIGHTS {
        let Some(place) = right.within.place(objects) else { continue };
        let mut missing = Vec::new();
        for verb in right.verbs {
            match allowed(server, &right.attributes(verb, place)).await {
                Ok(true) => granted += 1,
                Ok(false) => missing.push(*verb),
                Err(why) => return cannot_ask(&why, findings),
            }
            asked += 1;
        }
        if !missing.is_empty() {
            let at = place.map(|at| format!(" in {} ({})", at.namespace, at.name)).unwrap_or_default();
            let what = format!("our account may not {} {}{at}", missing.join(", "), right.name());
            let remedy = "grant what docs/rbac.yaml grants, in the namespaces and for the names of leaderElection, lease and \
                          DEPLOYMENT_NAME, to the account that the controller runs as";
            findings.wrong(right.within.severity(), Check::Rights, what, right.why, remedy);
        }
    }
    if granted == asked {
        findings.ok(Check::Rights, format!("our account may do all {asked} things of docs/rbac.yaml"));
    }
}

fn cannot_ask(why: &str, findings: &mut Findings) {
    let what = format!("our rights cannot be asked for: {why}");
    let remedy =
        "let the account create selfsubjectaccessreviews.authorization.k8s.io; every account may, by default";
    findings.warning(Check::Rights, what, "it is not known whether the controller may do its work", remedy);
}

async fn allowed(server: &ApiServer, attributes: &Value) -> Result<bool, String> {
    let answer = server.may(attributes).await?;
    if !answer.status.is_success() {
        return Err(answer.words());
    }
    answer.body["status"]["allowed"].as_bool().ok_or_else(|| "the answer says nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Namespace, API group, resource, verb, name; what does not count is empty.
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
    fn check_asks_for_each_right_of_rbac_yaml_and_for_no_other() {
        let at = |name: &str| Place { namespace: "kube-system".into(), name: name.into() };
        let places =
            Places { own: at("azure-backend-pool-controller"), shared: at("aks-managed-resource-locker") };
        let deployment = at("azure-backend-pool-controller");
        let objects = Objects { places: &places, deployment: Some(&deployment) };
        let mut asked = BTreeSet::new();
        for right in RIGHTS {
            let place = right.within.place(&objects).expect("each object is named");
            for verb in right.verbs {
                let attributes = right.attributes(verb, place);
                let keys = ["namespace", "group", "resource", "verb", "name"];
                asked.insert(keys.map(|key| attributes[key].as_str().unwrap_or_default().to_owned()));
            }
        }
        assert_eq!(asked, granted());
    }
}
