//! A small client of the API server in plain JSON, independent of the one under test.

use std::path::Path;
use std::time::Duration;

use reqwest::{Certificate, Client, Identity, Method, RequestBuilder};
use serde_json::Value;
use simulator::models::ccm::Answer;

use crate::support::ccm::answer_of;
use crate::support::{TEST_TIMEOUT, eventually};

/// Maximum time of one call.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A client with all permissions.
#[derive(Clone)]
pub struct Api {
    http: Client,
    server: String,
}

impl Api {
    pub(super) fn new(server: &str, folder: &Path) -> Self {
        let read = |name: &str| std::fs::read(folder.join(name)).expect("the certificates are written");
        let both = [read("admin.key"), read("admin.crt")].concat();
        let http = Client::builder()
            .tls_certs_only([Certificate::from_pem(&read("ca.crt")).expect("a certificate")])
            .identity(Identity::from_pem(&both).expect("a key and a certificate"))
            .timeout(REQUEST_TIMEOUT)
            .build()
            .expect("a client");
        Self { http, server: server.to_owned() }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: String,
    ) -> Result<(u16, String), String> {
        let request =
            self.http.request(method, format!("{}{path}", self.server)).header("Content-Type", kind);
        answered(path, request.body(body)).await
    }

    /// Sends a raw request; returns `None` if there is no answer.
    pub async fn raw(
        &self,
        method: Method,
        path: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Option<Answer> {
        let mut request = self.http.request(method, format!("{}{path}", self.server));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        answer_of(request.body(body)).await
    }

    /// Returns the status and the text of the response to one request of this user, with the user's own permissions. A
    /// PATCH is a JSON patch.
    pub async fn ask_as(
        &self,
        user: &str,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<(u16, String), String> {
        let kind = if method == Method::PATCH { "application/json-patch+json" } else { "application/json" };
        let request =
            self.http.request(method, format!("{}{path}", self.server)).header("Content-Type", kind);
        answered(path, request.header("Impersonate-User", user).body(body.to_string())).await
    }

    /// Returns the text of a path.
    pub async fn text(&self, path: &str) -> Result<String, String> {
        match self.call(Method::GET, path, "application/json", String::new()).await? {
            (200, text) => Ok(text),
            (status, text) => Err(format!("{path}: {status}: {text}")),
        }
    }

    /// Returns an object, or a list of them.
    pub async fn get(&self, path: &str) -> Result<Value, String> {
        serde_json::from_str(&self.text(path).await?).map_err(|error| format!("{path}: {error}"))
    }

    /// Returns the items of a list.
    pub async fn items(&self, path: &str) -> Result<Vec<Value>, String> {
        let mut list = self.get(path).await?;
        let items = list["items"].as_array_mut().map(std::mem::take);
        items.ok_or_else(|| format!("{path}: no list but {list}"))
    }

    /// Sends a change, and repeats it until it succeeds.
    async fn change(&self, method: Method, path: &str, kind: &str, body: &str, fine: &[u16]) -> Value {
        let what = format!("{method} {path}");
        let answer = eventually(&what, TEST_TIMEOUT, || {
            let call = self.call(method.clone(), path, kind, body.to_owned());
            async move {
                match call.await? {
                    (status, text) if (200..300).contains(&status) || fine.contains(&status) => Ok(text),
                    (status, text) => Err(format!("{status}: {text}")),
                }
            }
        });
        serde_json::from_str(&answer.await).unwrap_or(Value::Null)
    }

    /// Creates an object; an existing one is no error.
    pub async fn create(&self, path: &str, object: &Value) -> Value {
        self.change(Method::POST, path, "application/json", &object.to_string(), &[409]).await
    }

    /// Returns the status of a single attempt to create an object, such as one with `dryRun=All`.
    pub async fn attempt(&self, path: &str, object: &Value) -> Result<u16, String> {
        let (status, _) = self.call(Method::POST, path, "application/json", object.to_string()).await?;
        Ok(status)
    }

    /// Sends a merge patch of an object.
    pub async fn merge(&self, path: &str, patch: &Value) -> Value {
        self.change(Method::PATCH, path, "application/merge-patch+json", &patch.to_string(), &[]).await
    }

    /// Deletes an object, or all of a list, without waiting for finalizers.
    pub async fn delete(&self, path: &str) {
        let at_once = r#"{"gracePeriodSeconds":0,"propagationPolicy":"Background"}"#;
        self.change(Method::DELETE, path, "application/json", at_once, &[404]).await;
    }
}

/// Returns the status and the text of the response to a request.
async fn answered(path: &str, request: RequestBuilder) -> Result<(u16, String), String> {
    let answer = request.send().await.map_err(|error| format!("{path}: {error:?}"))?;
    let status = answer.status().as_u16();
    let text = answer.text().await.map_err(|error| format!("{path}: {error:?}"))?;
    Ok((status, text))
}
