//! The admin API with TLS in the chart: with the certificate that Helm has created, for users whom the API server
//! authorizes, and separately for each verb of the operator's role.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Certificate, Client, Method};
use serde_json::json;

use super::Release;
use crate::cluster::load_balancer;
use crate::support::controller::Controller;
use crate::support::{TEST_TIMEOUT, azure, eventually};

const STATUS: &str = "/api/v1/status";
/// A POST that changes nothing.
const COMPARE: &str = "/api/v1/compare";
/// A body with an unknown key: an authorized client gets an error, and nothing is done.
const NONSENSE: &str = r#"{ "nonsense": true }"#;
/// The operator's verbs, each with a request that needs it.
const VERBS: [(&str, Method, &str); 2] = [("get", Method::GET, STATUS), ("post", Method::POST, COMPARE)];

/// Returns the paths of one section of docs/admin-api.md, with a Service's names in them.
fn paths(heading: &str, namespace: &str, service: &str) -> Vec<String> {
    let mut sections = include_str!("../../../docs/admin-api.md").split("\n## ");
    let section = sections.find(|section| section.starts_with(heading)).expect("the document has it");
    let documented = section.lines().filter_map(|line| line.strip_prefix("| `/")?.split_once('`'));
    let named = |path: &str| {
        let path = path.replace("{lb}", load_balancer(service));
        let path = path.replace("{pool}", &azure::pool_name(namespace, service));
        format!("/{}", path.replace("{namespace}", namespace).replace("{name}", service))
    };
    documented.map(|(path, _)| named(path)).collect()
}

/// Returns a client that trusts only the authority of the release's certificate.
async fn client(release: &Release<'_>) -> Client {
    let path = release.env.path("secrets", &format!("{}-admin-tls", release.full_name()));
    let secret = release.env.api.get(&path).await.expect("the Secret exists");
    let authority = STANDARD.decode(secret["data"]["ca.crt"].as_str().expect("it has an authority"));
    let trusted = Certificate::from_pem(&authority.expect("a Secret is in base64")).expect("a certificate");
    Client::builder().no_proxy().tls_certs_only([trusted]).build().expect("a client")
}

/// Sends every request of the admin API about this Service: without a token, as a user without rights, and as the
/// operator, who gets the same answers as on loopback.
pub(super) async fn assert_every_request_is_authorized(
    release: &Release<'_>,
    controller: &Controller,
    service: &str,
) {
    let (env, http) = (release.env, client(release).await);
    let operator = env.cluster.token(env.namespace, &format!("{}-operator", release.full_name())).await;
    let unauthorized = env.cluster.token(env.namespace, "default").await;
    let looks = paths("Admin API\n", env.namespace, service);
    let requests = paths("Requests\n", env.namespace, service);
    assert!(looks.len() >= 7 && requests.len() >= 6, "{looks:?} {requests:?}");
    // No node has the name of a Service.
    let found_at = |path: &str| if path.contains("/nodes/") { 404 } else { 200 };
    let all = looks.iter().map(|path| (Method::GET, path, "", found_at(path)));
    // A request whose body is read was authorized.
    let all = all.chain(requests.iter().map(|path| (Method::POST, path, NONSENSE, 400)));
    for (method, path, body, answered) in all {
        for (token, status) in [(None, 401), (Some(&unauthorized), 403), (Some(&operator), answered)] {
            let found = controller
                .secured(&http, (method.clone(), path.as_str(), body), token.map(String::as_str))
                .await;
            assert_eq!(found, status, "{method} {path}");
        }
        if method == Method::GET {
            assert_eq!(controller.looks(path).await, answered, "{path} on loopback");
        }
    }
    assert!(requests.iter().any(|path| path == COMPARE), "{requests:?}");
    let compare = (Method::POST, COMPARE, "{}");
    assert_eq!(controller.secured(&http, compare, Some(&operator)).await, 200);
}

/// Removes each verb of the operator's role: only requests that need it are refused.
pub(super) async fn assert_each_verb_is_needed(release: &Release<'_>, controller: &Controller) {
    let (env, http) = (release.env, client(release).await);
    let operator = format!("{}-operator", release.full_name());
    let role = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{operator}");
    let rules = env.api.get(&role).await.expect("the role exists")["rules"].clone();
    assert_eq!(rules[0]["verbs"], json!(["get", "post"]));
    for (taken, ..) in &VERBS {
        let mut fewer = rules.clone();
        fewer[0]["verbs"] = VERBS.iter().map(|(verb, ..)| *verb).filter(|verb| verb != taken).collect();
        env.api.merge(&role, &json!({ "rules": fewer })).await;
        for (verb, method, path) in &VERBS {
            let wanted = if verb == taken { 403 } else { 200 };
            eventually(&format!("without {taken}, {method} {path} is {wanted}"), TEST_TIMEOUT, || async {
                // The authorization of reads is cached for each token.
                let token = env.cluster.token(env.namespace, &operator).await;
                let request = (method.clone(), *path, if *method == Method::POST { "{}" } else { "" });
                let found = controller.secured(&http, request, Some(&token)).await;
                if found == wanted { Ok(()) } else { Err(found.to_string()) }
            })
            .await;
        }
    }
    env.api.merge(&role, &json!({ "rules": rules })).await;
}
