//! Log lines about a Lease: its holder, and requests that fail. Each is logged once, however often the request is
//! repeated.

use std::sync::Arc;

use model::lease::{LeaseAnswer, LeaseAsk, LeaseEdit, LeaseName};
use model::object::RequestFailure;

use super::Place;

/// A request, in the detail that matters to operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::kubernetes) enum Asked {
    /// Read the state.
    State,
    /// Take the Lease for this holder.
    Take(Arc<str>),
    /// Renew it.
    Keep,
    /// Release it.
    LetGo,
    /// Wait for a change.
    Change,
}

impl Asked {
    /// The kind of request, as operators read it.
    fn kind(&self) -> &'static str {
        match self {
            Asked::State => "read",
            Asked::Take(_) | Asked::Keep | Asked::LetGo => "write",
            Asked::Change => "watch",
        }
    }
}

impl From<&LeaseAsk> for Asked {
    fn from(ask: &LeaseAsk) -> Asked {
        let write = |edit: &LeaseEdit| match &edit.holder {
            None => Asked::LetGo,
            Some(holder) if edit.acquired => Asked::Take(Arc::clone(holder)),
            Some(_) => Asked::Keep,
        };
        match ask {
            LeaseAsk::Get => Asked::State,
            LeaseAsk::Create(edit) | LeaseAsk::Replace(_, edit) => write(edit),
            LeaseAsk::Await(..) => Asked::Change,
        }
    }
}

/// What was logged about one Lease so far.
#[derive(Default)]
pub(in crate::kubernetes) struct Told {
    /// The holder identity with which this process has it.
    ours: Option<Arc<str>>,
    troubles: Troubles,
}

/// What blocks each kind of request: success of one does not clear the others.
#[derive(Default)]
struct Troubles {
    reads: Trouble,
    writes: Trouble,
    watches: Trouble,
    /// Failed watches in a row.
    failed_watches: u32,
}

/// What blocks a kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Trouble {
    #[default]
    Nothing,
    Denied,
    Failing,
}

impl Told {
    /// Records a request. A Lease that is being released does not count as lost, whichever request shows it first.
    pub(in crate::kubernetes) fn asked(&mut self, asked: &Asked) {
        if *asked == Asked::LetGo {
            self.ours = None;
        }
    }

    /// Records an answer, and logs what is new.
    pub(in crate::kubernetes) fn heard(
        &mut self,
        lease: LeaseName,
        place: &Place,
        asked: &Asked,
        answer: &LeaseAnswer,
    ) {
        if let Some(news) = self.troubles.news(asked, answer) {
            tell(place, asked, &news);
        }
        match answer {
            LeaseAnswer::Seen(facts) => {
                match asked {
                    Asked::Take(holder) => {
                        self.ours = Some(Arc::clone(holder));
                        match lease {
                            LeaseName::Own => tracing::info!(lease = %place, %holder, "took the Lease"),
                            // Taken and released with every few writes.
                            LeaseName::Shared => tracing::debug!(lease = %place, %holder, "took the Lease"),
                        }
                    }
                    Asked::LetGo => match lease {
                        LeaseName::Own => tracing::info!(lease = %place, "released the Lease"),
                        LeaseName::Shared => tracing::debug!(lease = %place, "released the Lease"),
                    },
                    Asked::State | Asked::Keep | Asked::Change => {
                        self.compare(place, facts.holder.as_deref());
                    }
                }
            }
            LeaseAnswer::Absent => self.compare(place, None),
            LeaseAnswer::Conflict | LeaseAnswer::Unchanged | LeaseAnswer::Failed(_) => {}
        }
    }

    fn compare(&mut self, place: &Place, holder: Option<&str>) {
        if self.ours.is_some() && self.ours.as_deref() != holder {
            self.ours = None;
            let holder = holder.unwrap_or("none");
            tracing::info!(lease = %place, holder, "lost the Lease");
        }
    }
}

/// A change in the state of failing requests.
#[derive(Clone, PartialEq, Eq, Debug)]
enum News {
    /// They succeed again.
    Well,
    /// They are denied.
    Denied(Arc<str>),
    /// They fail.
    Failing(Arc<str>),
}

