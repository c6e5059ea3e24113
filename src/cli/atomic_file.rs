//! Writes files atomically: completely or not at all.

use std::fs::{FileType, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context as _, bail};
use tempfile::NamedTempFile;

/// The users that may read a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Readers {
    /// Only its owner.
    Owner,
    /// All users.
    All,
}

/// The treatment of an existing file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Existing {
    /// It is replaced. A symbolic link is replaced itself, not the file that it points to.
    Replace,
    /// It is kept, and nothing is written.
    Keep,
}

/// Checks, before long work, that a file could be written there.
///
/// # Errors
/// The directory is not writable, a file exists that is kept, or the path is not a file.
pub(super) fn can_write(path: &Path, existing: Existing) -> anyhow::Result<()> {
    check_target(path, existing)?;
    temporary_file(path).map(drop)
}

/// Writes a temporary file in the same directory, and renames it once it is on the disk.
///
/// # Errors
/// The directory or the disk is not writable, a file exists that is kept, or the path is not a file.
pub(super) fn write_atomically(
    path: &Path,
    text: &[u8],
    readers: Readers,
    existing: Existing,
) -> anyhow::Result<()> {
    check_target(path, existing)?;
    let failed = || failed(path);
    let mut file = temporary_file(path)?;
    file.write_all(text).with_context(failed)?;
    let mode = match readers {
        Readers::Owner => 0o600,
        Readers::All => 0o644,
    };
    file.as_file().set_permissions(Permissions::from_mode(mode)).with_context(failed)?;
    file.as_file().sync_all().with_context(failed)?;
    let renamed = match existing {
        Existing::Replace => file.persist(path).map(drop),
        Existing::Keep => file.persist_noclobber(path).map(drop),
    };
    renamed.map_err(|refused| refused.error).with_context(|| match existing {
        Existing::Keep if path.symlink_metadata().is_ok() => exists(path),
        Existing::Keep | Existing::Replace => failed(),
    })
}

/// Checks the existing target: a rename would also replace a pipe or `/dev/null`.
fn check_target(path: &Path, existing: Existing) -> anyhow::Result<()> {
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => {
            bail!("{} is {}; name a file", path.display(), type_name(metadata.file_type()))
        }
        Ok(_) if existing == Existing::Keep => bail!(exists(path)),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(|| failed(path)),
        Ok(_) => Ok(()),
        Err(_) if existing == Existing::Keep && path.symlink_metadata().is_ok() => bail!(exists(path)),
        Err(_) => Ok(()),
    }
}

fn type_name(file_type: FileType) -> &'static str {
    if file_type.is_dir() { "a folder" } else { "a device or a pipe" }
}

/// Creates a file in the same directory, which is deleted when it is dropped.
fn temporary_file(path: &Path) -> anyhow::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
    tempfile::Builder::new().prefix(&prefix).tempfile_in(folder).with_context(|| failed(path))
}

fn failed(path: &Path) -> String {
    format!("failed to write {}; check that its folder exists and can be written", path.display())
}

fn exists(path: &Path) -> String {
    format!("{} exists; pass --force to replace it, or another name", path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn pipes_devices_and_folders_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (reader, _writer) = std::io::pipe().unwrap();
        let pipe = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        symlink(pipe, at("pipe")).unwrap();
        symlink("/dev/null", at("null")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        for (name, expected) in
            [("pipe", "a device or a pipe"), ("null", "a device or a pipe"), ("folder", "a folder")]
        {
            for existing in [Existing::Replace, Existing::Keep] {
                let refused =
                    write_atomically(&at(name), b"text", Readers::All, existing).unwrap_err().to_string();
                assert!(refused.contains(expected), "{refused}");
                assert!(can_write(&at(name), existing).is_err(), "{name}");
            }
        }
        assert_eq!(names(folder.path()), ["folder", "null", "pipe"]);
        assert!(at("null").symlink_metadata().unwrap().is_symlink());
    }

    #[test]
    fn a_link_is_replaced_or_kept_and_never_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("precious"), "precious").unwrap();
        symlink(at("precious"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        for name in ["precious", "link", "dangling"] {
            let refused =
                write_atomically(&at(name), b"text", Readers::Owner, Existing::Keep).unwrap_err().to_string();
            assert!(refused.contains("exists; pass --force"), "{name}: {refused}");
        }
        assert_eq!(names(folder.path()), ["dangling", "link", "precious"]);
        for name in ["link", "dangling"] {
            write_atomically(&at(name), b"text", Readers::Owner, Existing::Replace).unwrap();
            assert!(at(name).symlink_metadata().unwrap().is_file(), "{name}");
        }
        assert_eq!(std::fs::read_to_string(at("precious")).unwrap(), "precious");
        assert_eq!(names(folder.path()), ["dangling", "link", "precious"]);
    }

    #[test]
    fn a_missing_folder_is_reported_before_the_work_begins() {
        let folder = tempfile::tempdir().unwrap();
        let refused = can_write(&folder.path().join("no/file"), Existing::Replace).unwrap_err().to_string();
        assert!(refused.contains("check that its folder exists"), "{refused}");
        can_write(&folder.path().join("file"), Existing::Keep).unwrap();
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }
}
