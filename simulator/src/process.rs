//! The controller under test: a child process, its log, and its resource usage.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};

use crate::files::Files;
use crate::process_control::{ControlRequest, ProcessControl};

/// Interval between probes of a starting controller.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running controller. Dropping this value kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Its start parameters.
    begin: Begin,
    /// Its process id, for process control.
    pid: watch::Sender<Option<Pid>>,
    /// Requests of process controls. The sender is kept, so that the channel stays open.
    requests: (mpsc::UnboundedSender<ControlRequest>, mpsc::UnboundedReceiver<ControlRequest>),
    /// Number of remaining restarts after an exit with code 1.
    restarts: u32,
    /// Its usage before the last restart.
    spent: Usage,
}

/// Start parameters of a controller.
#[derive(Clone, Debug)]
struct Begin {
    program: PathBuf,
    files: Files,
    log: Option<PathBuf>,
}

/// Reasons why a controller does not run.
#[derive(Debug, Error)]
pub enum Ended {
    /// The process has exited.
    #[error("the controller ended with {0}")]
    Exited(ExitStatus),
    /// The process did not become ready in time.
    #[error("the controller was not ready after {0:?}")]
    NotReady(Duration),
    /// A system call failed.
    #[error("the controller could not be started or watched")]
    Io(#[source] io::Error),
}

/// Resource usage of a process so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// User and system time in seconds.
    pub cpu_seconds: f64,
    /// Peak resident memory, in bytes.
    pub max_rss_bytes: u64,
}

impl Process {
    /// Starts `<program> run` with these files. Its standard error goes to `log` or, without a log, to the standard
    /// error of this process.
    ///
    /// # Errors
    /// The program or the log cannot be opened.
    pub fn start(program: &Path, files: &Files, log: Option<&Path>) -> io::Result<Self> {
        let begin = Begin { program: program.to_owned(), files: files.clone(), log: log.map(Path::to_owned) };
        let log = log.map(File::create).transpose()?;
        Ok(Self::of(begin.spawn(log)?, begin))
    }

    fn of(child: Child, begin: Begin) -> Self {
        let (pid, _) = watch::channel(pid_of(&child));
        Self { child, begin, pid, requests: mpsc::unbounded_channel(), restarts: 0, spent: Usage::default() }
    }

    /// Waits until `/readyz` at this address answers 200.
    ///
    /// # Errors
    /// The controller ended, or was not ready within that time.
    pub async fn ready(&mut self, health: SocketAddr, within: Duration) -> Result<(), Ended> {
        let mut again = tokio::time::interval(POLL_INTERVAL);
        let asking = async {
            loop {
                again.tick().await;
                if is_ready(health).await.unwrap_or(false) {
                    return;
                }
            }
        };
        tokio::select! {
            status = self.child.wait() => Err(status.map_or_else(Ended::Io, Ended::Exited)),
            answered = tokio::time::timeout(within, asking) => answered.map_err(|_| Ended::NotReady(within)),
        }
    }

    /// Returns a handle to suspend, restart and limit the process; `None` after it has ended.
    #[must_use]
    pub fn control(&self) -> Option<ProcessControl> {
        pid_of(&self.child).map(|_| ProcessControl::of(self.pid.subscribe(), self.requests.0.clone()))
    }

    /// Waits until the controller exits, and returns the reason. Handles requests of process controls to restart it,
    /// and expected exits.
    pub async fn ended(&mut self) -> Ended {
        loop {
            let done = tokio::select! {
                biased;
                Some(request) = self.requests.1.recv() => self.on_request(request).await,
                status = self.child.wait() => match status {
                    Ok(status) if status.code() == Some(1) && self.restarts > 0 => {
                        self.restarts -= 1;
                        self.begin_again()
                    }
                    status => return status.map_or_else(Ended::Io, Ended::Exited),
                },
            };
            if let Err(error) = done {
                return Ended::Io(error);
            }
        }
    }

    async fn on_request(&mut self, request: ControlRequest) -> io::Result<()> {
        match request {
            ControlRequest::Restart(done) => {
                self.again().await?;
                // The caller may have stopped waiting.
                let _alone = done.send(true).is_err();
            }
            ControlRequest::RestartOnFailure => self.restarts += 1,
        }
        Ok(())
    }

