//! The chart's NetworkPolicy: on by default, open to all only at the metrics port, and absent with `hostNetwork`.

use serde_json::{Value, json};

use super::rendered;
use crate::support::kubernetes;

#[tokio::test]
async fn a_network_policy_limits_all_ports_except_metrics() {
    let Some(helm) = kubernetes::tool("helm") else { return };
    let policies = async |settings: &[&str]| -> Vec<Value> {
        let more: Vec<&str> = settings.iter().flat_map(|setting| ["--set-json", setting]).collect();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered(&helm, &more).await).expect("YAML");
        objects.into_iter().filter(|object| object["kind"] == "NetworkPolicy").collect()
    };
    let ingress = async |settings: &[&str]| {
        let [policy] = &policies(settings).await[..] else { panic!("not one NetworkPolicy: {settings:?}") };
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        policy["spec"]["ingress"].clone()
    };
    let metrics = json!({ "ports": [{ "port": 8080, "protocol": "TCP" }] });
    let admin = |from: Value| json!({ "ports": [{ "port": 8443, "protocol": "TCP" }], "from": from });
    let monitoring = json!([{ "namespaceSelector": { "matchLabels": { "name": "monitoring" } } }]);
    let is = |name: &str| format!("networkPolicy.ingress.{name}={monitoring}");

    assert_eq!(ingress(&[]).await, json!([metrics]));
    let own_namespace = json!([{ "podSelector": {} }]);
    assert_eq!(ingress(&["admin.enabled=true"]).await, json!([metrics, admin(own_namespace)]));
    let limited = json!({ "ports": metrics["ports"], "from": monitoring });
    assert_eq!(ingress(&[&is("metricsFrom")]).await, json!([limited]));
    let both = ingress(&["admin.enabled=true", &is("adminFrom")]).await;
    assert_eq!(both, json!([metrics, admin(monitoring.clone())]));

    assert_eq!(policies(&["hostNetwork=true"]).await, Vec::<Value>::new());
    assert_eq!(policies(&["networkPolicy.enabled=false"]).await, Vec::<Value>::new());
}
