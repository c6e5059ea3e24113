//! The port to Kubernetes over the modelled API server: one request per kind, lines in order, and the ways in which
//! streams break.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::config_map::ConfigMapRequester;
use model::ids::CallId;
use model::lease::LeaseName;
use model::machine::Now;
use model::object::{Kind, NotBefore, Object, RequestFailure, TaintAnswer, TaintEdit, TaintPatch};
use model::signals::{DRAINING, SPOT_EVICTION};
use pool_core::intake::Intake;
use pool_core::route::Delivery;
use reporting::events::{self, PostFailure};
use sources::watch::{In, Line, WatchFailure, WatchRequest};

use serde_json::{Value, json};
use simulator_models::kube::{KubeModel, Reply, Request, WatchId};

use crate::clock;
use crate::decode;
use crate::leases::{Fate, LeaseStep, REQUEST_TIMEOUT_US, fate};
use crate::notes::NotesStep;
use crate::plant::Plant;
use crate::random::Random;

/// Objects per page of a plain list.
const PAGE: u32 = 7;

/// Effect on the world.
pub enum Effect {
    /// An input of a machine, in order.
    Deliver(Delivery),
    /// Lines of a stream were read.
    Read(Kind, CallId, Vec<Line>),
    /// An input of a machine, at this time.
    DeliverAt(u64, Delivery),
    /// A step of the port itself, at this time.
    Later(u64, Kind, CallId, Step),
    /// A step of the Lease port, at this time.
    Lease(u64, LeaseName, CallId, LeaseStep),
    /// A Lease was written.
    LeaseWritten(LeaseName),
    /// A step of the ConfigMap port, at this time.
    Notes(u64, ConfigMapRequester, CallId, NotesStep),
    /// The controller's ConfigMap was written.
    NotesWritten,
    /// A patch of a node's taints reaches the server at this time, even if the process has ended.
    Patch(u64, CallId, TaintPatch, Fate),
}

/// Next step of a request.
#[derive(Debug)]
pub enum Step {
    /// The request reaches the server.
    Send,
    /// Its answer reaches the port.
    Answer(Reply),
    /// The stream may have new lines.
    Poll,
}

struct Stream {
    call: CallId,
    request: WatchRequest,
    intake: Intake,
    watch: Option<WatchId>,
    /// True if the port knows that the watch is established; it does not read earlier.
    stands: bool,
    poll_at: Option<u64>,
    /// Time until which the connection delivers nothing, although it is established.
    stalled_until: u64,
}

/// The port of one process.
pub struct KubernetesPort {
    streams: BTreeMap<Kind, Stream>,
    random: Random,
    plant: Option<Plant>,
    /// First list of each kind, for a planted bug.
    first_list: BTreeMap<Kind, Vec<Line>>,
    lists: BTreeMap<Kind, u64>,
    /// Probability, in thousandths, that an event is refused, or that a patch has a fault.
    pub posts_fail: u64,
    /// Time until which the API server is unreachable.
    pub unreachable_until: u64,
    /// Time after which a middlebox before the API server ends watches, in microseconds; 0: they are answered 200 and
    /// closed empty.
    pub watches_last_us: Option<u64>,
    /// Objects that lists lack, if any.
    pub incomplete_lists: Option<IncompleteLists>,
    /// True if any list was incomplete: without another list, the missing objects may stay unknown.
    pub had_incomplete_lists: bool,
}

/// Lists of a kind are incomplete.
#[derive(Clone, Copy)]
pub struct IncompleteLists {
    /// Kind of the objects.
    pub kind: Kind,
    /// End of the fault.
    pub until: u64,
    /// Objects in a thousand that lists contain.
    pub listed_per_mille: u64,
}

impl KubernetesPort {
    /// Creates a port without requests.
    pub fn new(random: Random, plant: Option<Plant>) -> KubernetesPort {
        let (streams, first_list, lists) = Default::default();
        KubernetesPort {
            streams,
            random,
            plant,
            first_list,
            lists,
            posts_fail: 0,
            unreachable_until: 0,
            watches_last_us: None,
            incomplete_lists: None,
            had_incomplete_lists: false,
        }
    }

