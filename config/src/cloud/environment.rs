//! The addresses of an Azure Stack from the file that `AZURE_ENVIRONMENT_FILEPATH` names (C3), which count, as in the
//! cloud-controller-manager, for `cloud: AzureStackCloud` alone and win over everything else.

use url::Url;

use super::endpoint::parse_address;
use super::fields::Fields;
use crate::document::{self, Content};
use crate::problem::{Mismatch, Place, Problem, WHOLE_FILE};
use crate::source::Source;

/// What the file says that we need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AzureEnvironment {
    /// The ARM endpoint with the audience of its tokens; both or none.
    pub(crate) arm: Option<(Url, String)>,
    /// The authority host.
    pub(crate) authority_host: Option<Url>,
}

/// Reads the file.
pub(crate) fn read(source: &Source, problems: &mut Vec<Problem>) -> Option<AzureEnvironment> {
    let name = source.name();
    let wrong = |found: &str| Problem {
        place: Place::File(name.to_owned()),
        field: WHOLE_FILE.to_owned(),
        found: found.to_owned(),
        expected: "the addresses of an Azure Stack as JSON".to_owned(),
        remedy: "correct the path in AZURE_ENVIRONMENT_FILEPATH, or remove that variable".to_owned(),
    };
    let Some(bytes) = source.content() else {
        problems.push(wrong("nothing that can be read"));
        return None;
    };
    let root = match document::parse(name, bytes) {
        Ok(root) => root,
        Err(problem) => {
            problems.push(*problem);
            return None;
        }
    };
    let Some(Content::Map(entries)) = root.as_ref().map(|node| &node.content) else {
        problems.push(wrong("no map"));
        return None;
    };
    let mut fields = Fields::new(name, "", entries, problems);
    let mut address = |key: &str| {
        let text = fields.text(key)?;
        parse_address(&text).map_err(|mismatch| fields.refuse(key, mismatch)).ok()
    };
    let (arm, authority_host) = (address("resourceManagerEndpoint"), address("activeDirectoryEndpoint"));
    let audience = fields.text("tokenAudience");
    let arm = arm.zip(audience);
    if arm.is_some() && authority_host.is_none() && !fields.is_refused("activeDirectoryEndpoint") {
        let mismatch = Mismatch::new("the login endpoint of this Azure Stack", "add the key");
        fields.refuse("activeDirectoryEndpoint", mismatch);
    }
    Some(AzureEnvironment { arm, authority_host })
}
