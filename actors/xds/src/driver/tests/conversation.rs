//! The client's machine, the driver and a server, from the first request to a stream that is cut and opened again.

use envoy_types::pb::envoy::service::discovery::v3::ResourceName;
use envoy_types::pb::google::rpc::Status;
use model::machine::{Machine, Now};
use model::xds::cache::ResourceState;
use model::xds::facts::ResourceKey;
use model::xds::stream::DriverCall;
use sources::resource_cache::ResourceChange;
use sources::xds::client::{Client, ExponentialBackoff, In, Out, Params, WatcherId, WatcherNotice};

use super::server::Ads;
use super::*;

/// A client, driven as by its shell, on a clock that only the test advances.
struct Shell {
    client: Client,
    site: Site,
    now: Now,
    pending_notices: Vec<WatcherNotice>,
}

impl Shell {
    fn of(bootstrap: Arc<Bootstrap>) -> Shell {
        let params = Params {
            servers: bootstrap.servers(),
            backoff: ExponentialBackoff::STREAMS,
            nack_pace: ExponentialBackoff::NACKS,
        };
        let client = Client::new(params);
        Shell { client, site: Site::of(bootstrap), now: Now::from_millis(1), pending_notices: Vec::new() }
    }

    fn act(&mut self, out: Vec<Out>) {
        let mut processed = None;
        for event in out {
            match event {
                Out::Call(DriverCall::Open { stream, server, first }) => {
                    self.site.driver.open(stream, server, first)
                }
                Out::Call(DriverCall::Send(stream, request)) => self.site.driver.send(stream, &request),
                Out::Call(DriverCall::Read(stream)) => self.site.driver.read(stream),
                Out::Call(DriverCall::Close(stream)) => self.site.driver.close(stream),
                Out::Notice(update, notice) => {
                    self.pending_notices.push(notice);
                    processed = Some(update);
                }
                Out::Metric(_) => {}
            }
        }
        if let Some(update) = processed {
            self.step(In::Processed(update));
        }
    }

    fn step(&mut self, input: impl Into<In>) {
        let mut out = Vec::new();
        self.client.step(self.now, input.into(), &mut out);
        if self.client.deadline().is_some_and(|at| at <= self.now) {
            self.client.tick(self.now, &mut out);
        }
        self.act(out);
    }

    /// Handles events of the driver until watchers get an output.
    async fn next_change(&mut self) -> ResourceChange<()> {
        while self.pending_notices.is_empty() {
            let event = self.site.next().await;
            self.step(event);
        }
        let change = self.pending_notices.remove(0).change;
        match change {
            ResourceChange::Changed(Ok(cached)) => {
                let model::xds::cache::Cached { raw, version, updated, provenance, .. } = cached;
                ResourceChange::Changed(Ok(model::xds::cache::Cached {
                    value: (),
                    raw,
                    version,
                    updated,
                    provenance,
                }))
            }
            ResourceChange::Changed(Err(error)) => ResourceChange::Changed(Err(error)),
            ResourceChange::Ambient(error) => ResourceChange::Ambient(error),
        }
    }

    /// Handles events of the driver up to the end of the stream.
    async fn ended(&mut self) {
        loop {
            let event = self.site.next().await;
            let is_end = matches!(event, StreamEvent::Ended { .. });
            self.step(event);
            if is_end {
                return;
            }
        }
    }

    /// Advances the client's clock to the next deadline.
    fn wait(&mut self) {
        self.now = self.client.deadline().expect("something is due");
        let mut out = Vec::new();
        self.client.tick(self.now, &mut out);
        self.act(out);
    }

    fn state(&self) -> ResourceState {
        self.client.dump().resources[0].state
    }
}

fn reported(name: &str, code: i32) -> ResourceError {
    let name = ResourceName { name: name.to_owned(), dynamic_parameter_constraints: None };
    let status = Status { code, message: "moved away".to_owned(), details: Vec::new() };
    ResourceError { resource_name: Some(name), error_detail: Some(status) }
}