    /// Opens a request for a watcher, and drops the previous request of that kind.
    pub fn open(
        &mut self,
        model: &mut KubeModel,
        now: u64,
        kind: Kind,
        call: CallId,
        request: WatchRequest,
    ) -> Vec<Effect> {
        let intake = Intake::new(kind, call, &request);
        let stream =
            Stream { call, request, intake, watch: None, stands: false, poll_at: None, stalled_until: 0 };
        if let Some(Stream { watch: Some(watch), .. }) = self.streams.insert(kind, stream) {
            model.close_watch(watch);
        }
        vec![Effect::Later(now + self.latency(), kind, call, Step::Send)]
    }

    /// Posts an event; the API server accepts it or not.
    pub fn post(&mut self, now: u64, call: CallId) -> (Vec<Effect>, bool) {
        let failure = if now < self.unreachable_until {
            Some(PostFailure::Transient(None))
        } else if self.random.per_mille(self.posts_fail) {
            Some(if self.random.per_mille(800) {
                PostFailure::Transient(None)
            } else {
                PostFailure::Final(Arc::from("the namespace was deleted"))
            })
        } else {
            None
        };
        let accepted = failure.is_none();
        (vec![Effect::DeliverAt(now + self.latency(), posted(call, failure))], accepted)
    }

    /// Sends a patch of a node's taints.
    pub fn taint(&mut self, now: u64, call: CallId, patch: TaintPatch) -> Vec<Effect> {
        let (transit_time, fate) = fate(&mut self.random, self.posts_fail);
        let mut effects = vec![Effect::Patch(now + transit_time, call, patch, fate)];
        if !fate.is_answered() {
            effects.push(Effect::DeliverAt(now + REQUEST_TIMEOUT_US, tainted(call, lost())));
        }
        effects
    }

    /// Applies a patch of a node's taints that reaches the server.
    pub fn patch(
        &self,
        model: &mut KubeModel,
        now: u64,
        call: CallId,
        patch: &TaintPatch,
        fate: Fate,
    ) -> Vec<Effect> {
        let is_cut = now < self.unreachable_until;
        let replaces = self.plant == Some(Plant::TaintsReplaced);
        let request = if replaces { replacement_of(patch) } else { patch_of(patch) };
        let (after_us, answer) =
            if is_cut { (1_000, lost()) } else { answer_of(model.handle(&request, now)) };
        match fate {
            Fate::Answered(after) => {
                vec![Effect::DeliverAt(now + after_us + after, tainted(call, answer))]
            }
            Fate::Twice(gap) => [1_000, 1_000 + gap]
                .map(|after| Effect::DeliverAt(now + after_us + after, tainted(call, answer.clone())))
                .into(),
            Fate::AnswerLost | Fate::Straggles => Vec::new(),
        }
    }

    /// Closes every connection, because the process has ended.
    pub fn close(&mut self, model: &mut KubeModel) {
        for (_, stream) in std::mem::take(&mut self.streams) {
            if let Some(watch) = stream.watch {
                model.close_watch(watch);
            }
        }
    }

    /// Blocks all connections until this time; some break immediately, others only stall.
    pub fn cut(&mut self, model: &mut KubeModel, until: u64) -> Vec<Effect> {
        self.unreachable_until = until;
        let mut effects = Vec::new();
        for kind in self.followed() {
            if self.random.per_mille(500) {
                effects.extend(self.break_stream(model, kind));
            } else {
                self.stall(kind, until);
            }
        }
        effects
    }

    /// Returns the kinds that its watchers follow: preemptions only if requested.
    fn followed(&self) -> Vec<Kind> {
        let is_followed = |kind: &Kind| Kind::OF_LEVELS.contains(kind) || self.streams.contains_key(kind);
        Kind::ALL.into_iter().filter(is_followed).collect()
    }

    /// Returns whether a bug is planted.
    pub fn is_planted(&self) -> bool {
        self.plant.is_some()
    }

