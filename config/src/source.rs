//! Sources of configuration files. Only this module of the crate reads files.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::problem::{Location, Problem, Report, WHOLE_FILE};

/// Maximum size of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;

/// The bytes of a configuration file, and its name in problems.
#[derive(Clone)]
pub struct Source {
    name: String,
    content: Option<Vec<u8>>,
}

impl Source {
    /// Creates a source of these bytes, which may come from a file, a Secret or a test.
    pub fn new(name: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), content: Some(content.into()) }
    }

    /// Creates a source without content: controller.yaml then has its defaults, and the cloud configuration is missing.
    pub fn none(name: impl Into<String>) -> Self {
        Self { name: name.into(), content: None }
    }

    /// Returns the name of this file in problems.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the bytes, if there are any.
    pub fn content(&self) -> Option<&[u8]> {
        self.content.as_deref()
    }
}

/// Shows only the length, because the bytes may contain secrets.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.content.as_ref().map(Vec::len);
        f.debug_struct("Source").field("name", &self.name).field("bytes", &length).finish()
    }
}

/// The source of the cloud configuration: a file, a Secret, or both.
#[derive(Clone, Debug)]
pub struct CloudSource {
    pub(crate) file: Source,
    pub(crate) secret: Option<Source>,
}

impl From<Source> for CloudSource {
    /// Creates a source with only a file.
    fn from(file: Source) -> Self {
        Self { file, secret: None }
    }
}

impl CloudSource {
    /// Adds the content of a Secret; `cloudConfigType` of the file has the precedence.
    #[must_use]
    pub fn with_secret(self, secret: Source) -> Self {
        Self { secret: Some(secret), ..self }
    }

    /// Returns the file.
    pub fn file(&self) -> &Source {
        &self.file
    }

    /// Returns the name in problems of the configuration as a whole: that of the file, if there is one.
    pub fn name(&self) -> &str {
        match &self.secret {
            Some(secret) if self.file.content().is_none() => secret.name(),
            Some(_) | None => self.file.name(),
        }
    }

    /// Returns all names, for operators.
    pub(crate) fn names(&self) -> String {
        match &self.secret {
            Some(secret) if self.file.content().is_some() => {
                format!("{} and {}", self.file.name(), secret.name())
            }
            Some(_) | None => self.name().to_owned(),
        }
    }
}

/// Reads a file that was named explicitly; a missing file is a problem.
pub fn read(path: &Path) -> Result<Source, Report> {
    let name = path.display().to_string();
    let problem = |found: String, remedy: &str| {
        Report::from(Problem {
            location: Location::File(name.clone()),
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
            Err(problem("a larger one".to_owned(), "check that the path names a configuration file"))
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
            Err(problem(format!("none ({error})"), remedy))
        }
    }
}
