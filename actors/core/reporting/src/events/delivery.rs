//! The delivery of a series to the API server: posts, their answers, further tries, and repeated posts of the report of
//! a condition (E1).

use std::sync::Arc;
use std::time::Duration;

use super::correlator::{Key, Kin};
use super::{
    AGAIN_AFTER, DropReason, Emitter, Event, IN_FLIGHT, LONGEST_RETRY_AFTER, Out, Place, PostFailure,
    RETRY_AFTER, Stage, drop_event, overdue_at,
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
        let Some(letter) = self.open.get_mut(&key) else { return };
        let series = &mut letter.series;
        match answer {
            Ok(name) => {
                series.name = Some(name);
                out.push(Out::Metric(Metric::EventPosted));
                self.on_end(now, key, true, out);
            }
            Err(PostFailure::Withheld) => {
                out.push(Out::Metric(Metric::EventWithheld));
                self.on_end(now, key, true, out);
            }
            Err(PostFailure::Final(_)) => self.on_end(now, key, false, out),
            Err(PostFailure::Gone) => {
                (series.name, series.serial) = (None, None);
                self.retry(now, key, Some(Duration::ZERO), out);
            }
            Err(PostFailure::Exists(name)) => {
                series.name = Some(name);
                self.retry(now, key, Some(Duration::ZERO), out);
            }
            Err(PostFailure::Transient(asked)) => {
                let asked = asked.map(|asked| asked.min(LONGEST_RETRY_AFTER));
                self.delay(now, key, asked, out);
            }
        }
    }

    /// Ends a post that was accepted or is not retried; later occurrences are sent next. The report of a lasting
    /// condition is posted again until its newest message is accepted.
    fn on_end(&mut self, now: Now, key: Key, accepted: bool, out: &mut Vec<Out>) {
        let tells = self.may_tell(&key.kin.subject);
        let Some(letter) = self.open.get_mut(&key) else { return };
        let again = tells && matches!(letter.stage, Stage::Sent { again: true });
        letter.paid = again || !accepted;
        let is_newest = letter.series.count == letter.series.posted;
        if accepted && is_newest {
            self.outstanding.accepted(&key);
        } else if tells && !again && self.outstanding.holds(&key) {
            return self.park(now, key);
        }
        if !accepted {
            drop_event(&key.kin, Arc::clone(&letter.series.message), DropReason::NotAccepted, out);
        }
        if again {
            (letter.stage, letter.tries) = (Stage::Waiting, 0);
            self.waiting.push_back(key);
        } else {
            self.close(key);
        }
    }

    /// Parks the report of a condition, to post it again later.
    pub(super) fn park(&mut self, now: Now, key: Key) {
        let Some(letter) = self.open.get_mut(&key) else { return };
        (letter.stage, letter.tries) = (Stage::Waiting, 0);
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
            let Some(letter) = self.open.get_mut(&key) else { continue };
            letter.paid = letter.paid || (room && self.correlator.may_write(now, &key.kin));
            if room && letter.paid {
                self.waiting.push_back(key);
            } else {
                self.park(now, key);
            }
        }
    }

    /// Schedules another try after its delay, or after a longer one that the server asks for.
    fn delay(&mut self, now: Now, key: Key, asked: Option<Duration>, out: &mut Vec<Out>) {
        let tries = self.open.get(&key).map_or(0, |letter| letter.tries);
        let wait = RETRY_AFTER.get(tries).map(|wait| asked.unwrap_or_default().max(*wait));
        self.retry(now, key, wait, out);
    }

    /// Schedules another try after the delay, if there is a try left.
    fn retry(&mut self, now: Now, key: Key, wait: Option<Duration>, out: &mut Vec<Out>) {
        if !self.may_tell(&key.kin.subject) {
            self.close(key);
            return;
        }
        let Some(letter) = self.open.get_mut(&key) else { return };
        match wait.filter(|_| letter.tries < RETRY_AFTER.len()) {
            Some(wait) => {
                letter.tries += 1;
                letter.stage = Stage::Waiting;
                self.next += 1;
                self.delayed.insert((now.plus(wait), self.next), key);
            }
            None => self.on_end(now, key, false, out),
        }
    }

    /// Closes a series that waits for no write, and remembers it.
    pub(super) fn close(&mut self, key: Key) {
        if let Some(letter) = self.open.remove(&key) {
            self.correlator.remember(key, letter.series);
        }
    }

    /// Gives up a series that waits for a write.
    pub(super) fn drop_open(&mut self, key: Key, why: DropReason, out: &mut Vec<Out>) {
        if let Some(letter) = self.open.get(&key) {
            drop_event(&key.kin, Arc::clone(&letter.series.message), why, out);
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

    fn post(&mut self, now: Now, key: Key, out: &mut Vec<Out>) {
        let Some(letter) = self.open.get_mut(&key) else { return };
        self.next += 1;
        let call = CallId(self.next);
        letter.stage = Stage::Sent { again: false };
        let series = &mut letter.series;
        let place = match &series.name {
            Some(name) => Place::Existing(Arc::clone(name)),
            None => Place::New(*series.serial.get_or_insert(self.next)),
        };
        let Kin { subject, severity, reason, condition: _ } = key.kin.clone();
        let (message, count) = (Arc::clone(&series.message), series.count);
        let (first, last) = (series.first, series.last);
        let is_news = std::mem::replace(&mut series.posted, count) != count;
        let event = Event { subject, severity, reason, message, count, first, last, place, is_news };
        out.push(Out::Post { call, event: Arc::new(event) });
        self.in_flight.insert(call, (now, key));
    }
}