    fn latency(&mut self) -> u64 {
        self.random.between(500, 5_000)
    }

    /// Returns the delay from a change to its event on a stream.
    fn delay(&mut self) -> u64 {
        if self.random.per_mille(30) {
            self.random.between(5_000, 200_000)
        } else {
            self.random.between(100, 5_000)
        }
    }

    /// Reads lines of a stream; returns the deliveries.
    pub fn read(&mut self, now: Now, kind: Kind, call: CallId, lines: Vec<Line>) -> Vec<Delivery> {
        let mut read = Vec::new();
        if let Some(stream) = self.streams.get_mut(&kind).filter(|stream| stream.call == call) {
            for line in lines {
                stream.intake.read(now, line, &mut |delivery| read.push(delivery));
            }
        }
        read
    }

    /// Continues with a request.
    pub fn step(
        &mut self,
        model: &mut KubeModel,
        now: u64,
        kind: Kind,
        call: CallId,
        step: Step,
    ) -> Vec<Effect> {
        let Some(stream) = self.streams.get_mut(&kind).filter(|stream| stream.call == call) else {
            return Vec::new();
        };
        match step {
            Step::Send if now < self.unreachable_until => {
                let reason = WatchFailure::Other(Arc::from("no route to host"));
                self.ended(kind, call, Some(reason))
            }
            Step::Send => {
                let spread = u64::from(self.random.below(1_000) as u16);
                model.cut_watches(self.watches_last_us);
                let reply = model.handle(&Request::new("GET", &uri(kind, &stream.request, spread)), now);
                model.cut_watches(None);
                let after = if let Reply::Answer { after_us, .. } = &reply { *after_us } else { 0 };
                if let Reply::Watch(watch, _) = &reply {
                    stream.watch = Some(*watch);
                }
                vec![Effect::Later(now + after + self.latency(), kind, call, Step::Answer(reply))]
            }
            Step::Answer(_) if now < self.unreachable_until => {
                let broken = WatchFailure::Other(Arc::from("connection reset"));
                if let Some(watch) = stream.watch.take() {
                    model.close_watch(watch);
                }
                self.ended(kind, call, Some(broken))
            }
            Step::Answer(reply) => self.answered(model, now, kind, call, reply),
            Step::Poll => {
                if stream.poll_at.is_none_or(|at| at > now) {
                    return Vec::new();
                }
                stream.poll_at = None;
                self.poll(model, now, kind, call)
            }
        }
    }

    fn answered(
        &mut self,
        model: &mut KubeModel,
        now: u64,
        kind: Kind,
        call: CallId,
        reply: Reply,
    ) -> Vec<Effect> {
        let streaming =
            self.streams.get(&kind).is_some_and(|stream| stream.request == WatchRequest::StreamingList);
        match reply {
            Reply::Refused => {
                self.ended(kind, call, Some(WatchFailure::Other(Arc::from("connection refused"))))
            }
            Reply::Answer { status: 200, body, .. } => {
                let (mut items, resource_version, next) = decode::page(kind, &body, clock::wall(now));
                self.plant_list(kind, &mut items);
                self.lose_objects(now, kind, &mut items);
                let page = In::Page { call, items, resource_version, next };
                let mut effects = vec![Effect::Deliver(Delivery::Watcher(kind, page))];
                effects.extend(self.ended(kind, call, None));
                effects
            }
            Reply::Answer { status, headers, body, .. } => {
                let message: Arc<str> = Arc::from(String::from_utf8_lossy(&body).into_owned());
                let after = headers.iter().find(|(name, _)| name == "retry-after");
                let after = after.and_then(|(_, seconds)| seconds.parse().ok()).map(Duration::from_secs);
                let failure = match status {
                    410 => WatchFailure::Expired,
                    429 => WatchFailure::TooManyRequests(after),
                    401 | 403 => WatchFailure::Denied(message),
                    400 | 422 if streaming => WatchFailure::StreamingRefused(message),
                    _ => WatchFailure::Other(message),
                };
                self.ended(kind, call, Some(failure))
            }
            Reply::Watch(watch, first) => {
                if let Some(stream) = self.streams.get_mut(&kind) {
                    stream.stands = true;
                }
                let mut effects = vec![Effect::Deliver(Delivery::Watcher(kind, In::Opened(call)))];
                let mut first = self.decode(now, kind, &first);
                if self.plant == Some(Plant::EmptyWatchBelieved)
                    && model.watch_ended(watch)
                    && let Some(Stream { request: WatchRequest::Watch { from }, .. }) =
                        self.streams.get(&kind)
                {
                    first.push(Line::Bookmark { resource_version: from.clone(), list_end: false });
                }
                if streaming {
                    self.plant_list(kind, &mut first);
                    self.lose_objects(now, kind, &mut first);
                }
                effects.extend(read_lines(kind, call, first));
                effects.extend(self.poll(model, now, kind, call));
                effects
            }
        }
    }

