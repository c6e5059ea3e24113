//! What a story does to the service's process: it stands still for a while, or may hardly open a file.

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};

/// A hold on a running process. Once that has ended, nothing is done any more: its end is noticed elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Reins {
    pid: Pid,
}

impl Reins {
    /// The reins of this process.
    pub(crate) fn of(pid: Pid) -> Self {
        Self { pid }
    }

    /// Lets it stand still, or go on, and says whether it was told to, and in the second case had stood still until
    /// then. Time goes on for everybody else.
    pub(crate) fn stand_still(&self, still: bool) -> bool {
        if still {
            return kill_process(self.pid, Signal::STOP).is_ok();
        }
        let stood_still = self.stands_still();
        kill_process(self.pid, Signal::CONT).is_ok() && stood_still
    }

    /// Whether it is stopped, as the system tells. Its name in parentheses may hold anything.
    fn stands_still(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T'))
    }

    /// Lets it have so many files open at most, connections included; those that are open stay. Nothing: as many as
    /// this process may have. Says whether the system has set that limit.
    pub(crate) fn limit_files(&self, most: Option<u64>) -> bool {
        let ours = getrlimit(Resource::Nofile);
        let limit = Rlimit { current: most.or(ours.current), maximum: ours.maximum };
        prlimit(Some(self.pid), Resource::Nofile, limit).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn z2_reins_tell_whether_a_process_has_stood_still_and_whether_it_has_its_limit() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep is everywhere");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("it runs");
        let reins = Reins::of(pid);
        assert!(!reins.stand_still(false), "it did not stand still");
        assert!(reins.stand_still(true));
        while !reins.stands_still() {
            std::thread::yield_now();
        }
        assert!(reins.stand_still(false), "it stood still until then");
        while reins.stands_still() {
            std::thread::yield_now();
        }
        assert!(reins.limit_files(Some(7)) && reins.limit_files(None));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert!(!reins.stand_still(true) && !reins.limit_files(Some(7)), "nobody is there any more");
    }
}
