//! The credentials of a server in the bootstrap (A27, A65, A97): the supported ones, and their files. The driver
//! reads the files.

use std::path::PathBuf;

use super::BootstrapError;
use super::json::At;

/// Security of the channel to a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Channel {
    /// Plain text.
    Insecure,
    /// TLS.
    Tls(TlsFiles),
}

/// The files of TLS.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TlsFiles {
    /// Trusted certificate authorities; `None` means those of the system.
    pub ca: Option<PathBuf>,
    /// Certificate and key of this client; `None` if it has no certificate.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Channel {
    /// Returns the first supported credentials of the server.
    pub(super) fn of(server: &At<'_>) -> Result<Channel, BootstrapError> {
        const NAME: &str = "channel_creds";
        let remedy = "is missing: list a supported type, insecure or tls";
        let mut chosen = None;
        for entry in server.required(NAME, remedy)?.items()? {
            let kind = entry.required("type", "is missing: name the type, such as tls")?.text()?;
            if chosen.is_some() {
                continue;
            }
            chosen = match kind {
                "insecure" => Some(Channel::Insecure),
                "tls" => Some(Channel::Tls(TlsFiles::of(&entry)?)),
                _ => None,
            };
        }
        chosen.ok_or_else(|| server.fault_of(NAME, "none of a supported type: list one of insecure or tls"))
    }
}

impl TlsFiles {
    fn of(entry: &At<'_>) -> Result<TlsFiles, BootstrapError> {
        let Some(config) = entry.field("config")? else { return Ok(TlsFiles::default()) };
        let path = |name| config.text_of(name).map(|text| text.map(PathBuf::from));
        let (certificate, key) = (path("certificate_file")?, path("private_key_file")?);
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(config.fault_of("private_key_file", "is missing: certificate_file needs it"));
            }
            (None, Some(_)) => {
                return Err(config.fault_of("certificate_file", "is missing: private_key_file needs it"));
            }
        };
        // The files are read again for each stream, so the interval has no effect; it must be valid.
        let interval = config.field("refresh_interval")?;
        if let Some(interval) = interval.filter(|interval| !interval.value().as_str().is_some_and(is_span)) {
            return Err(interval.fault("is not a duration in seconds: write one such as \"600s\""));
        }
        Ok(TlsFiles { ca: path("ca_certificate_file")?, identity })
    }
}

/// Returns whether a text is a non-negative duration in protobuf's JSON: seconds with up to nine decimals.
fn is_span(text: &str) -> bool {
    const MAX_SECONDS: u64 = 315_576_000_000;
    let Some(number) = text.strip_suffix('s') else { return false };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole)
        && digits(fraction)
        && fraction.len() <= 9
        && whole.parse::<u64>().is_ok_and(|seconds| seconds <= MAX_SECONDS)
}

/// Returns the files of the tokens that each call carries. All of them apply; credentials of other types are ignored.
pub(super) fn tokens_of(server: &At<'_>) -> Result<Vec<PathBuf>, BootstrapError> {
    let mut tokens = Vec::new();
    let Some(list) = server.field("call_creds")? else { return Ok(tokens) };
    for entry in list.items()? {
        let kind = entry.required("type", "is missing: name the type, such as jwt_token_file")?.text()?;
        if kind == "jwt_token_file" {
            let remedy = "is missing: name the file of the token in config.jwt_token_file";
            let config = entry.required("config", remedy)?;
            let file = config.text_of("jwt_token_file")?;
            let missing = || config.fault_of("jwt_token_file", "is missing: name the file of the token");
            tokens.push(PathBuf::from(file.ok_or_else(missing)?));
        }
    }
    Ok(tokens)
}
