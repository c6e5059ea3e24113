//! Puts a file into its place: whole or not at all.

use std::fs::{FileType, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context as _, bail};
use tempfile::NamedTempFile;

/// Who may read a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Readers {
    /// Its owner alone.
    Owner,
    /// All users.
    All,
}

/// What becomes of a file that is there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Existing {
    /// It is replaced; so is a symbolic link, and not the file that it leads to.
    Replaced,
    /// It stays, and nothing is written.
    Kept,
}

/// Makes certain, before long work, that a file could be put there now.
///
/// # Errors
/// The folder refuses it, a file is there that is to be kept, or something that is no file.
pub(super) fn can_write(path: &Path, existing: Existing) -> anyhow::Result<()> {
    place(path, existing)?;
    beside(path).map(drop)
}

/// Writes a file beside its place and moves it there when it is on the disk.
///
/// # Errors
/// The folder or the disk refuses it, a file is there that is to be kept, or something that is no file.
pub(super) fn write_atomically(
    path: &Path,
    text: &[u8],
    readers: Readers,
    existing: Existing,
) -> anyhow::Result<()> {
    place(path, existing)?;
    let failed = || failed(path);
    let mut file = beside(path)?;
    file.write_all(text).with_context(failed)?;
    let mode = match readers {
        Readers::Owner => 0o600,
        Readers::All => 0o644,
    };
    file.as_file().set_permissions(Permissions::from_mode(mode)).with_context(failed)?;
    file.as_file().sync_all().with_context(failed)?;
    let moved = match existing {
        Existing::Replaced => file.persist(path).map(drop),
        Existing::Kept => file.persist_noclobber(path).map(drop),
    };
    moved.map_err(|refused| refused.error).with_context(|| match existing {
        Existing::Kept if path.symlink_metadata().is_ok() => exists(path),
        Existing::Kept | Existing::Replaced => failed(),
    })
}

/// Looks at what is there: a move would put a file in the place of a pipe or of `/dev/null` too.
fn place(path: &Path, existing: Existing) -> anyhow::Result<()> {
    match path.metadata() {
        Ok(there) if !there.is_file() => {
            bail!("{} is {}; name a file", path.display(), kind(there.file_type()))
        }
        Ok(_) if existing == Existing::Kept => bail!(exists(path)),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(|| failed(path)),
        Ok(_) => Ok(()),
        Err(_) if existing == Existing::Kept && path.symlink_metadata().is_ok() => bail!(exists(path)),
        Err(_) => Ok(()),
    }
}

fn kind(what: FileType) -> &'static str {
    if what.is_dir() { "a folder" } else { "a device or a pipe" }
}

/// A new file in the same folder, which vanishes when it is dropped.
fn beside(path: &Path) -> anyhow::Result<NamedTempFile> {
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
    fn a_pipe_a_device_and_a_folder_are_no_place_for_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (reader, _writer) = std::io::pipe().unwrap();
        let pipe = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        symlink(pipe, at("pipe")).unwrap();
        symlink("/dev/null", at("null")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        for (name, said) in
            [("pipe", "a device or a pipe"), ("null", "a device or a pipe"), ("folder", "a folder")]
        {
            for existing in [Existing::Replaced, Existing::Kept] {
                let refused =
                    write_atomically(&at(name), b"text", Readers::All, existing).unwrap_err().to_string();
                assert!(refused.contains(said), "{refused}");
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
                write_atomically(&at(name), b"text", Readers::Owner, Existing::Kept).unwrap_err().to_string();
            assert!(refused.contains("exists; pass --force"), "{name}: {refused}");
        }
        assert_eq!(names(folder.path()), ["dangling", "link", "precious"]);
        for name in ["link", "dangling"] {
            write_atomically(&at(name), b"text", Readers::Owner, Existing::Replaced).unwrap();
            assert!(at(name).symlink_metadata().unwrap().is_file(), "{name}");
        }
        assert_eq!(std::fs::read_to_string(at("precious")).unwrap(), "precious");
        assert_eq!(names(folder.path()), ["dangling", "link", "precious"]);
    }

    #[test]
    fn a_folder_that_does_not_exist_is_told_before_the_work_begins() {
        let folder = tempfile::tempdir().unwrap();
        let refused = can_write(&folder.path().join("no/file"), Existing::Replaced).unwrap_err().to_string();
        assert!(refused.contains("check that its folder exists"), "{refused}");
        can_write(&folder.path().join("file"), Existing::Kept).unwrap();
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }
}
