//! Who we are to a control plane: the node of the bootstrap, with what a client adds to it.

use std::fmt;

use envoy_types::pb::envoy::config::core::v3::{self as core, node::UserAgentVersionType};
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value as Proto, value::Kind};
use serde_json::{Map, Value};

use super::BootstrapError;
use super::json::At;

/// By which a control plane knows what program this is.
pub(crate) const USER_AGENT: &str = "azure-backend-pool-controller";

/// What we can do besides: overprovisioning factors are not heeded (A27), and resources may come in their wrapper.
const FEATURES: [&str; 2] = ["envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw"];

/// Who we are to a control plane. Its metadata may hold secrets, and is not shown by `Debug`.
#[derive(Clone, PartialEq, Default)]
pub struct Node(core::Node);

impl Node {
    /// The node of this document. It may be missing, and so may its id: gRPC allows that too.
    pub(super) fn of(root: &At<'_>) -> Result<Node, BootstrapError> {
        let mut node = core::Node {
            user_agent_name: USER_AGENT.to_owned(),
            client_features: FEATURES.map(str::to_owned).to_vec(),
            ..core::Node::default()
        };
        let Some(given) = root.field("node")? else { return Ok(Node(node)) };
        let text = |at: &At<'_>, name| at.text_of(name).map(|text| text.unwrap_or_default().to_owned());
        node.id = text(&given, "id")?;
        node.cluster = text(&given, "cluster")?;
        if let Some(locality) = given.field("locality")? {
            node.locality = Some(core::Locality {
                region: text(&locality, "region")?,
                zone: text(&locality, "zone")?,
                sub_zone: text(&locality, "sub_zone")?,
            });
        }
        if let Some(metadata) = given.field("metadata")? {
            node.metadata = Some(structure(metadata.fields()?));
        }
        Ok(Node(node))
    }

    /// The same, of this version of ours.
    pub(super) fn of_version(&self, version: &str) -> Node {
        let mut node = self.0.clone();
        node.user_agent_version_type = Some(UserAgentVersionType::UserAgentVersion(version.to_owned()));
        Node(node)
    }

    /// Its id; empty: it has none.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// As it is sent.
    pub(crate) fn message(&self) -> &core::Node {
        &self.0
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("id", &self.0.id)
            .field("cluster", &self.0.cluster)
            .finish_non_exhaustive()
    }
}

fn structure(fields: &Map<String, Value>) -> Struct {
    Struct { fields: fields.iter().map(|(name, value)| (name.clone(), proto(value))).collect() }
}

fn proto(value: &Value) -> Proto {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(items) => Kind::ListValue(ListValue { values: items.iter().map(proto).collect() }),
        Value::Object(fields) => Kind::StructValue(structure(fields)),
    };
    Proto { kind: Some(kind) }
}