    fn poll(&mut self, model: &mut KubeModel, now: u64, kind: Kind, call: CallId) -> Vec<Effect> {
        let Some(watch) = self.streams.get(&kind).and_then(|stream| stream.watch) else { return Vec::new() };
        let lines = model.poll_watch(watch, now);
        let mut lines = self.decode(now, kind, &lines);
        if self.plant == Some(Plant::ExpiredNoticeCounts) {
            lines.iter_mut().for_each(reset_eviction_time);
        }
        let mut effects = read_lines(kind, call, lines);
        if model.watch_ended(watch) {
            model.close_watch(watch);
            let broken = Some(WatchFailure::Other(Arc::from("connection reset")));
            let failure = if self.random.per_mille(500) { broken } else { None };
            effects.extend(self.ended(kind, call, failure));
        } else {
            effects.extend(self.plan_poll(model, now, kind));
        }
        effects
    }

    fn decode(&self, now: u64, kind: Kind, lines: &[Arc<[u8]>]) -> Vec<Line> {
        let wall = clock::wall(now);
        let mut decoded: Vec<Line> = lines.iter().map(|line| decode::line(kind, line, wall)).collect();
        if self.plant == Some(Plant::NoticeOfFailedQuery) {
            decoded.iter_mut().for_each(believe);
        }
        if self.plant == Some(Plant::DeletionsOverheard) {
            decoded.retain(|line| !matches!(line, Line::Deleted { .. }));
        }
        decoded
    }

    fn ended(&mut self, kind: Kind, call: CallId, failure: Option<WatchFailure>) -> Vec<Effect> {
        if let Some(stream) = self.streams.get_mut(&kind) {
            stream.watch = None;
        }
        let jitter = u16::try_from(self.random.below(1_001)).expect("at most 1000");
        vec![Effect::Deliver(Delivery::Watcher(kind, In::Ended { call, failure, jitter }))]
    }

    /// Schedules the next poll of each stream after a possible change on the server.
    pub fn wake(&mut self, model: &KubeModel, now: u64) -> Vec<Effect> {
        self.followed().into_iter().filter_map(|kind| self.plan_poll(model, now, kind)).collect()
    }

    fn plan_poll(&mut self, model: &KubeModel, now: u64, kind: Kind) -> Option<Effect> {
        let delay = self.delay();
        let stream = self.streams.get_mut(&kind)?;
        let watch = stream.watch.filter(|_| stream.stands)?;
        let due = if model.watch_ended(watch) { now } else { model.watch_deadline(watch, now)? };
        let at = due.max(now).max(stream.stalled_until) + delay;
        if stream.poll_at.is_some_and(|planned| planned <= at) {
            return None;
        }
        stream.poll_at = Some(at);
        Some(Effect::Later(at, kind, stream.call, Step::Poll))
    }

    /// Breaks the connection of a stream; unread lines are lost.
    pub fn break_stream(&mut self, model: &mut KubeModel, kind: Kind) -> Vec<Effect> {
        let Some(stream) = self.streams.get_mut(&kind) else { return Vec::new() };
        if !stream.stands {
            return Vec::new();
        }
        let (Some(watch), call) = (stream.watch.take(), stream.call) else { return Vec::new() };
        model.close_watch(watch);
        self.ended(kind, call, Some(WatchFailure::Other(Arc::from("connection reset"))))
    }

