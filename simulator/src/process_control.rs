//! What a story does to the service's process: it stands still for a while, may hardly open a file, is killed and started
//! again, or is started again when it ends by itself.

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use tokio::sync::{mpsc, oneshot, watch};

/// A request to what has started the process.
#[derive(Debug)]
pub(crate) enum Asked {
    /// To kill it and to start it again, and to say whether that was done.
    Restart(oneshot::Sender<bool>),
    /// To start it again, as the kubelet does, when it next ends by itself with exit code 1.
    RestartOnFailure,
}

/// A hold on a running process. Once that has ended, nothing is done any more: its end is noticed elsewhere.
#[derive(Clone, Debug)]
pub struct ProcessControl {
    /// Its number, which is another one after it was started again.
    pid: watch::Receiver<Option<Pid>>,
    /// To the task that has started it.
    starter: mpsc::UnboundedSender<Asked>,
}

impl ProcessControl {
    /// Control of the process that has this number, and that the receiver of these requests can start again.
    pub(crate) fn of(pid: watch::Receiver<Option<Pid>>, starter: mpsc::UnboundedSender<Asked>) -> Self {
        Self { pid, starter }
    }

    fn pid(&self) -> Option<Pid> {
        *self.pid.borrow()
    }

    /// Lets it stand still, or go on, and says whether it was told to, and in the second case had stood still until
    /// then. Time goes on for all others.
    pub(crate) fn stand_still(&self, still: bool) -> bool {
        let Some(pid) = self.pid() else { return false };
        if still {
            return kill_process(pid, Signal::STOP).is_ok();
        }
        let stood_still = stands_still(pid);
        kill_process(pid, Signal::CONT).is_ok() && stood_still
    }

    /// Lets it have so many files open at most, connections included; those that are open stay. Nothing: as many as
    /// this process may have. Says whether the system has set that limit.
    pub(crate) fn limit_files(&self, most: Option<u64>) -> bool {
        let ours = getrlimit(Resource::Nofile);
        let limit = Rlimit { current: most.or(ours.current), maximum: ours.maximum };
        self.pid().is_some_and(|pid| prlimit(Some(pid), Resource::Nofile, limit).is_ok())
    }

    /// Has it killed as it stands, and started again; says whether that was done. It is not ready then.
    pub(crate) async fn restart(&self) -> bool {
        let (asked, done) = oneshot::channel();
        self.starter.send(Asked::Restart(asked)).is_ok() && done.await.unwrap_or(false)
    }

    /// Has it started again, as the kubelet does, when it next ends by itself with exit code 1; says whether that was
    /// heard.
    pub(crate) fn restart_on_failure(&self) -> bool {
        self.starter.send(Asked::RestartOnFailure).is_ok()
    }
}

/// Whether a process is stopped, as the system tells. Its name in parentheses may hold anything.
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
        assert!(!control.stand_still(false), "it did not stand still");
        assert!(control.stand_still(true));
        while !stands_still(pid) {
            std::thread::yield_now();
        }
        assert!(control.stand_still(false), "it stood still until then");
        while stands_still(pid) {
            std::thread::yield_now();
        }
        assert!(control.limit_files(Some(7)) && control.limit_files(None));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert!(!control.stand_still(true) && !control.limit_files(Some(7)), "the process is gone");
    }

    #[tokio::test]
    async fn z2_a_process_is_started_again_by_whoever_has_started_it_or_not_at_all() {
        let (named, pid) = watch::channel(None);
        let (starter, mut asked) = mpsc::unbounded_channel();
        let control = ProcessControl::of(pid, starter);
        assert!(!control.stand_still(true) && !control.limit_files(None), "there is none");
        for outcome in [true, false] {
            let starts = async {
                let Some(Asked::Restart(done)) = asked.recv().await else { panic!("a request") };
                done.send(outcome).expect("the caller waits");
            };
            assert_eq!(tokio::join!(control.restart(), starts), (outcome, ()));
        }
        drop((named, asked));
        assert!(!control.restart().await, "there is no receiver");
    }
}
