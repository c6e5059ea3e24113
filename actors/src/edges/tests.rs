//! Measurement of waiting deliveries, on tokio's paused clock.

use std::collections::BTreeSet;

use actix::{Handler, Message};
use model::ids::{LbName, PoolName, ServiceUid};
use pools::discovery;

use super::*;

/// Takes ten seconds for each batch.
struct Slow;

impl Actor for Slow {
    type Context = Context<Self>;
}

impl Handler<Deliver> for Slow {
    type Result = actix::ResponseFuture<()>;

    fn handle(&mut self, _: Deliver, _: &mut Self::Context) -> Self::Result {
        Box::pin(tokio::time::sleep(Duration::from_secs(10)))
    }
}

/// An actor with nothing but edges.
struct Sender {
    edges: Edges<End>,
    to: Recipient<Deliver>,
}

impl Actor for Sender {
    type Context = Context<Self>;
}

impl HasEdges for Sender {
    type To = End;

    fn edges(&mut self) -> &mut Edges<End> {
        &mut self.edges
    }

    fn recipient(&self, _: &End) -> Option<Recipient<Deliver>> {
        Some(self.to.clone())
    }
}

/// This number of facts for each of these ends.
#[derive(Message)]
#[rtype(result = "()")]
struct Push(Vec<(End, usize)>);

#[derive(Message)]
#[rtype(result = "()")]
struct Halt;

impl Handler<Push> for Sender {
    type Result = ();

    fn handle(&mut self, Push(all): Push, ctx: &mut Self::Context) {
        for (end, count) in all {
            for n in 0..count {
                let fact = discovery::In::Service(ServiceUid::new(n.to_string()), None);
                self.edges.push(end, Delivery::Discovery(fact));
            }
        }
        flush(self, ctx);
    }
}

impl Handler<Halt> for Sender {
    type Result = ();

    fn handle(&mut self, _: Halt, ctx: &mut Self::Context) {
        actix::ActorContext::stop(ctx);
    }
}

fn sender() -> actix::Addr<Sender> {
    Sender { edges: Edges::default(), to: Slow.start().recipient() }.start()
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[actix::test]
async fn e2_what_waits_is_shown_by_receiver_and_returns_to_zero() {
    tokio::time::pause();
    let own = recorder::tests::own();
    let _guard = metrics::set_default_local_recorder(&own);
    let shown = |actor: &str| {
        let start = format!("backend_pool_controller_mailbox_waiting{{actor=\"{actor}\"}} ");
        own.handle().render().lines().find_map(|line| line.strip_prefix(&start).map(str::to_owned))
    };
    let (one, other) = (sender(), sender());
    one.send(Push(vec![(End::Writer, 3), (End::Snapshot, 1)])).await.expect("it lives");
    other.send(Push(vec![(End::Writer, 1)])).await.expect("it lives");
    // These wait for the answers to the first.
    one.send(Push(vec![(End::Writer, 5)])).await.expect("it lives");
    other.send(Push(vec![(End::Writer, 2)])).await.expect("it lives");
    assert_eq!(shown("writer"), None, "what has just come may be gone in a moment");
    after(2).await;
    assert_eq!(shown("writer").as_deref(), Some("7"));
    assert_eq!(shown("snapshot"), None, "what is in flight does not wait");
    other.send(Halt).await.expect("it lives");
    after(1).await;
    assert_eq!(shown("writer").as_deref(), Some("5"), "a sender that ends takes its share with it");
    after(20).await;
    assert_eq!(shown("writer").as_deref(), Some("0"));
}

#[test]
fn e2_every_end_has_a_mailbox_of_its_own_among_those_that_are_declared() {
    let mut ends: Vec<End> = Kind::ALL.into_iter().map(End::Watcher).collect();
    ends.extend([
        End::Informer,
        End::Discovery,
        End::Directory,
        End::Pools,
        End::Writer,
        End::AdminState,
        End::Leader,
        End::Pauses,
        End::Events,
        End::Snapshot,
        End::XdsSource,
        End::XdsPort,
        End::ArmPort,
        End::KubernetesPort,
        End::Metrics,
        End::Host,
    ]);
    let pool = PoolId::new(LbName::new("lb"), PoolName::new("pool"));
    let named: BTreeSet<&str> = ends.iter().map(Destination::mailbox).chain([pool.mailbox()]).collect();
    assert_eq!(named, BTreeSet::from(recorder::MAILBOXES));
}