    /// Cuts every watch after this time from now on, and breaks open watches.
    pub fn cut_watches(&mut self, model: &mut KubeModel, after_us: u64) -> Vec<Effect> {
        self.watches_last_us = Some(after_us);
        self.followed().into_iter().flat_map(|kind| self.break_stream(model, kind)).collect()
    }

    /// Stalls a stream until this time.
    pub fn stall(&mut self, kind: Kind, until: u64) {
        if let Some(stream) = self.streams.get_mut(&kind) {
            stream.stalled_until = until;
            stream.poll_at = None;
        }
    }

    /// Ends all stalls.
    pub fn end_stalls(&mut self) {
        for stream in self.streams.values_mut().filter(|stream| stream.stalled_until > 0) {
            (stream.stalled_until, stream.poll_at) = (0, None);
        }
    }

    /// Removes objects from a list during the fault.
    fn lose_objects(&mut self, now: u64, kind: Kind, items: &mut Vec<Line>) {
        let Some(IncompleteLists { listed_per_mille, .. }) =
            self.incomplete_lists.filter(|one| one.kind == kind && now < one.until)
        else {
            return;
        };
        let before = items.len();
        items.retain(|line| !matches!(line, Line::Object(_)) || self.random.per_mille(listed_per_mille));
        self.had_incomplete_lists |= items.len() < before;
    }

    /// Applies a planted bug to a list.
    fn plant_list(&mut self, kind: Kind, items: &mut Vec<Line>) {
        let lists = self.lists.entry(kind).or_default();
        *lists += 1;
        let is_object = |line: &Line| matches!(line, Line::Object(_));
        match self.plant {
            Some(Plant::StaleLists) if *lists == 1 => {
                self.first_list.insert(kind, items.iter().filter(|line| is_object(line)).cloned().collect());
            }
            Some(Plant::StaleLists) => {
                items.retain(|line| !is_object(line));
                items.splice(0..0, self.first_list[&kind].iter().cloned());
            }
            Some(Plant::EmptyLists) if *lists > 1 && kind == Kind::EndpointSlices => {
                items.retain(|line| !is_object(line));
            }
            Some(_) | None => {}
        }
    }
}

/// Applies a planted bug: every event counts as a notice.
fn believe(line: &mut Line) {
    if let Line::Object(Object::Preemption(event)) = line {
        Arc::make_mut(event).message = "Preempt Started".into();
    }
}

/// Applies a planted bug: a notice's eviction is never in the past.
fn reset_eviction_time(line: &mut Line) {
    let times = match line {
        Line::Object(Object::Preemption(event)) => {
            let event = Arc::make_mut(event);
            Some((&mut event.age, &mut event.not_before))
        }
        Line::Object(Object::Node(node)) => {
            let preempt = Arc::make_mut(node).preempt.as_mut();
            preempt.map(|preempt| (&mut preempt.age, &mut preempt.not_before))
        }
        Line::Object(Object::Service(_) | Object::Slice(_))
        | Line::Deleted { .. }
        | Line::Bookmark { .. }
        | Line::Error(_)
        | Line::Undecodable { .. } => None,
    };
    if let Some((age, not_before)) = times {
        match not_before {
            Some(NotBefore::In(_)) => {}
            Some(NotBefore::Ago(_)) => *not_before = Some(NotBefore::In(Duration::ZERO)),
            None => *age = age.map(|_| Duration::ZERO),
        }
    }
}

fn read_lines(kind: Kind, call: CallId, lines: Vec<Line>) -> Vec<Effect> {
    if lines.is_empty() { Vec::new() } else { vec![Effect::Read(kind, call, lines)] }
}

