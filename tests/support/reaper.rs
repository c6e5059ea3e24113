//! Ends all processes of a test: a shell waits at the end of a pipe and, when the pipe closes, kills everything that
//! was started and removes the folder. The pipe closes when the reaper is dropped, and also when the test process ends
//! in any other way, SIGKILL included.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::log_line;

/// Reads from the pipe; at its end kills the process group and removes the folder.
const SCRIPT: &str = r#"
group=; keep=
while read -r word value; do
  case "$word" in
    group) group="$value" ;;
    keep) keep=yes ;;
  esac
done
[ -z "$group" ] || kill -s KILL -- "-$group"
[ -n "$keep" ] || rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"#;

/// A folder, and the processes that work in it.
pub struct Reaper {
    folder: PathBuf,
    shell: Child,
    /// `None` only while it is dropped.
    pipe: Option<ChildStdin>,
    /// The group's first process; it stays unreaped so that the group id is not reused.
    leader: Child,
}

impl Reaper {
    /// Creates a folder that is removed when this value is dropped or this process ends.
    pub fn new() -> Self {
        let folder =
            tempfile::Builder::new().prefix("pool-controller-").tempdir().expect("a temporary folder");
        let folder = folder.keep();
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "reaper"]).arg(&folder).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = shell.spawn().expect("a shell");
        let pipe = shell.stdin.take();
        // Holds the group open from the first to the last process.
        let mut leader = Command::new("sleep");
        leader.arg("infinity").process_group(0);
        leader.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let leader = leader.spawn().expect("the command sleep");
        let reaper = Self { folder, shell, pipe, leader };
        reaper.send(&format!("group {}", reaper.leader.id()));
        reaper
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a process in the folder, with its output in `<name>.log`.
    pub fn start(&self, name: &str, command: &mut Command) -> Child {
        let path = self.folder.join(format!("{name}.log"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a log file");
        let second = log.try_clone().expect("a second handle of the log file");
        let group = i32::try_from(self.leader.id()).expect("process ids are positive and small");
        command.current_dir(&self.folder).process_group(group);
        command.stdin(Stdio::null()).stdout(log).stderr(second);
        command.spawn().unwrap_or_else(|error| panic!("{name} does not start: {error}"))
    }

    /// Keeps the folder, so that the logs in it can be read.
    pub fn keep(&self) {
        log_line(&format!("the logs are kept in {}", self.folder.display()));
        self.send("keep");
    }

    fn send(&self, line: &str) {
        let mut pipe = self.pipe.as_ref().expect("the pipe is open until the reaper is dropped");
        pipe.write_all(format!("{line}\n").as_bytes()).expect("the shell reads until the pipe closes");
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep();
        }
        drop(self.pipe.take());
        // Both have ended or were killed, so errors need no handling.
        drop(self.shell.wait());
        drop(self.leader.wait());
    }
}
