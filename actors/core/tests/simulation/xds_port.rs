//! The port to control planes: models the driver of streams on the world's clock. It connects or fails, sends
//! requests and reports which have been sent, passes on one response per read permission, and reports the end of a
//! stream: before the server has accepted it immediately, and then only with permission to read.

use std::collections::{BTreeMap, VecDeque};

use model::xds::facts::{Code, ResourceKind};
use model::xds::stream::{DriverCall, StreamEnd, StreamEvent, StreamId, XdsRequest};

use crate::planes::{Answer, Sent, StreamBehaviour, ended};
use crate::plant::Plant;
use crate::random::Random;

/// Connect timeout.
const CONNECTS_TIMEOUT_US: u64 = 20_000_000;

/// One step of a stream.
#[derive(Clone, Debug)]
pub enum XdsStep {
    /// The connection is established, or has failed.
    Connected,
    /// The connect timeout has passed.
    TimedOut,
    /// The transport has pulled a later request.
    Pulled(ResourceKind),
    /// A message may have arrived.
    Poll,
}

/// Effect on the world.
#[derive(Debug)]
pub enum Effect {
    /// An input of the machine.
    Deliver(StreamEvent),
    /// The machine receives a response.
    Hand(StreamId, Box<Answer>),
    /// A step at this time.
    Later(u64, StreamId, XdsStep),
    /// This server accepts the stream.
    Opened(usize, StreamId),
    /// A request reaches the server at this time.
    Ask(u64, StreamId, XdsRequest),
    /// The stream is closed.
    Closed(StreamId),
}

/// The port of one process.
pub struct XdsPort {
    random: Random,
    plant: Option<Plant>,
    streams: BTreeMap<StreamId, Stream>,
    /// Time until which no control plane is reachable.
    pub unreachable_until: u64,
}

struct Stream {
    server: usize,
    /// Requests that wait for the connection; `None` once it is established.
    waiting: Option<Vec<XdsRequest>>,
    /// Number of these that opened the stream.
    first: usize,
    /// True if the server has accepted it.
    is_taken: bool,
    leaves: u32,
    inbox: VecDeque<(u64, Sent)>,
    /// Arrival of the last message in each direction: messages stay in order.
    request_arrives_at: u64,
    response_arrives_at: u64,
}

impl XdsPort {
    /// Creates a port without streams.
    pub fn new(random: Random, plant: Option<Plant>) -> XdsPort {
        XdsPort { random, plant, streams: BTreeMap::new(), unreachable_until: 0 }
    }

    fn transit_time(&mut self) -> u64 {
        if self.random.per_mille(30) {
            self.random.between(100_000, 3_000_000)
        } else {
            self.random.between(200, 8_000)
        }
    }

    /// Handles a call of the machine.
    pub fn call(&mut self, now: u64, call: DriverCall) -> Vec<Effect> {
        match call {
            DriverCall::Open { stream, server, first } => {
                let opened = Stream {
                    server: server.0,
                    first: first.len(),
                    waiting: Some(first),
                    is_taken: false,
                    leaves: 0,
                    inbox: VecDeque::new(),
                    request_arrives_at: now,
                    response_arrives_at: now,
                };
                self.streams.insert(stream, opened);
                vec![Effect::Later(now + self.transit_time(), stream, XdsStep::Connected)]
            }
            DriverCall::Send(stream, request) => {
                let Some(open) = self.streams.get_mut(&stream) else { return Vec::new() };
                match &mut open.waiting {
                    Some(waiting) => {
                        waiting.push(request);
                        Vec::new()
                    }
                    None => self.send(now, stream, request, true),
                }
            }
            DriverCall::Read(stream) => {
                if let Some(open) = self.streams.get_mut(&stream) {
                    open.leaves += 1;
                }
                self.poll(now, stream)
            }
            DriverCall::Close(stream) => {
                let known = self.streams.remove(&stream);
                known.map(|_| Effect::Closed(stream)).into_iter().collect()
            }
        }
    }

    /// Runs one step of a stream with a server of this behaviour, which may accept streams before its first response.
    pub fn step(
        &mut self,
        now: u64,
        stream: StreamId,
        step: &XdsStep,
        reach: (StreamBehaviour, bool),
    ) -> Vec<Effect> {
        match step {
            XdsStep::Connected => self.connected(now, stream, reach),
            XdsStep::TimedOut => self.fails(stream, "the connection was not established in time"),
            XdsStep::Pulled(kind) if self.streams.contains_key(&stream) => {
                vec![Effect::Deliver(StreamEvent::Sent(stream, *kind))]
            }
            XdsStep::Pulled(_) => Vec::new(),
            XdsStep::Poll => self.poll(now, stream),
        }
    }

