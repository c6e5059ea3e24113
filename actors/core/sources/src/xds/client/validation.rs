//! Validates a response: which watched resources are valid, which are not, and what its NACK complains about (A46,
//! A88, TP3).

use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

use model::machine::Wall;
use model::xds::cache::{Error, Reason, Rejected};
use model::xds::facts::{Code, Raw, ResourceKind, Response};
use model::xds::{Invalid, ResourceValue, validate};

/// The maximum number of complaints in a NACK: a server may limit the size of requests.
const COMPLAINTS: usize = 20;

/// The largest rejected resource that is kept for CSDS, in bytes: CSDS clients limit the size of a message.
const LARGEST_REJECTED: usize = 1 << 20;

/// The result for one watched resource.
#[derive(Debug)]
pub(super) enum Finding {
    /// The resource is valid; its content and its bytes.
    Valid(ResourceValue, Raw),
    /// The resource is invalid.
    Invalid(Error),
    /// The server cannot send it (TP3).
    Reported(Error),
    /// The server lists it among the errors, but without an error.
    Unclear,
}

/// A validated response.
#[derive(Debug)]
pub(super) struct ResponseVerdict {
    /// The results for watched resources: first those in the response, then those with a reported error, so that the
    /// error wins.
    pub findings: Vec<(Arc<str>, Finding)>,
    /// The version of the response.
    pub version: Arc<str>,
    /// The complaints about it. Without complaints it is accepted.
    pub complaints: ValidationErrors,
    /// The number of valid watched resources, including unchanged ones (A78).
    pub valid: u64,
    /// The number of invalid resources and of reported errors (A78).
    pub invalid: u64,
    /// True if each resource and each error in it has a readable name. Otherwise no resource is known to be absent.
    pub is_legible: bool,
}

/// Validates a response for this kind that arrived at this time. Resources that are not watched are ignored, valid or
/// not: servers may send more than was requested, and continue to send what is no longer requested.
pub(super) fn validate_response(
    kind: ResourceKind,
    response: &Response,
    at: Wall,
    watched: &BTreeSet<Arc<str>>,
) -> ResponseVerdict {
    let mut verdict = ResponseVerdict {
        findings: Vec::new(),
        version: Arc::from(response.version.as_str()),
        complaints: ValidationErrors::default(),
        valid: 0,
        invalid: 0,
        is_legible: true,
    };
    if let Some(excess) = &response.excess {
        verdict.is_legible = false;
        verdict.invalid += 1;
        verdict.complaints.excess = Some(excess.clone());
    }
    validate_resources(kind, response, at, watched, &mut verdict);
    validate_errors(response, at, watched, &mut verdict);
    verdict
}

/// The complaints about a response: the first few in alphabetical order, so that the order of the resources does not
/// matter. Only these are kept during collection.
#[derive(Debug, Default)]
pub(super) struct ValidationErrors {
    /// The part that was not read; it is always included.
    excess: Option<String>,
    listed: BinaryHeap<String>,
    /// The number of omitted complaints.
    omitted: usize,
}

impl ValidationErrors {
    fn add(&mut self, complaint: String) {
        self.listed.push(complaint);
        if self.listed.len() > COMPLAINTS {
            self.listed.pop();
            self.omitted += 1;
        }
    }

    /// Returns all complaints in one text; `None` if there are none.
    pub fn message(self) -> Option<Arc<str>> {
        let mut all: Vec<String> = self.excess.into_iter().chain(self.listed.into_sorted_vec()).collect();
        if self.omitted > 0 {
            all.push(format!("and {} more", self.omitted));
        }
        (!all.is_empty()).then(|| Arc::from(all.join("; ")))
    }
}

/// Returns the error of a resource that counts as deleted: this response contains all existing resources, and not that
/// one.
pub(super) fn deletion(version: &Arc<str>, at: Wall) -> Error {
    let message = "does not exist: the server's last response names all that exist, and not this one";
    Error {
        reason: Reason::Deleted,
        code: Code::NotFound,
        message: Arc::from(message),
        rejected: Some(Rejected { version: Arc::clone(version), at, raw: None }),
    }
}

fn validate_resources(
    kind: ResourceKind,
    response: &Response,
    at: Wall,
    watched: &BTreeSet<Arc<str>>,
    verdict: &mut ResponseVerdict,
) {
    let mut names: BTreeSet<Arc<str>> = BTreeSet::new();
    for (index, received) in response.resources.iter().enumerate() {
        let result = validate(kind, received);
        if let Ok((name, _)) | Err(Invalid { name: Some(name), .. }) = &result
            && watched.contains(name)
            && !names.insert(Arc::clone(name))
        {
            verdict.complain(format!("{name}: duplicate resource name"));
            continue;
        }
        match result {
            Ok((name, value)) => {
                if watched.contains(&name) {
                    verdict.valid += 1;
                    verdict.findings.push((name, Finding::Valid(value, received.raw.clone())));
                }
            }
            Err(Invalid { name: Some(name), message }) => {
                if watched.contains(&name) {
                    let raw = Some(&received.raw).filter(|raw| raw.bytes.len() <= LARGEST_REJECTED);
                    let rejected = Rejected { version: Arc::clone(&verdict.version), at, raw: raw.cloned() };
                    let error = Error {
                        reason: Reason::Nack,
                        code: Code::InvalidArgument,
                        message: Arc::from(format!("invalid resource: {message}")),
                        rejected: Some(rejected),
                    };
                    // The complaint omits the index of the resource: a server need not keep the order between
                    // responses, and a repeated complaint must be recognised.
                    verdict.complain(format!("{name}: {message}"));
                    verdict.findings.push((name, Finding::Invalid(error)));
                }
            }
            Err(Invalid { name: None, message }) => {
                verdict.is_legible = false;
                verdict.complain(format!("resource index {index}: {message}"));
            }
        }
    }
}

fn validate_errors(
    response: &Response,
    at: Wall,
    watched: &BTreeSet<Arc<str>>,
    verdict: &mut ResponseVerdict,
) {
    for (index, reported) in response.errors.iter().enumerate() {
        let Some(name) = reported.name.as_deref().filter(|name| !name.is_empty()) else {
            verdict.is_legible = false;
            verdict.complain(format!("resource_errors index {index}: resource_name unset"));
            continue;
        };
        let Some(name) = watched.get(name) else { continue };
        let code = Code::of_number(reported.code.unwrap_or_default());
        if code == Code::Ok {
            verdict.complain(format!("resource_errors index {index}: {name}: error_detail must be non-OK"));
            verdict.findings.push((Arc::clone(name), Finding::Unclear));
            continue;
        }
        let message = if reported.message.is_empty() { code.as_str() } else { reported.message.as_str() };
        let error = Error {
            reason: Reason::Reported,
            code,
            message: Arc::from(message),
            rejected: Some(Rejected { version: Arc::clone(&verdict.version), at, raw: None }),
        };
        verdict.invalid += 1;
        verdict.findings.push((Arc::clone(name), Finding::Reported(error)));
    }
}

impl ResponseVerdict {
    /// Adds a complaint about the response.
    fn complain(&mut self, complaint: String) {
        self.invalid += 1;
        self.complaints.add(complaint);
    }
}