#[tokio::test]
async fn x2_a88_a_stream_from_first_request_to_reopening() {
    let mut server = Ads::start().await;
    let mut shell = Shell::of(insecure(server.addr));
    shell.step(In::Watch(ResourceKey::new(ResourceKind::Endpoints, "web"), WatcherId(1)));
    let mut peer = server.call().await;
    let first = peer.request().await;
    assert_eq!(
        (first.resource_names.as_slice(), first.version_info.as_str()),
        (["web".to_owned()].as_slice(), "")
    );
    assert_eq!(first.node.unwrap().id, "pools-1");

    let good = assignment("web", "10.0.0.1");
    peer.answer(answer("1", vec![good.clone()], Vec::new()));
    let ResourceChange::Changed(Ok(cached)) = shell.next_change().await else {
        panic!("the assignment is delivered")
    };
    assert_eq!((&*cached.version, cached.updated), ("1", AT));
    assert_eq!(*cached.raw.unwrap().bytes, *good.value);
    let ack = peer.request().await;
    assert_eq!((ack.version_info.as_str(), ack.response_nonce.as_str()), ("1", "n1"));
    assert_eq!((ack.error_detail, ack.node), (None, None));

    peer.answer(answer("2", vec![assignment("web", "not an address")], Vec::new()));
    let ResourceChange::Ambient(Some(error)) = shell.next_change().await else {
        panic!("the error is delivered")
    };
    assert_eq!((error.code, shell.state()), (Code::InvalidArgument, ResourceState::Nacked));
    let nack = peer.request().await;
    assert_eq!((nack.version_info.as_str(), nack.response_nonce.as_str()), ("1", "n2"));
    let detail = nack.error_detail.unwrap();
    assert_eq!(detail.code, 3);
    assert!(
        detail.message.contains("web") && detail.message.contains("not an address"),
        "{}",
        detail.message
    );

    peer.answer(answer("3", Vec::new(), vec![reported("web", 5)]));
    let ResourceChange::Ambient(Some(error)) = shell.next_change().await else {
        panic!("the reported error is delivered")
    };
    assert_eq!((error.code, &*error.message), (Code::NotFound, "moved away"));
    assert_eq!(shell.state(), ResourceState::ReceivedError);
    assert_eq!(peer.request().await.version_info, "3");

    // The cut is not an error after a response. The next stream claims no version, so that the server repeats the
    // error if it lasts.
    drop(peer);
    shell.ended().await;
    assert_eq!(shell.pending_notices, []);
    shell.wait();
    let mut peer = server.call().await;
    let again = peer.request().await;
    assert_eq!(
        (again.resource_names.as_slice(), again.version_info.as_str()),
        (["web".to_owned()].as_slice(), "")
    );
    assert_eq!(
        (again.response_nonce.as_str(), again.node.map(|node| node.id)),
        ("", Some("pools-1".to_owned()))
    );
    peer.answer(answer("4", vec![assignment("web", "10.0.0.2")], Vec::new()));
    let ResourceChange::Changed(Ok(cached)) = shell.next_change().await else {
        panic!("the assignment is delivered again")
    };
    assert_eq!((&*cached.version, shell.state()), ("4", ResourceState::Acked));
    assert_eq!(peer.request().await.response_nonce, "n4");

    shell.step(In::Unwatch(ResourceKey::new(ResourceKind::Endpoints, "web"), WatcherId(1)));
    peer.closed().await;
}

#[tokio::test]
async fn x2_50_messages_are_read_in_a_burst_and_then_paced() {
    let mut server = Ads::start().await;
    let mut shell = Shell::of(insecure(server.addr));
    shell.step(In::Watch(ResourceKey::new(ResourceKind::Endpoints, "web"), WatcherId(1)));
    let mut peer = server.call().await;
    assert_eq!(peer.request().await.response_nonce, "");
    for n in 1..=53_u8 {
        peer.answer(answer(&n.to_string(), vec![assignment("web", &format!("10.0.0.{n}"))], Vec::new()));
        if n > 50 {
            let before = shell.now;
            shell.wait();
            assert_eq!(shell.now.since(before), Duration::from_millis(100));
        }
        let ResourceChange::Changed(Ok(cached)) = shell.next_change().await else {
            panic!("it is used at once")
        };
        assert_eq!(*cached.version, n.to_string());
        assert_eq!(peer.request().await.response_nonce, format!("n{n}"), "it is answered at once");
    }
}