    /// Kills and restarts the process.
    async fn again(&mut self) -> io::Result<()> {
        self.spent = self.usage().unwrap_or(self.spent);
        self.child.start_kill()?;
        self.child.wait().await?;
        self.begin_again()
    }

    /// Restarts the process with the same files and the same log.
    fn begin_again(&mut self) -> io::Result<()> {
        let log = self.begin.log.as_deref().map(open_log_of_predecessor).transpose()?;
        self.child = self.begin.spawn(log)?;
        self.pid.send_replace(pid_of(&self.child));
        Ok(())
    }

    /// Returns the usage, including the usage of killed predecessors; `None` after the process has ended, or if the
    /// system does not provide it.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        let folder = format!("/proc/{}", self.child.id()?);
        let stat = std::fs::read_to_string(format!("{folder}/stat")).ok()?;
        let status = std::fs::read_to_string(format!("{folder}/status")).ok()?;
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        Some(Usage {
            cpu_seconds: self.spent.cpu_seconds + cpu_ticks(&stat)? as f64 / ticks_per_second as f64,
            max_rss_bytes: self.spent.max_rss_bytes.max(peak_bytes(&status)?),
        })
    }

    /// Sends SIGTERM, and kills the process if it has not ended within this time.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub async fn stop(mut self, within: Duration) -> io::Result<ExitStatus> {
        if let Some(pid) = pid_of(&self.child) {
            // A suspended process does not receive SIGTERM.
            kill_process(pid, Signal::CONT)?;
            kill_process(pid, Signal::TERM)?;
        }
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(status) => status,
            Err(_) => {
                self.child.start_kill()?;
                self.child.wait().await
            }
        }
    }
}

impl Begin {
    /// Starts the controller. Its output goes to `log` or, without a log, to the standard error of this process.
    fn spawn(&self, log: Option<File>) -> io::Result<Child> {
        let Self { program, files, .. } = self;
        let mut command = Command::new(program);
        command.arg("run").arg("--kubeconfig").arg(&files.kubeconfig);
        command.arg("--cloud-config").arg(&files.cloud_config).arg("--config").arg(&files.controller);
        command.stdin(Stdio::null()).kill_on_drop(true);
        match log {
            Some(file) => {
                command.stdout(file.try_clone()?).stderr(file);
            }
            None => {
                command.stdout(Stdio::null()).stderr(Stdio::inherit());
            }
        }
        // The caller's environment must neither override the files nor select a proxy for loopback.
        for (key, _) in std::env::vars_os() {
            let name = key.to_string_lossy();
            let reaches_in = ["POOL_CONTROLLER_", "AZURE_", "POD_", "OPERATOR_", "DEPLOYMENT_"]
                .iter()
                .any(|head| name.starts_with(head));
            if reaches_in || name == "KUBECONFIG" {
                command.env_remove(&key);
            }
        }
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
        // The commands of the page then need no kubectl.
        command.env("SIMULATED_API_SERVER", "true");
        command.spawn()
    }
}

/// Opens the log of a killed process for its successor, and removes an incomplete last line.
fn open_log_of_predecessor(log: &Path) -> io::Result<File> {
    if std::fs::metadata(log)?.is_file() {
        let text = std::fs::read(log)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        OpenOptions::new().write(true).open(log)?.set_len(whole as u64)?;
    }
    OpenOptions::new().append(true).open(log)
}

fn pid_of(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

/// Returns user and system time of `/proc/<pid>/stat`, in clock ticks. The name in parentheses may contain any
/// characters.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11);
    let (user, system): (u64, u64) = (times.next()?.parse().ok()?, times.next()?.parse().ok()?);
    Some(user + system)
}

/// Returns the high-water mark of resident memory in `/proc/<pid>/status`, in bytes.
fn peak_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

