//! The client of the API server: its configuration, its proxy, and the redaction of its credentials.

use std::path::PathBuf;
use std::time::Duration;

use actors::kubernetes::sanitize;
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http::header::AUTHORIZATION;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use model::redact::{REDACTED, Recipient, record_sent_token};
use proxy::{Connector, Proxies, Proxy};
use tower::ServiceBuilder;

/// The timeout for a connection to the API server, including the proxy and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Creates the client of the API server. Its errors do not repeat the content of the kubeconfig: the parser may quote
/// secrets, and the program that gets a token may print one (C1).
pub(crate) async fn kubernetes_client(kubeconfig: Option<&PathBuf>) -> anyhow::Result<kube::Client> {
    let redacted_error =
        |error: anyhow::Error| anyhow::Error::msg(without_quotes(&sanitize::chain(error.as_ref())));
    open_client(kubeconfig).await.map_err(redacted_error)
}

/// Returns the host of the API server, from the kubeconfig.
pub(crate) async fn api_server_host(kubeconfig: Option<&PathBuf>) -> anyhow::Result<String> {
    let redacted_error =
        |error: anyhow::Error| anyhow::Error::msg(without_quotes(&sanitize::chain(error.as_ref())));
    let (config, _) = configuration(kubeconfig).await.map_err(redacted_error)?;
    let host = config.cluster_url.host().context("the kubeconfig names no host of the API server")?;
    Ok(host.trim_matches(['[', ']']).to_owned())
}

/// Returns the message of a kubeconfig parser without the values and lines that it quotes.
fn without_quotes(text: &str) -> String {
    const PARSER: &str = "failed to parse kubeconfig YAML";
    let Some((head, message)) = text.split_once(PARSER) else { return text.to_owned() };
    // The quoted lines follow an arrow; line breaks are gone already.
    let message = message.split(" --> ").next().unwrap_or_default();
    let between = message.split(['"', '`', '|']).step_by(2);
    format!("{head}{PARSER}{}", between.collect::<Vec<_>>().join(REDACTED))
}

async fn open_client(kubeconfig: Option<&PathBuf>) -> anyhow::Result<kube::Client> {
    let proxies = Proxies::from_environment();
    let (config, named) = configuration(kubeconfig).await?;
    // As with kubectl, the kubeconfig takes precedence over the environment, including NO_PROXY.
    let proxy = match named {
        Some(proxy) => Some(proxy),
        None => proxies.of(&config.cluster_url)?.cloned(),
    };
    if let Some(proxy) = &proxy {
        tracing::info!(%proxy, "the API server is reached through a proxy");
    }
    client(&config, proxy).context("failed to set up the Kubernetes client")
}

/// Returns the configuration of the client, and the proxy that the kubeconfig names.
async fn configuration(kubeconfig: Option<&PathBuf>) -> anyhow::Result<(kube::Config, Option<Proxy>)> {
    match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| {
                format!("failed to read kubeconfig {}; check --kubeconfig", path.display())
            })?;
            let proxy = named_proxy(&file)?;
            let options = KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(file, &options).await.with_context(|| {
                format!("failed to use kubeconfig {}; check its current-context", path.display())
            })?;
            Ok((config, proxy))
        }
        None => {
            // The inferred file, if there is one. The service account of a pod has no proxy.
            let proxy = Kubeconfig::read().ok().map(|file| named_proxy(&file)).transpose()?.flatten();
            let config = kube::Config::infer().await.context(
                "no API server configured: pass --kubeconfig, or run in a pod with a service account",
            )?;
            let proxy = proxy.filter(|_| config.proxy_url.is_some());
            Ok((config, proxy))
        }
    }
}

/// Returns the proxy of the current context's cluster.
fn named_proxy(file: &Kubeconfig) -> Result<Option<Proxy>, proxy::Unusable> {
    let context = file.contexts.iter().find(|it| Some(&it.name) == file.current_context.as_ref());
    let context = context.and_then(|named| named.context.as_ref());
    let cluster = file.clusters.iter().find(|it| context.is_some_and(|context| context.cluster == it.name));
    let url = cluster.and_then(|named| named.cluster.as_ref()?.proxy_url.as_deref());
    url.filter(|url| !url.is_empty()).map(Proxy::of_kubeconfig).transpose()
}

/// Creates the client, as kube does but with our connector: kube's connector supports no password for a SOCKS5 proxy,
/// and trusts only the cluster's certificate authority for a proxy with TLS. The client never retries: the machines do.
fn client(config: &kube::Config, proxy: Option<Proxy>) -> kube::Result<kube::Client> {
    let connector = Connector::new(proxy, CONNECT_TIMEOUT);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_request(redact_credentials)
        .map_err(tower::BoxError::from)
        .service(legacy::Client::builder(TokioExecutor::new()).build(connector));
    Ok(ClientBuilder::new(service, config.default_namespace.as_str()).build())
}

/// Registers the credentials of a request for redaction, whatever their source. It is the innermost layer.
fn redact_credentials(request: Request<Body>) -> Request<Body> {
    let value = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some((scheme, credentials)) = value.and_then(|value| value.split_once(' ')) {
        let pair = STANDARD.decode(credentials).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"));
        let pair = pair.and_then(|pair| String::from_utf8(pair).ok());
        // A known password is also found in base64, after any user.
        let password = pair.as_deref().and_then(|pair| pair.split_once(':')).map(|(_, password)| password);
        record_sent_token(&Recipient::ApiServer, password.unwrap_or(credentials));
    }
    request
}

#[cfg(test)]
mod tests;
