//! The delivery of a series to the API server: posts, their answers, further tries, and repeated posts of the report of
//! a condition (E1).

use std::sync::Arc;
use std::time::Duration;

use super::correlator::{EventClass, SeriesKey};
use super::{
    AGAIN_AFTER, DropReason, Emitter, Event, EventTarget, IN_FLIGHT, MAX_RETRY_AFTER, Out, PostFailure,
    PostStage, RETRY_AFTER, drop_event, overdue_at,
};
use model::ids::CallId;
use model::machine::Now;
use model::sample::Metric;

impl Emitter {
    pub(super) fn on_posted(
        &mut self,
        now: Now,
        call: CallId,
        answer: Result<Arc<str>, PostFailure>,
        out: &mut Vec<Out>,
    ) {
        let Some((_, key)) = self.in_flight.remove(&call) else {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        };
        let Some(post) = self.open.get_mut(&key) else { return };
        let series = &mut post.series;
        match answer {
            Ok(name) => {
                series.name = Some(name);
                out.push(Out::Metric(Metric::EventPosted));
                self.on_post_ended(now, key, true, out);
            }
            Err(PostFailure::Withheld) => {
                out.push(Out::Metric(Metric::EventWithheld));
                self.on_post_ended(now, key, true, out);
            }
            Err(PostFailure::Final(_)) => self.on_post_ended(now, key, false, out),
            Err(PostFailure::Gone) => {
                (series.name, series.serial) = (None, None);
                self.retry(now, key, Some(Duration::ZERO), out);
            }
            Err(PostFailure::Exists(name)) => {
                series.name = Some(name);
                self.retry(now, key, Some(Duration::ZERO), out);
            }
            Err(PostFailure::Transient(retry_after)) => {
                let retry_after = retry_after.map(|retry_after| retry_after.min(MAX_RETRY_AFTER));
                self.delay(now, key, retry_after, out);
            }
        }
    }

    /// Ends a post that was accepted or is not retried; later occurrences are sent next. The report of a lasting
    /// condition is posted again until its newest message is accepted.
    fn on_post_ended(&mut self, now: Now, key: Arc<SeriesKey>, accepted: bool, out: &mut Vec<Out>) {
        let may_report = self.may_report(&key.class.subject);
        let Some(post) = self.open.get_mut(&key) else { return };
        let occurred = matches!(post.stage, PostStage::Sent { again: true });
        let again = may_report && occurred;
        post.paid = again || !accepted;
        let is_newest = post.series.count == post.series.posted;
        if accepted && is_newest {
            self.outstanding.accepted(&key);
        } else if may_report && !again && self.outstanding.holds(&key) {
            return self.park(now, key);
        }
        let cause = match (accepted, may_report) {
            (false, _) => Some(DropReason::NotAccepted),
            // The newest message of a condition, or one that has a budget, was to be posted next.
            (true, false) => {
                (!is_newest && (occurred || key.class.condition.is_some())).then_some(DropReason::NotAllowed)
            }
            (true, true) => {
                (!is_newest && !again && key.class.condition.is_some()).then_some(DropReason::Outdated)
            }
        };
        if let Some(cause) = cause {
            drop_event(&key.class, Arc::clone(&post.series.message), cause, out);
        }
        if again {
            (post.stage, post.tries) = (PostStage::Waiting, 0);
            self.waiting.push_back(key);
        } else {
            self.close(key);
        }
    }

    /// Parks the report of a condition, to post it again later.
    pub(super) fn park(&mut self, now: Now, key: Arc<SeriesKey>) {
        let Some(post) = self.open.get_mut(&key) else { return };
        (post.stage, post.tries) = (PostStage::Waiting, 0);
        self.next += 1;
        self.parked.insert((now.plus(AGAIN_AFTER), self.next), key);
    }

