//! The files that the report goes to. They are opened before the run: a place that cannot be written is reported
//! immediately, and not when the run is over.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::args::SimulateArgs;
use crate::cli::tell;

/// Those that were asked for.
pub(super) struct Sheets {
    /// `--output`.
    pub(super) output: Option<Sheet>,
    /// `--html`.
    pub(super) html: Option<Sheet>,
}

impl Sheets {
    /// Opens them; what is in one that exists stays until the report is there.
    ///
    /// # Errors
    /// One cannot be created or written.
    pub(super) fn open(args: &SimulateArgs) -> anyhow::Result<Sheets> {
        let open = |flag: &str, path: &Option<PathBuf>| {
            path.as_deref().map(|path| Sheet::open(flag, path)).transpose()
        };
        Ok(Sheets { output: open("--output", &args.output)?, html: open("--html", &args.html)? })
    }
}

/// A file for a report.
pub(super) struct Sheet {
    path: PathBuf,
    file: File,
}

impl Sheet {
    fn open(flag: &str, path: &Path) -> anyhow::Result<Sheet> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| {
            let shown = path.display();
            format!("{flag} {shown}: no report can be written there; check that its folder exists and can be written")
        })?;
        Ok(Sheet { path: path.to_owned(), file })
    }

    /// Puts the report there, in the place of whatever was.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn fill(&self, text: &str) -> anyhow::Result<()> {
        let write = || {
            // A pipe or a device has no length.
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            (&self.file).write_all(text.as_bytes())
        };
        write().with_context(|| format!("failed to write {}", self.path.display()))?;
        tell([printable!("the report is {}", self.path.display())]);
        Ok(())
    }
}
