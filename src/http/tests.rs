//! Options of the listening sockets.

use std::collections::BTreeMap;
use std::net::TcpStream;

use config::{Config, Source};
use rcgen::{CertificateParams, KeyPair};
use rustix::net::sockopt;

use super::*;

const CLOUD: &str = r#"{
    "cloud": "AzurePublicCloud", "resourceManagerEndpoint": "http://127.0.0.1:9", "tenantId": "t-1",
    "subscriptionId": "s-1", "resourceGroup": "rg", "vnetName": "vnet", "loadBalancerSku": "standard",
    "loadBalancerBackendPoolConfigurationType": "nodeIP",
    "multipleStandardLoadBalancerConfigurations": [{ "name": "kubernetes", "primaryVMSet": "vmss" }]
}"#;

#[test]
fn h2_unacknowledged_data_ends_the_connections_of_listeners() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let own = KeyPair::generate().expect("the random source works");
    let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let certificate = params.self_signed(&own).expect("it signs itself").pem();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("the folder can be written");
        path.display().to_string()
    };
    let keys = serde_json::json!({
        "identity": "anonymous",
        "http": {
            "healthListen": "127.0.0.1:0", "adminListen": "127.0.0.1:0", "adminTlsListen": "127.0.0.1:0",
            "tls": {
                "certificate": file("tls.crt", certificate), "key": file("tls.key", own.serialize_pem()),
            },
        },
    });
    let controller = Source::new("controller.yaml", keys.to_string());
    let config = Config::load(Source::new("azure.json", CLOUD), controller, &BTreeMap::new());
    let config = config.expect("it is valid").config;
    let Addresses { health, admin, admin_tls } = Addresses::bind(&config.controller).expect("free ports");
    let (admin_tls, _) = admin_tls.expect("there is a certificate");
    for listener in [health, admin, admin_tls] {
        let client = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let (accepted, _) = listener.accept().expect("a client has connected");
        let within = sockopt::tcp_user_timeout(&accepted).expect("the system knows the option");
        assert_eq!(within, TCP_USER_TIMEOUT_MS, "{listener:?}");
        drop(client);
    }
}
