//! The service account token of workload identity. The kubelet replaces the file long before the token expires, so it
//! is read for every token request.

use std::path::{Path, PathBuf};

use azure_core::error::{Error, ErrorKind};
use azure_core::http::ClientMethodOptions;
use azure_identity::ClientAssertion;
use model::redact::{Recipient, record_sent_token};

/// Size limit of the file, in bytes.
const LARGEST: usize = 64 << 10;

/// The file.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    pub(super) fn new(path: PathBuf) -> TokenFile {
        TokenFile { path }
    }
}

#[async_trait::async_trait]
impl ClientAssertion for TokenFile {
    async fn secret(&self, _: Option<ClientMethodOptions<'_>>) -> azure_core::Result<String> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || read(&path)).await;
        let token =
            read.map_err(|error| Error::with_error(ErrorKind::Credential, error, "token file not read"))??;
        record_sent_token(&Recipient::Authority, &token);
        Ok(token)
    }
}

/// Checks that the file contains a token now.
pub(super) fn check(path: &Path) -> azure_core::Result<()> {
    read(path).map(drop)
}

fn read(path: &Path) -> azure_core::Result<String> {
    let refused = |reason: &str| {
        let path = path.display();
        let message = format!(
            "the token file {path} {reason}; check AZURE_FEDERATED_TOKEN_FILE or aadFederatedTokenFile, and that the \
             pod has a projected service account token there"
        );
        Error::with_message(ErrorKind::Credential, message)
    };
    let bytes =
        super::read_at_most(path, LARGEST).map_err(|error| refused(&format!("cannot be read ({error})")))?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() <= LARGEST);
    let token = text.as_deref().map(str::trim).filter(|token| !token.is_empty());
    token.map(str::to_owned).ok_or_else(|| refused("holds no token"))
}