fn uri(kind: Kind, request: &WatchRequest, spread: u64) -> String {
    let path = match kind {
        Kind::Services => "/api/v1/services",
        Kind::EndpointSlices => "/apis/discovery.k8s.io/v1/endpointslices",
        Kind::Nodes => "/api/v1/nodes",
        Kind::Preemptions => "/api/v1/events",
    };
    let selector = match kind {
        Kind::Services | Kind::EndpointSlices | Kind::Nodes => "",
        Kind::Preemptions => "&fieldSelector=involvedObject.kind%3DNode%2Creason%3DPreemptScheduled",
    };
    let seconds = 240 + spread * 60 / 1_000;
    let watch = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}{selector}");
    match request {
        WatchRequest::StreamingList => {
            format!("{path}?{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
        }
        WatchRequest::Watch { from } => format!("{path}?{watch}&resourceVersion={}", from.0),
        WatchRequest::List { page: None } => format!("{path}?limit={PAGE}{selector}"),
        WatchRequest::List { page: Some(token) } => {
            format!("{path}?limit={PAGE}{selector}&continue={}", escaped(token))
        }
    }
}

fn escaped(token: &str) -> String {
    token.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Returns the request of a patch of a node's taints (RFC 6902).
fn patch_of(patch: &TaintPatch) -> Request {
    let test = |path: &str, value: &str| json!({"op": "test", "path": path, "value": value});
    let taint = json!({"key": DRAINING, "value": SPOT_EVICTION, "effect": "NoSchedule"});
    let uid = test("/metadata/uid", patch.uid.as_str());
    let none = json!({"op": "test", "path": "/spec/taints", "value": null});
    let operations: Value = match patch.edit {
        TaintEdit::AddTo => json!([uid, {"op": "add", "path": "/spec/taints/-", "value": taint}]),
        TaintEdit::AddFirst => {
            json!([uid, none, {"op": "add", "path": "/spec/taints", "value": [taint]}])
        }
        TaintEdit::Remove { at } => {
            let path = format!("/spec/taints/{at}");
            let [key, value, effect] = ["key", "value", "effect"]
                .map(|field| test(&format!("{path}/{field}"), decode::text(&taint[field])));
            json!([uid, key, value, effect, {"op": "remove", "path": path}])
        }
    };
    let path = format!("/api/v1/nodes/{}", patch.node);
    Request::new("PATCH", &path).with_body("application/json-patch+json", &operations)
}

/// Returns a planted bug: replaces all taints of a node.
fn replacement_of(patch: &TaintPatch) -> Request {
    let ours = json!({"key": DRAINING, "value": SPOT_EVICTION, "effect": "NoSchedule"});
    let taints = match patch.edit {
        TaintEdit::AddTo | TaintEdit::AddFirst => vec![ours],
        TaintEdit::Remove { .. } => Vec::new(),
    };
    let path = format!("/api/v1/nodes/{}", patch.node);
    Request::new("PATCH", &path)
        .with_body("application/merge-patch+json", &json!({"spec": {"taints": taints}}))
}

/// Returns the server's latency, and the result of a patch.
fn answer_of(reply: Reply) -> (u64, TaintAnswer) {
    match reply {
        Reply::Answer { status, after_us, .. } => {
            let message = || Arc::from(format!("HTTP {status}"));
            let answer = match status {
                200 => TaintAnswer::Done,
                409 | 422 => TaintAnswer::Overtaken,
                404 => TaintAnswer::Gone,
                401 | 403 => TaintAnswer::Failed(RequestFailure::Denied(message())),
                _ => TaintAnswer::Failed(RequestFailure::Other(message())),
            };
            (after_us, answer)
        }
        Reply::Refused | Reply::Watch(..) => (0, lost()),
    }
}

fn lost() -> TaintAnswer {
    TaintAnswer::Failed(RequestFailure::Other(Arc::from("no answer")))
}

fn tainted(call: CallId, answer: TaintAnswer) -> Delivery {
    Delivery::AdminState(nodes::In::Tainted(call, answer))
}

/// Returns the delivery of the result of a post.
fn posted(call: CallId, failure: Option<PostFailure>) -> Delivery {
    let answer = failure.map_or_else(|| Ok(Arc::from(format!("event-{}", call.0))), Err);
    Delivery::Events(events::In::Posted { call, answer })
}
