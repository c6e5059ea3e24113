//! Where a configuration file's bytes come from. The only place of the crate that reads a file.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::problem::{Place, Problem, Report, WHOLE_FILE};

/// The largest file that is read, in bytes.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;

/// One configuration file's bytes and the name that problems call it by.
#[derive(Clone)]
pub struct Source {
    name: String,
    content: Option<Vec<u8>>,
}

impl Source {
    /// Bytes from anywhere: a file, a Secret, a test.
    pub fn new(name: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), content: Some(content.into()) }
    }

    /// Nothing was given; controller.yaml then has its defaults, the cloud configuration is missing.
    pub fn none(name: impl Into<String>) -> Self {
        Self { name: name.into(), content: None }
    }

    /// The name that problems call this file by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes, if any were given.
    pub fn content(&self) -> Option<&[u8]> {
        self.content.as_deref()
    }
}

/// Shows the length only: the bytes may hold secrets.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.content.as_ref().map(Vec::len);
        f.debug_struct("Source").field("name", &self.name).field("bytes", &length).finish()
    }
}

/// Where the cloud configuration's bytes come from: a file, a Secret, or both.
#[derive(Clone, Debug)]
pub struct CloudSource {
    pub(crate) file: Source,
    pub(crate) secret: Option<Source>,
}

impl From<Source> for CloudSource {
    /// A file alone.
    fn from(file: Source) -> Self {
        Self { file, secret: None }
    }
}

impl CloudSource {
    /// With the content of a Secret; `cloudConfigType` of the file says what counts.
    #[must_use]
    pub fn with_secret(self, secret: Source) -> Self {
        Self { secret: Some(secret), ..self }
    }

    /// The file.
    pub fn file(&self) -> &Source {
        &self.file
    }

    /// The name that problems of the whole configuration call it by: the file's, where there is one.
    pub fn name(&self) -> &str {
        match &self.secret {
            Some(secret) if self.file.content().is_none() => secret.name(),
            Some(_) | None => self.file.name(),
        }
    }

    /// All names, for operators.
    pub(crate) fn names(&self) -> String {
        match &self.secret {
            Some(secret) if self.file.content().is_some() => {
                format!("{} and {}", self.file.name(), secret.name())
            }
            Some(_) | None => self.name().to_owned(),
        }
    }
}

/// Reads a file that was named explicitly; a file that is not there is a problem.
pub fn read(path: &Path) -> Result<Source, Report> {
    let name = path.display().to_string();
    let refused = |found: String, remedy: &str| {
        Report::from(Problem {
            place: Place::File(name.clone()),
            field: WHOLE_FILE.to_owned(),
            found,
            expected: format!("a readable file of at most {MAX_FILE_BYTES} bytes"),
            remedy: remedy.to_owned(),
        })
    };
    let mut content = Vec::new();
    let limit = u64::try_from(MAX_FILE_BYTES).expect("the limit fits 64 bits") + 1;
    let outcome = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut content));
    match outcome {
        Ok(_) if content.len() > MAX_FILE_BYTES => {
            Err(refused("a larger one".to_owned(), "check that the path names a configuration file"))
        }
        Ok(_) => Ok(Source::new(name, content)),
        Err(error) => {
            let remedies = [
                (ErrorKind::NotFound, "check the path, or mount the file there"),
                (ErrorKind::PermissionDenied, "let the user that runs this process read the file"),
                (ErrorKind::IsADirectory, "name the file inside the directory"),
            ];
            let remedy = remedies.iter().find(|(kind, _)| *kind == error.kind());
            let remedy = remedy.map_or("check the path and the volume it is on", |(_, remedy)| *remedy);
            Err(refused(format!("none ({error})"), remedy))
        }
    }
}