    /// Posts the parked reports of lasting conditions again, as far as there is room and budget.
    fn wake_parked(&mut self, now: Now, out: &mut Vec<Out>) {
        while let Some(first) = self.parked.first_entry().filter(|first| first.key().0 <= now) {
            let key = first.remove();
            if !self.outstanding.holds(&key) {
                self.drop_open(key, DropReason::Outdated, out);
                continue;
            }
            let room = self.has_room();
            let Some(post) = self.open.get_mut(&key) else { continue };
            post.paid = post.paid || (room && self.correlator.may_write(now, &key.class));
            if room && post.paid {
                self.waiting.push_back(key);
            } else {
                self.park(now, key);
            }
        }
    }

    /// Schedules another try after its delay, or after a longer one that the server asks for.
    fn delay(&mut self, now: Now, key: Arc<SeriesKey>, retry_after: Option<Duration>, out: &mut Vec<Out>) {
        let tries = self.open.get(&key).map_or(0, |post| post.tries);
        let wait = RETRY_AFTER.get(tries).map(|wait| retry_after.unwrap_or_default().max(*wait));
        self.retry(now, key, wait, out);
    }

    /// Schedules another try after the delay, if there is a try left.
    fn retry(&mut self, now: Now, key: Arc<SeriesKey>, wait: Option<Duration>, out: &mut Vec<Out>) {
        if !self.may_report(&key.class.subject) {
            return self.drop_open(key, DropReason::NotAllowed, out);
        }
        let Some(post) = self.open.get_mut(&key) else { return };
        match wait.filter(|_| post.tries < RETRY_AFTER.len()) {
            Some(wait) => {
                post.tries += 1;
                post.stage = PostStage::Waiting;
                self.next += 1;
                self.delayed.insert((now.plus(wait), self.next), key);
            }
            None => self.on_post_ended(now, key, false, out),
        }
    }

    /// Closes a series that waits for no write, and remembers it.
    pub(super) fn close(&mut self, key: Arc<SeriesKey>) {
        if let Some(post) = self.open.remove(&key) {
            self.correlator.remember(key, post.series);
        }
    }

    /// Gives up a series that waits for a write.
    pub(super) fn drop_open(&mut self, key: Arc<SeriesKey>, cause: DropReason, out: &mut Vec<Out>) {
        if let Some(post) = self.open.get(&key) {
            drop_event(&key.class, Arc::clone(&post.series.message), cause, out);
        }
        self.close(key);
    }

    /// Gives up overdue answers, wakes delayed series, and posts what may be posted.
    pub(super) fn pump(&mut self, now: Now, out: &mut Vec<Out>) {
        while let Some(first) = self.in_flight.first_entry().filter(|first| overdue_at(first.get().0) <= now)
        {
            let (_, key) = first.remove();
            self.delay(now, key, None, out);
        }
        while let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
            self.waiting.push_back(first.remove());
        }
        self.wake_parked(now, out);
        while self.in_flight.len() < IN_FLIGHT && !self.waiting.is_empty() && self.bucket.take(now) {
            let Some(key) = self.waiting.pop_front() else { break };
            self.post(now, key, out);
        }
        debug_assert!(self.check().is_ok(), "{:?}", self.check());
    }

    fn post(&mut self, now: Now, key: Arc<SeriesKey>, out: &mut Vec<Out>) {
        let Some(post) = self.open.get_mut(&key) else { return };
        self.next += 1;
        let call = CallId(self.next);
        post.stage = PostStage::Sent { again: false };
        let series = &mut post.series;
        let object = match &series.name {
            Some(name) => EventTarget::Existing(Arc::clone(name)),
            None => EventTarget::New(*series.serial.get_or_insert(self.next)),
        };
        let EventClass { subject, severity, reason, condition: _ } = key.class.clone();
        let (message, count) = (Arc::clone(&series.message), series.count);
        let (first, last) = (series.first, series.last);
        let is_new = std::mem::replace(&mut series.posted, count) != count;
        let event = Event { subject, severity, reason, message, count, first, last, object, is_new };
        out.push(Out::Post { call, event: Arc::new(event) });
        self.in_flight.insert(call, (now, key));
    }
}
