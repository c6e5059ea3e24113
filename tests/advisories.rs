//! `.ci/advisories` with a copy of the advisory database: its maximum age, and its creation from a clone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("advisories-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }

    fn copy(&self) -> PathBuf {
        self.0.join("copy")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn advisories(copy: &Path, today: &str, arguments: &[&str]) -> Output {
    let mut script = Command::new(Path::new(ROOT).join(".ci/advisories"));
    script.args(arguments).env("ADVISORIES_COPY", copy).env("TODAY", today);
    script.output().expect("the script runs")
}

fn git(folder: &Path, arguments: &[&str]) {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["-c", "user.name=test", "-c", "user.email="]).args(arguments);
    git.env("GIT_COMMITTER_DATE", "2026-10-05T12:00:00Z");
    let output = git.output().expect("git runs");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_copy_may_be_60_days_old() {
    let folder = Folder::new("age");
    fs::write(folder.copy(), "# taken: 2026-10-02\n").expect("a file can be written");
    for (today, is_fine) in [("2026-10-02", true), ("2026-12-01", true), ("2026-12-02", false)] {
        let output = advisories(&folder.copy(), today, &["age"]);
        assert_eq!(output.status.success(), is_fine, "{today}: {output:?}");
    }
    fs::write(folder.copy(), "anyhow\n").expect("a file can be written");
    let output = advisories(&folder.copy(), "2026-10-02", &["age"]);
    assert!(!output.status.success(), "a copy without a date: {output:?}");
}

#[test]
fn a_copy_is_created_from_a_clone() {
    let folder = Folder::new("clone");
    let clone = folder.0.join("advisory-db");
    let advisory = |package: &str, id: &str, facts: &str, versions: &str| {
        let path = clone.join("crates").join(package);
        fs::create_dir_all(&path).expect("a folder can be made");
        let text = format!(
            "```toml\n[advisory]\nid = \"{id}\"\npackage = \"{package}\"\n# A remark = 1\n{facts}\n[versions]\n{versions}\n\
             ```\n\n# Title\n\n```toml\npackage = \"other\"\n```\n"
        );
        fs::write(path.join(format!("{id}.md")), text).expect("a file can be written");
    };
    let dated = "date = \"2026-10-01\"\n";
    advisory("anyhow", "RUSTSEC-2026-9001", dated, "patched = [\n    \">= 2.0, < 3\",\n    \">= 4\",\n]");
    let unsound = format!("{dated}informational = \"unsound\"\n");
    advisory("anyhow", "RUSTSEC-2026-9002", &unsound, "patched = []\nunaffected = [\"< 1\"]");
    let withdrawn = format!("{dated}withdrawn = \"2026-10-02\"\n");
    advisory("anyhow", "RUSTSEC-2026-9003", &withdrawn, "patched = []");
    advisory("no-package-of-ours", "RUSTSEC-2026-9004", dated, "patched = []");
    git(&clone, &["init", "--quiet"]);
    git(&clone, &["add", "."]);
    git(&clone, &["commit", "--quiet", "--message", "All"]);

    let path = clone.display().to_string();
    let output = advisories(&folder.copy(), "2026-10-06", &["copy", &path]);
    assert!(output.status.success(), "{output:?}");
    let copy = fs::read_to_string(folder.copy()).expect("the copy is there");
    assert!(copy.starts_with("# taken: 2026-10-05\n"), "{copy}");
    let lines: Vec<&str> = copy.lines().filter(|line| line.starts_with("anyhow")).collect();
    let wanted = [
        "anyhow\tRUSTSEC-2026-9001\t2026-10-01\t-\t[ \">= 2.0, < 3\", \">= 4\",]\t[]",
        "anyhow\tRUSTSEC-2026-9002\t2026-10-01\tunsound\t[]\t[\"< 1\"]",
    ];
    assert_eq!(lines, wanted);
    assert!(copy.lines().any(|line| line == "tokio"), "a package without advisories: {copy}");
    assert!(!copy.contains("no-package-of-ours") && !copy.contains("9003"), "{copy}");
}

#[test]
fn the_copy_in_the_repository_has_valid_lines() {
    let copy = fs::read_to_string(Path::new(ROOT).join(".config/advisories")).expect("the copy is there");
    let mut lines = copy.lines();
    assert!(lines.next().is_some_and(|line| line.starts_with("# taken: 20")), "the first line has the date");
    for line in lines.filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let is_whole = match fields[..] {
            [package] => !package.is_empty(),
            [package, id, date, kind, patched, unaffected] => {
                let is_array = |text: &str| text.starts_with('[') && text.ends_with(']');
                let kinds = ["-", "notice", "unmaintained", "unsound"];
                !package.is_empty()
                    && id.starts_with("RUSTSEC-2")
                    && date.len() == 10
                    && kinds.contains(&kind)
                    && is_array(patched)
                    && is_array(unaffected)
            }
            _ => false,
        };
        assert!(is_whole, "{line}");
    }
}
