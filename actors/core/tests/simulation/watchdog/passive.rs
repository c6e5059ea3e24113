//! The notes of starts (A4), judged by the truth of our ConfigMap: who begins passive, what he may do then, for how
//! long, and what becomes of the notes.

use pool_core::route::Said;
use pool_core::starts::Out;

use super::Watchdog;

/// How long a process that began passive stays so (A4).
pub const PASSIVE_US: u64 = 1_800_000_000;
/// How long its clock, its timer and its edges may need besides.
const SLACK_US: u64 = 60_000_000;
/// So many notes of its own name make a start passive, and so many of any name.
const NOTES: (usize, usize) = (3, 9);
/// The most notes that may stand: those that each writer keeps, its own, and one of each other process.
const MOST_NOTES: usize = 50 + 1 + 3;

/// How many notes stand: of a process's name besides its own, and of any name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    ours: usize,
    all: usize,
}

impl Standing {
    /// Those of these notes that count for a process.
    pub fn of(noted: &[String], identity: &str) -> Standing {
        let name = |identity: &str| identity.rsplit_once('_').map(|(name, _)| name.to_owned());
        let others = || noted.iter().filter(|noted| *noted != identity);
        let ours = others().filter(|noted| name(noted) == name(identity)).count();
        Standing { ours, all: others().count() }
    }
}

/// What a process has said of its start.
#[derive(Default)]
pub struct Start {
    /// The notes that stood when it was started.
    notes: Standing,
    /// Since when it is passive.
    passive: Option<u64>,
    begun_at: u64,
}

impl Start {
    /// One that begins while these notes stand.
    pub fn new(now: u64, notes: Standing) -> Start {
        Start { notes, passive: None, begun_at: now }
    }
}

impl Watchdog {
    /// When a passive process ends to be so by itself.
    pub fn passive_until(&self, process: usize) -> Option<u64> {
        let start = &self.within[process].start;
        start.passive.map(|_| start.begun_at + PASSIVE_US + SLACK_US)
    }

    /// Notes that a person removes all notes.
    pub fn notes_cleared(&mut self, now: u64) {
        self.notes_cleared_at = Some(now);
    }

    /// Judges a step of the keeper of notes; `notes`: those that stand now.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn on_starts_step(
        &mut self,
        now: u64,
        process: usize,
        said: &[Said],
        notes: Standing,
    ) -> Result<(), String> {
        let cleared = self.notes_cleared_at;
        let start = &mut self.within[process].start;
        let (mut begins, mut known) = (false, false);
        for said in said {
            let Said::Starts(said) = said else { continue };
            match said {
                Out::Begin => begins = true,
                Out::View(view) => known |= view.notes.is_some(),
                Out::Passive(true) => start.passive = Some(now),
                Out::Passive(false) => {
                    let by_person = cleared.is_some_and(|at| at >= start.begun_at);
                    // Another process strikes its note when it has lived for long enough.
                    let reason_is_gone = notes.ours < NOTES.0 && notes.all < NOTES.1;
                    let early = now + SLACK_US < start.begun_at + PASSIVE_US;
                    if early && !by_person && !reason_is_gone {
                        return Err(format!(
                            "A4: process {process} is passive no more after {:?}",
                            start.passive
                        ));
                    }
                    start.passive = None;
                }
                Out::ConfigMap(..) | Out::Sample(_) | Out::Struck { .. } => {}
            }
        }
        if !begins || !known {
            return Ok(());
        }
        let (fewest, most) = (start.notes.ours.min(notes.ours), start.notes.ours.max(notes.ours));
        let is_passive = start.passive.is_some();
        if is_passive && most < NOTES.0 && start.notes.all.max(notes.all) < NOTES.1 {
            return Err(format!("A4: process {process} begins passive, and {most} notes stand"));
        }
        if !is_passive && fewest >= NOTES.0 {
            return Err(format!("A4: process {process} begins at work, and {fewest} notes stand"));
        }
        Ok(())
    }

    /// A4: a passive process writes nothing but notes.
    ///
    /// # Errors
    /// That it does.
    pub fn writes(&self, process: usize, what: &str) -> Result<(), String> {
        match self.within[process].start.passive {
            Some(since) => Err(format!("A4: process {process} is passive since {since} and writes {what}")),
            None => Ok(()),
        }
    }

    /// A4: nobody stays passive for too long.
    ///
    /// # Errors
    /// That a process does.
    pub fn passive_ends(&self, now: u64, process: usize) -> Result<(), String> {
        let woken = self.within[process].started_at + SLACK_US;
        match self.passive_until(process).filter(|until| (*until).max(woken) < now) {
            Some(until) => Err(format!("A4: process {process} is passive, and should not after {until}")),
            None => Ok(()),
        }
    }

    /// Our ConfigMap was written: the notes stay few, each of a process that was started.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn notes_written(&self, noted: &[String]) -> Result<(), String> {
        let is_known = |noted: &String| {
            self.within.iter().any(|within| within.identity.as_deref() == Some(noted.as_str()))
        };
        if noted.len() > MOST_NOTES || !noted.iter().all(is_known) {
            return Err(format!("A4: the notes are {noted:?}"));
        }
        Ok(())
    }
}
