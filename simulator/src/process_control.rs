//! The actions of a scenario on the controller's process: it is suspended, limited in open files, killed and restarted,
//! or restarted after an exit.

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use tokio::sync::{mpsc, oneshot, watch};

/// A request to the task that has started the process.
#[derive(Debug)]
pub(crate) enum ControlRequest {
    /// Kill and restart the process; the answer is whether that was done.
    Restart(oneshot::Sender<bool>),
    /// Restart the process after its next exit with code 1, like the kubelet.
    RestartOnFailure,
}

/// A handle of a running process. After its end, all actions do nothing: its owner detects the end.
#[derive(Clone, Debug)]
pub struct ProcessControl {
    /// Its process id, which changes with a restart.
    pid: watch::Receiver<Option<Pid>>,
    /// Sender to the task that has started it.
    starter: mpsc::UnboundedSender<ControlRequest>,
}

impl ProcessControl {
    /// Creates a handle of the process with this id; the receiver of the requests can restart it.
    pub(crate) fn of(
        pid: watch::Receiver<Option<Pid>>,
        starter: mpsc::UnboundedSender<ControlRequest>,
    ) -> Self {
        Self { pid, starter }
    }

    fn pid(&self) -> Option<Pid> {
        *self.pid.borrow()
    }

    /// Suspends or resumes the process. Returns whether the signal was sent and, when resuming, whether the process was
    /// suspended until then. Time continues for all others.
    pub(crate) fn set_suspended(&self, still: bool) -> bool {
        let Some(pid) = self.pid() else { return false };
        if still {
            return kill_process(pid, Signal::STOP).is_ok();
        }
        let stood_still = stands_still(pid);
        kill_process(pid, Signal::CONT).is_ok() && stood_still
    }

    /// Limits the number of open files of the process, connections included; open ones stay open. `None` sets the limit
    /// of this process. Returns whether the system has set the limit.
    pub(crate) fn limit_files(&self, most: Option<u64>) -> bool {
        let ours = getrlimit(Resource::Nofile);
        let limit = Rlimit { current: most.or(ours.current), maximum: ours.maximum };
        self.pid().is_some_and(|pid| prlimit(Some(pid), Resource::Nofile, limit).is_ok())
    }

    /// Kills and restarts the process; returns whether that was done. The process is not ready then.
    pub(crate) async fn restart(&self) -> bool {
        let (answer, done) = oneshot::channel();
        self.starter.send(ControlRequest::Restart(answer)).is_ok() && done.await.unwrap_or(false)
    }

    /// Requests a restart after its next exit with code 1, like the kubelet; returns whether the request was sent.
    pub(crate) fn restart_on_failure(&self) -> bool {
        self.starter.send(ControlRequest::RestartOnFailure).is_ok()
    }
}

/// Returns whether a process is stopped, from `/proc`. The name in parentheses may contain any characters.
fn stands_still(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T'))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn z2_a_process_is_frozen_and_limited() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep is everywhere");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("it runs");
        let ((_named, named), (starter, _)) = (watch::channel(Some(pid)), mpsc::unbounded_channel());
        let control = ProcessControl::of(named, starter);
        assert!(!control.set_suspended(false), "it was not suspended");
        assert!(control.set_suspended(true));
        while !stands_still(pid) {
            std::thread::yield_now();
        }
        assert!(control.set_suspended(false), "it was suspended until then");
        while stands_still(pid) {
            std::thread::yield_now();
        }
        assert!(control.limit_files(Some(7)) && control.limit_files(None));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert!(!control.set_suspended(true) && !control.limit_files(Some(7)), "the process has ended");
    }

    #[tokio::test]
    async fn z2_only_its_starter_restarts_a_process() {
        let (named, pid) = watch::channel(None);
        let (starter, mut answer) = mpsc::unbounded_channel();
        let control = ProcessControl::of(pid, starter);
        assert!(!control.set_suspended(true) && !control.limit_files(None), "there is none");
        for outcome in [true, false] {
            let starts = async {
                let Some(ControlRequest::Restart(done)) = answer.recv().await else { panic!("a request") };
                done.send(outcome).expect("the caller waits");
            };
            assert_eq!(tokio::join!(control.restart(), starts), (outcome, ()));
        }
        drop((named, answer));
        assert!(!control.restart().await, "there is no receiver");
    }
}