impl Troubles {
    fn of(&mut self, asked: &Asked) -> &mut Trouble {
        match asked {
            Asked::State => &mut self.reads,
            Asked::Take(_) | Asked::Keep | Asked::LetGo => &mut self.writes,
            Asked::Change => &mut self.watches,
        }
    }

    /// Returns the change that this answer brings, if it was not logged yet.
    fn news(&mut self, asked: &Asked, answer: &LeaseAnswer) -> Option<News> {
        // A watch may break; the Lease is read then.
        let is_first = *asked == Asked::Change && {
            let failed = matches!(answer, LeaseAnswer::Failed(_));
            self.failed_watches = if failed { self.failed_watches.saturating_add(1) } else { 0 };
            self.failed_watches == 1
        };
        let trouble = self.of(asked);
        match answer {
            LeaseAnswer::Seen(_) | LeaseAnswer::Absent | LeaseAnswer::Conflict | LeaseAnswer::Unchanged => {
                (std::mem::take(trouble) != Trouble::Nothing).then_some(News::Well)
            }
            LeaseAnswer::Failed(RequestFailure::Denied(why)) if *trouble != Trouble::Denied => {
                *trouble = Trouble::Denied;
                Some(News::Denied(Arc::clone(why)))
            }
            LeaseAnswer::Failed(RequestFailure::Other(why)) if *trouble == Trouble::Nothing && !is_first => {
                *trouble = Trouble::Failing;
                Some(News::Failing(Arc::clone(why)))
            }
            LeaseAnswer::Failed(RequestFailure::Denied(why) | RequestFailure::Other(why)) => {
                tracing::debug!(?asked, %why, "a request about a Lease failed");
                None
            }
        }
    }
}

fn tell(place: &Place, asked: &Asked, news: &News) {
    let request = asked.kind();
    match news {
        News::Well => tracing::info!(lease = %place, request, "the Lease can be read and written again"),
        News::Denied(why) => {
            let remedy = "let the service account get, create, update and watch this Lease; nothing is written \
                          to Azure without it";
            tracing::warn!(lease = %place, request, %why, remedy, "the API server refuses a Lease");
        }
        News::Failing(why) => {
            let remedy = "no answer: check that the API server is up and reachable; HTTP 404: check that the namespace of \
                          this Lease exists; else see why; it is tried again";
            tracing::warn!(lease = %place, request, %why, remedy, "a Lease cannot be read or written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w8_what_is_denied_is_told_once_though_other_requests_succeed() {
        let mut troubles = Troubles::default();
        let why: Arc<str> = Arc::from("HTTP 403");
        let denied = LeaseAnswer::Failed(RequestFailure::Denied(Arc::clone(&why)));
        let failing = LeaseAnswer::Failed(RequestFailure::Other(Arc::clone(&why)));
        for asked in [Asked::Change, Asked::Keep] {
            assert_eq!(troubles.news(&asked, &denied), Some(News::Denied(Arc::clone(&why))));
            for _ in 0..3 {
                assert_eq!(troubles.news(&Asked::State, &LeaseAnswer::Absent), None);
                assert_eq!(troubles.news(&asked, &denied), None);
            }
        }
        assert_eq!(troubles.news(&Asked::Take(Arc::from("us")), &LeaseAnswer::Conflict), Some(News::Well));
        assert_eq!(troubles.news(&Asked::LetGo, &failing), Some(News::Failing(Arc::clone(&why))));
        assert_eq!(troubles.news(&Asked::Keep, &failing), None);
        assert_eq!(troubles.news(&Asked::Change, &LeaseAnswer::Unchanged), Some(News::Well));
        assert_eq!(troubles.news(&Asked::Change, &failing), None, "a watch may break off");
        assert_eq!(troubles.news(&Asked::State, &LeaseAnswer::Absent), None);
        assert_eq!(troubles.news(&Asked::Change, &failing), Some(News::Failing(Arc::clone(&why))));
        assert_eq!(troubles.news(&Asked::Change, &failing), None, "once");
        assert_eq!(troubles.news(&Asked::Change, &LeaseAnswer::Unchanged), Some(News::Well));
    }
}
