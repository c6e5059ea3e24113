//! Requests of the model and their answers as plain HTTP data, and the way in which both other models serve them.

use serde_json::Value;

use crate::arm::{self, ArmModel};
use crate::kube::{self, KubeModel};

/// Id of one request of one model, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Receiver of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallTarget {
    /// kube-apiserver.
    Kubernetes,
    /// Azure Resource Manager.
    Arm,
}

/// A method that the model uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// GET.
    Get,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}

impl Verb {
    /// Returns the word on the request line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// A request for the driver. The driver answers it by `In::Answer` with its id, even if it failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Its id.
    pub id: CallId,
    /// Receiver.
    pub side: CallTarget,
    /// Its method.
    pub verb: Verb,
    /// Path and query as on the request line, never with scheme and authority.
    pub path_and_query: String,
    /// `content-type` if there is a body, `if-match` if it is used. The driver adds credentials.
    pub headers: Vec<(String, String)>,
    /// The body, JSON.
    pub body: Option<Value>,
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An HTTP answer of any status.
    Arrived {
        /// Its status.
        status: u16,
        /// Its headers; names in any case.
        headers: Vec<(String, String)>,
        /// Its body, as received.
        body: Vec<u8>,
    },
    /// No answer: refused, reset, or timed out. The request may have taken effect.
    Lost,
}

impl Call {
    /// Returns the request for the modelled API server.
    pub fn for_kubernetes(&self) -> kube::Request {
        kube::Request {
            method: self.verb.word().to_owned(),
            path_and_query: self.path_and_query.clone(),
            headers: self.headers.clone(),
            body: self.bytes(),
        }
    }

    /// Returns the request for the modelled ARM.
    pub fn for_arm(&self) -> arm::Request {
        arm::Request {
            method: arm::Method::parse(self.verb.word()),
            path_and_query: self.path_and_query.clone(),
            headers: self.headers.clone(),
            body: self.bytes(),
        }
    }

    /// Returns the body on the wire, or nothing.
    pub fn bytes(&self) -> Vec<u8> {
        self.body.as_ref().map_or_else(Vec::new, |body| body.to_string().into_bytes())
    }

    /// Sends the request to the models at `now_us`. Returns its result, and the time in microseconds until the answer
    /// is due.
    pub fn serve(&self, kube: &mut KubeModel, arm: &mut ArmModel, now_us: u64) -> (Answer, u64) {
        match self.side {
            CallTarget::Kubernetes => match kube.handle(&self.for_kubernetes(), now_us) {
                kube::Reply::Answer { status, headers, body, after_us } => {
                    (Answer::Arrived { status, headers, body }, after_us)
                }
                kube::Reply::Watch(id, _) => {
                    kube.close_watch(id);
                    (Answer::Lost, 0)
                }
                kube::Reply::Refused => (Answer::Lost, 0),
            },
            CallTarget::Arm => match arm.handle(&self.for_arm(), now_us) {
                arm::Reply::Answer(response) => {
                    let headers = response.headers.into_iter();
                    let headers = headers.map(|(name, value)| (name.to_owned(), value.into_owned()));
                    let (status, body) = (response.status, response.body);
                    (Answer::Arrived { status, headers: headers.collect(), body }, response.latency_us)
                }
                arm::Reply::Lost { latency_us } => (Answer::Lost, latency_us),
                arm::Reply::Refused => (Answer::Lost, 0),
            },
        }
    }
}

impl Answer {
    /// Returns the HTTP status; 0 without an answer.
    pub(super) fn status(&self) -> u16 {
        match self {
            Self::Arrived { status, .. } => *status,
            Self::Lost => 0,
        }
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status())
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        match self {
            Self::Arrived { headers, .. } => {
                let found = headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.trim())
            }
            Self::Lost => None,
        }
    }

    /// Returns the body, if it is a JSON object.
    pub(super) fn object(&self) -> Option<Value> {
        match self {
            Self::Arrived { body, .. } => serde_json::from_slice(body).ok().filter(Value::is_object),
            Self::Lost => None,
        }
    }

    /// Returns the error as text: reason and message of a Status object, else the status.
    pub(super) fn error_text(&self) -> String {
        match self {
            Self::Lost => "the connection was lost".to_owned(),
            Self::Arrived { status, .. } => {
                let body = self.object().unwrap_or_default();
                match body["message"].as_str() {
                    Some(message) => message.to_owned(),
                    None => format!("the server answered {status}"),
                }
            }
        }
    }
}
