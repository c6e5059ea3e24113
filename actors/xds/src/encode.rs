//! Encodes a client's request as the bytes of a `DiscoveryRequest`. The client decides about its contents.

use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use envoy_types::pb::google::rpc::Status;
use model::xds::facts::Code;
use model::xds::stream::XdsRequest;
use prost::Message;

use crate::bootstrap::Node;

/// Encodes a request, with this node if the request includes it.
#[must_use]
pub fn request(request: &XdsRequest, node: &Node) -> Vec<u8> {
    let error = request.error.as_ref().map(|nack| Status {
        code: Code::InvalidArgument.number(),
        message: nack.message.to_string(),
        details: Vec::new(),
    });
    let message = DiscoveryRequest {
        version_info: request.version.to_string(),
        node: request.node.then(|| node.message().clone()),
        resource_names: request.names.iter().map(ToString::to_string).collect(),
        resource_locators: Vec::new(),
        type_url: request.kind.type_url().to_owned(),
        response_nonce: request.nonce.to_string(),
        error_detail: error,
    };
    message.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::xds::facts::ResourceKind;
    use model::xds::stream::Nack;

    use super::*;
    use crate::bootstrap::Bootstrap;

    fn node() -> Node {
        let text = r#"{"xds_servers": [{"server_uri": "xds.test", "channel_creds": [{"type": "insecure"}]}],
            "node": {"id": "pools-1"}}"#;
        Bootstrap::parse(text).unwrap().node("1.2.3")
    }

    fn request_with(version: &str, nonce: &str, error: Option<&str>, node: bool) -> XdsRequest {
        XdsRequest {
            kind: ResourceKind::Endpoints,
            version: Arc::from(version),
            nonce: Arc::from(nonce),
            names: ["a", "b"].map(Arc::from).to_vec(),
            error: error.map(|message| Nack { message: Arc::from(message) }),
            node,
        }
    }

    fn sent(to_send: &XdsRequest) -> DiscoveryRequest {
        DiscoveryRequest::decode(request(to_send, &node()).as_slice()).unwrap()
    }

    #[test]
    fn x2_the_first_request_of_a_stream_has_the_node() {
        let sent = sent(&request_with("", "", None, true));
        assert_eq!(sent.node.as_ref(), Some(node().message()));
        assert_eq!(sent.type_url, "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment");
        assert_eq!(sent.resource_names, ["a", "b"]);
        assert_eq!((sent.version_info.as_str(), sent.response_nonce.as_str()), ("", ""));
        assert_eq!(sent.error_detail, None);
    }

    #[test]
    fn x2_a_nack_has_the_accepted_version_the_nonce_and_the_code() {
        let sent = sent(&request_with("7", "n8", Some("resource index 0: no port"), false));
        assert_eq!((sent.version_info.as_str(), sent.response_nonce.as_str()), ("7", "n8"));
        let error = sent.error_detail.unwrap();
        assert_eq!((error.code, error.message.as_str()), (3, "resource index 0: no port"));
        assert_eq!(sent.node, None);
    }
}
