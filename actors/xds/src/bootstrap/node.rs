//! The node of this client: the node of the bootstrap, with the fields that a client adds.

use std::fmt;

use envoy_types::pb::envoy::config::core::v3::{self as core, node::UserAgentVersionType};
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value as Proto, value::Kind};
use serde_json::{Map, Value};

use super::BootstrapError;
use super::json::At;

/// Name of this program for control planes.
pub(crate) const USER_AGENT: &str = "azure-backend-pool-controller";

/// Client features: overprovisioning factors are ignored (A27), and resources may come in their wrapper.
const FEATURES: [&str; 2] = ["envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw"];

/// The node of this client. Its metadata may hold secrets, so `Debug` does not show it.
#[derive(Clone, PartialEq, Default)]
pub struct Node(core::Node);

impl Node {
    /// Reads the node of a document. The node and its id may be missing, as in gRPC.
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

    /// Returns the node with this version.
    pub(super) fn of_version(&self, version: &str) -> Node {
        let mut node = self.0.clone();
        node.user_agent_version_type = Some(UserAgentVersionType::UserAgentVersion(version.to_owned()));
        Node(node)
    }

    /// Returns its id, or an empty text.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Returns the message that is sent.
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