    /// Returns the server of a stream.
    pub fn server_of(&self, stream: StreamId) -> Option<usize> {
        self.streams.get(&stream).map(|open| open.server)
    }

    fn connected(
        &mut self,
        now: u64,
        stream: StreamId,
        (behaviour, accepts_streams): (StreamBehaviour, bool),
    ) -> Vec<Effect> {
        let is_cut = now < self.unreachable_until;
        let Some(open) = self.streams.get_mut(&stream) else { return Vec::new() };
        match behaviour {
            StreamBehaviour::Hangs if self.plant == Some(Plant::SilentIsConnected) => {
                open.waiting = None;
                return vec![Effect::Deliver(StreamEvent::Dispatched(stream))];
            }
            StreamBehaviour::Hangs => {
                return vec![Effect::Later(now + CONNECTS_TIMEOUT_US, stream, XdsStep::TimedOut)];
            }
            StreamBehaviour::Refuses => return self.fails(stream, "connection refused"),
            StreamBehaviour::Answers | StreamBehaviour::Silent | StreamBehaviour::EndsStreams if is_cut => {
                return self.fails(stream, "no route");
            }
            StreamBehaviour::Answers | StreamBehaviour::Silent | StreamBehaviour::EndsStreams => {}
        }
        open.is_taken = accepts_streams;
        let (server, first) = (open.server, open.first);
        let requests = open.waiting.take().unwrap_or_default();
        let mut effects =
            vec![Effect::Opened(server, stream), Effect::Deliver(StreamEvent::Dispatched(stream))];
        for (index, request) in requests.into_iter().enumerate() {
            effects.extend(self.send(now, stream, request, index >= first));
        }
        effects
    }

    fn fails(&mut self, stream: StreamId, reason: &str) -> Vec<Effect> {
        self.streams
            .remove(&stream)
            .map(|_| vec![self.report_end(stream, ended(Code::Unavailable, reason))])
            .unwrap_or_default()
    }

    fn report_end(&mut self, stream: StreamId, ended: StreamEnd) -> Effect {
        let jitter = u16::try_from(self.random.below(1_001)).unwrap_or(0);
        Effect::Deliver(StreamEvent::Ended { stream, ended, jitter })
    }

    fn send(&mut self, now: u64, stream: StreamId, request: XdsRequest, is_reported: bool) -> Vec<Effect> {
        let (transit_time, pulled) = (self.transit_time(), self.random.between(10, 2_000));
        let Some(open) = self.streams.get_mut(&stream) else { return Vec::new() };
        open.request_arrives_at = (now + transit_time).max(open.request_arrives_at + 1);
        let kind = request.kind;
        let mut effects = vec![Effect::Ask(open.request_arrives_at, stream, request)];
        if is_reported {
            effects.push(Effect::Later(now + pulled, stream, XdsStep::Pulled(kind)));
        }
        effects
    }

    /// Handles a message that a server has sent on a stream.
    pub fn sent(&mut self, now: u64, stream: StreamId, sent: Sent) -> Vec<Effect> {
        let transit_time = self.transit_time();
        let Some(open) = self.streams.get_mut(&stream) else { return Vec::new() };
        open.response_arrives_at = (now + transit_time).max(open.response_arrives_at + 1);
        open.inbox.push_back((open.response_arrives_at, sent));
        vec![Effect::Later(open.response_arrives_at, stream, XdsStep::Poll)]
    }

    /// Breaks every connection.
    pub fn cut(&mut self, now: u64, until: u64) -> Vec<Effect> {
        self.unreachable_until = until;
        let mut effects = Vec::new();
        for (stream, open) in &mut self.streams {
            if open.waiting.is_none() {
                open.inbox.retain(|(at, _)| *at <= now);
                open.inbox.push_back((now, Sent::End(ended(Code::Unavailable, "connection reset"))));
                effects.extend([Effect::Closed(*stream), Effect::Later(now, *stream, XdsStep::Poll)]);
            }
        }
        effects
    }

    /// Passes on arrived messages, as far as reads are permitted.
    fn poll(&mut self, now: u64, stream: StreamId) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(open) = self.streams.get_mut(&stream) {
            let Some((_, sent)) = open.inbox.front().filter(|(at, _)| *at <= now) else { break };
            match sent {
                Sent::Answer(answer) => {
                    open.is_taken = true;
                    if open.leaves == 0 {
                        break;
                    }
                    effects.push(Effect::Hand(stream, answer.clone()));
                    open.leaves -= 1;
                    open.inbox.pop_front();
                }
                Sent::End(_) if open.is_taken && open.leaves == 0 => break,
                Sent::End(ended) => {
                    let ended = ended.clone();
                    self.streams.remove(&stream);
                    effects.push(self.report_end(stream, ended));
                }
            }
        }
        effects
    }
}
