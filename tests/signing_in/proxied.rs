//! The login endpoint and ARM behind a proxy, and the instance metadata service, which is never reached through one.

use serde_json::json;

use super::peer::{ARM, Authority};
use super::{CASES, SECRET, TOKEN, TestEnvironment};
use crate::support::gateway::{Gateway, LOGIN, Speaks};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_and_arm_use_the_proxy_of_the_environment() {
    let [secret, _, _, managed] = &CASES;
    for (variable, scheme, speaks, case) in [
        ("HTTPS_PROXY", "http", Speaks::HttpWithLogin, secret),
        ("all_proxy", "socks5", Speaks::Socks5WithLogin, secret),
        ("https_proxy", "http", Speaks::Http, managed),
    ] {
        let gateway = Gateway::start(speaks).await;
        let mut env = TestEnvironment::new(&json!({}), Authority::Gives).await;
        env.configure(&(case.keys)(env.folder.path()));
        env.configure(&json!({ "resourceManagerEndpoint": format!("https://{ARM}:{}", env.azure.port) }));
        let url = format!("{scheme}://{LOGIN}@{}", gateway.address);
        let environment =
            [&[(variable, url.as_str()), ("NO_PROXY", "10.0.0.0/8")], case.environment].concat();
        let child = env.start(&environment).await;
        env.azure
            .until(variable, |request| {
                request.line.contains("/loadBalancers/") && request.head.contains(&format!("Bearer {TOKEN}"))
            })
            .await;
        env.end(child).await;
        let targets = gateway.targets();
        let target = format!("{ARM}:{}", env.azure.port);
        assert!(!targets.is_empty() && targets.iter().all(|it| *it == target), "{variable}: {targets:?}");
        let log = env.logged();
        assert!(!log.contains("planted-for-proxies") && !log.contains(SECRET), "{variable}");
    }
}
