//! The files of the report. They are opened before the run, so that a file that cannot be written is reported
//! immediately.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::args::SimulateArgs;
use crate::cli::eprint_lines;

/// The requested files.
pub(super) struct ReportFiles {
    /// `--output`.
    pub(super) output: Option<ReportFile>,
    /// `--html`.
    pub(super) html: Option<ReportFile>,
}

impl ReportFiles {
    /// Opens the files. An existing file keeps its content until the report is written.
    ///
    /// # Errors
    /// A file cannot be created or written.
    pub(super) fn open(args: &SimulateArgs) -> anyhow::Result<ReportFiles> {
        let open = |flag: &str, path: &Option<PathBuf>| {
            path.as_deref().map(|path| ReportFile::open(flag, path)).transpose()
        };
        Ok(ReportFiles { output: open("--output", &args.output)?, html: open("--html", &args.html)? })
    }
}

/// A file for the report.
pub(super) struct ReportFile {
    path: PathBuf,
    file: File,
}

impl ReportFile {
    fn open(flag: &str, path: &Path) -> anyhow::Result<ReportFile> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| {
            let path_text = path.display();
            format!("{flag} {path_text}: the file cannot be written; check that its folder exists and can be written")
        })?;
        Ok(ReportFile { path: path.to_owned(), file })
    }

    /// Writes the report and replaces the content of the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(&self, text: &str) -> anyhow::Result<()> {
        let write = || {
            // A pipe or a device has no length.
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            (&self.file).write_all(text.as_bytes())
        };
        write().with_context(|| format!("failed to write {}", self.path.display()))?;
        eprint_lines([printable!("the report is in {}", self.path.display())]);
        Ok(())
    }
}