async fn is_ready(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await?;
    Ok(&answer == b"HTTP/1.1 200")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(program: &str) -> Begin {
        let files = Files { kubeconfig: "k".into(), cloud_config: "c".into(), controller: "y".into() };
        Begin { program: program.into(), files, log: None }
    }

    #[tokio::test]
    async fn z2_a_restarted_process_continues_the_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        std::fs::write(&log, "begin\nhal").expect("a log");
        let child = Command::new("sleep").arg("600").kill_on_drop(true).spawn().expect("sleep is everywhere");
        // `echo` prints its arguments and exits.
        let begin = Begin { log: Some(log.clone()), ..nothing("echo") };
        let mut process = Process::of(child, begin);
        let control = process.control().expect("it runs");
        let (ended, done) = tokio::join!(process.ended(), control.restart());
        assert!(done && matches!(ended, Ended::Exited(status) if status.success()), "{ended:?}");
        let log = std::fs::read_to_string(&log).expect("a log");
        assert_eq!(log, "begin\nrun --kubeconfig k --cloud-config c --config y\n");
    }

    #[tokio::test]
    async fn z2_a_process_restarts_once_after_a_failure_on_request() {
        for (request, codes) in [(false, "1"), (true, "1 0"), (true, "0")] {
            let folder = tempfile::tempdir().expect("a folder");
            let log = folder.path().join("log");
            let first = codes.split(' ').next().unwrap_or_default();
            let mut child = Command::new("sh");
            let child = child.args(["-c", &format!("exit {first}")]).spawn().expect("sh is everywhere");
            std::fs::write(&log, "").expect("a log");
            let mut process = Process::of(child, Begin { log: Some(log.clone()), ..nothing("echo") });
            assert!(!request || process.control().is_none_or(|control| control.restart_on_failure()));
            let ended = process.ended().await;
            let Ended::Exited(status) = ended else { panic!("{ended:?}") };
            let again = !std::fs::read_to_string(&log).expect("a log").is_empty();
            assert_eq!((status.success(), again), (codes != "1", codes == "1 0"), "{request}, {codes}");
        }
    }

    #[test]
    fn usage_is_read_from_proc_for_any_program_name() {
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 900 0 0 0 120 35 7 7 20 0 4 0 100 1 1";
        assert_eq!(cpu_ticks(stat), Some(155));
        assert_eq!(peak_bytes("Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t 1 kB\n"), Some(2_097_152));
        assert_eq!((cpu_ticks("nonsense"), peak_bytes("")), (None, None));
    }

    #[tokio::test]
    async fn z2_a_process_can_be_suspended_limited_and_stopped() {
        let child = Command::new("sleep").arg("600").kill_on_drop(true).spawn().expect("sleep is everywhere");
        let process = Process::of(child, nothing("sleep"));
        let control = process.control().expect("it runs");
        let folder = format!("/proc/{}", process.child.id().expect("it runs"));
        let read = |file: &str| std::fs::read_to_string(format!("{folder}/{file}")).unwrap_or_default();
        let files = || -> Vec<String> {
            let limits = read("limits");
            let line =
                limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap_or_default();
            line.split_whitespace().take(2).map(str::to_owned).collect()
        };
        let before = files();
        control.limit_files(Some(7));
        assert_eq!((files()[0].as_str(), &files()[1]), ("7", &before[1]), "the limit may be raised again");
        control.limit_files(None);
        assert_eq!(files(), before);
        control.set_suspended(true);
        while !read("stat").contains(") T ") {
            tokio::task::yield_now().await;
        }
        let status = process.stop(Duration::from_secs(60)).await.expect("it ends");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::TERM.as_raw()));
        // Control of a process that has ended has no effect.
        control.set_suspended(true);
    }

    #[tokio::test]
    async fn a_process_that_exits_immediately_is_not_awaited() {
        let Begin { program, files, .. } = nothing("false");
        let mut process = Process::start(&program, &files, None).expect("false is everywhere");
        let closed_port: SocketAddr = ([127, 0, 0, 1], 9).into();
        let ended = process.ready(closed_port, Duration::from_secs(60)).await;
        assert!(matches!(ended, Err(Ended::Exited(status)) if !status.success()), "{ended:?}");
    }
}
