//! E1: the newest report of a condition is posted again while the condition holds, until the API server has accepted
//! it, with any failures of posts.

use std::collections::BTreeMap;

use model::ids::Epoch;
use model::report::{Condition, Subject};
use pool_core::route::{Delivery, Output};
use reporting::events::{self, Event};

use super::Watchdog;

/// Time limit for the acceptance of a report after its last failed post: it is posted again after a minute, and edges
/// stall.
const ACCEPTED_US: u64 = 100_000_000;
/// After this many posts with one reason about one object, the next may wait for its budget.
const WITHIN_BUDGET: u64 = 20;

/// Reports that the API server must accept from one process.
#[derive(Default)]
pub struct Reports {
    open: BTreeMap<(Condition, Subject), Open>,
    posts: BTreeMap<(Subject, &'static str), u64>,
    leads: Option<Epoch>,
    tells: bool,
}

/// A report that was not accepted yet.
struct Open {
    reason: &'static str,
    message: String,
    /// Time at which it was made, or at which a post of its kind last failed.
    since: u64,
}

impl Reports {
    /// Records that the process must post nothing more.
    pub fn end(&mut self) {
        self.open.clear();
    }

    /// Records that the process was suspended until now.
    pub fn resumes(&mut self, now: u64) {
        self.open.values_mut().for_each(|open| open.since = now);
    }

    fn on_input(&mut self, now: u64, input: &events::In) {
        match input {
            events::In::Report(report) => {
                let Some(condition) = report.what.condition() else { return };
                let (reason, message) = events::text_of(report);
                for subject in &report.subjects {
                    if self.tells || (self.leads.is_some() && *subject == Subject::Controller) {
                        let open = Open { reason, message: message.clone(), since: now };
                        self.open.insert((condition.clone(), subject.clone()), open);
                    }
                }
            }
            events::In::Ended(ended) => self.open.retain(|(condition, subject), _| {
                *condition != ended.condition || ended.subject.as_ref().is_some_and(|of| of != subject)
            }),
            events::In::Leadership(leadership) => {
                if std::mem::replace(&mut self.leads, leadership.term()) != leadership.term() {
                    self.open.clear();
                }
            }
            events::In::OperatorPolicy { .. } | events::In::Posted { .. } => {}
        }
    }
}

impl Watchdog {
    /// Records a step of the event emitter.
    ///
    /// # Errors
    /// A report that was not accepted in time.
    pub fn on_emitter_step(
        &mut self,
        now: u64,
        process: usize,
        input: Option<&Delivery>,
        outputs: &[Output],
    ) -> Result<(), String> {
        let reports = &mut self.within[process].reports;
        if let Some(Delivery::Events(input)) = input {
            reports.on_input(now, input);
        }
        for output in outputs {
            if let Output::Events(events::Out::Reporting(term)) = output {
                reports.tells = term.is_some();
                if term.is_none() {
                    reports.open.clear();
                }
            }
        }
        self.reports_accepted(now, process)
    }

    /// Records that a post reaches the API server, which accepts it or not.
    pub fn on_posted(&mut self, now: u64, process: usize, event: &Event, accepted: bool) {
        let reports = &mut self.within[process].reports;
        let Event { subject, reason, message, .. } = event;
        *reports.posts.entry((subject.clone(), reason)).or_default() += 1;
        reports.open.retain(|(_, of), open| {
            let is_of_it = of == subject && open.reason == *reason;
            if is_of_it && !accepted {
                open.since = now;
            }
            !(is_of_it && accepted && message.ends_with(&open.message))
        });
    }

    /// Checks E1: every report of a condition that holds is accepted in time.
    ///
    /// # Errors
    ///
    /// A report that is not.
    pub fn reports_accepted(&self, now: u64, process: usize) -> Result<(), String> {
        let reports = &self.within[process].reports;
        let is_late = |((_, subject), open): &(&(Condition, Subject), &Open)| {
            let posts = reports.posts.get(&(subject.clone(), open.reason));
            open.since + ACCEPTED_US < now && posts.is_none_or(|posts| *posts < WITHIN_BUDGET)
        };
        match reports.open.iter().find(is_late) {
            Some(((condition, subject), open)) => Err(format!(
                "E1: no event of {subject:?} since {} reports that {condition:?} holds: {}",
                open.since, open.message
            )),
            None => Ok(()),
        }
    }
}
