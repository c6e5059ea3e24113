//! Measurement of waiting deliveries, on tokio's paused clock.

use std::collections::BTreeSet;

use actix::{Handler, Message};
use model::ids::{LbName, PoolName, ServiceUid};
use model::object::Kind;
use pools::discovery;

use super::*;
use crate::address_book::MAILBOXES;

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

/// An actor with only edges.
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
async fn e2_waiting_deliveries_are_counted_by_receiver() {
    tokio::time::pause();
    let own = recorder::tests::own();
    let _guard = metrics::set_default_local_recorder(&own);
    let gauge = |actor: &str| {
        let start = format!("backend_pool_controller_mailbox_waiting{{actor=\"{actor}\"}} ");
        own.handle().render().lines().find_map(|line| line.strip_prefix(&start).map(str::to_owned))
    };
    let (one, other) = (sender(), sender());
    one.send(Push(vec![(End::Writer, 3), (End::Snapshot, 1)])).await.expect("it lives");
    other.send(Push(vec![(End::Writer, 1)])).await.expect("it lives");
    // These deliveries wait for the answers to the first ones.
    one.send(Push(vec![(End::Writer, 5)])).await.expect("it lives");
    other.send(Push(vec![(End::Writer, 2)])).await.expect("it lives");
    assert_eq!(gauge("writer"), None, "new deliveries may be taken soon");
    after(2).await;
    assert_eq!(gauge("writer").as_deref(), Some("7"));
    assert_eq!(gauge("snapshot"), None, "deliveries in flight do not count");
    other.send(Halt).await.expect("it lives");
    after(1).await;
    assert_eq!(gauge("writer").as_deref(), Some("5"), "the deliveries of an ended sender do not count");
    after(20).await;
    assert_eq!(gauge("writer").as_deref(), Some("0"));
}

#[test]
fn e2_mailbox_names_are_unique() {
    let names: BTreeSet<&str> = MAILBOXES.iter().copied().collect();
    assert_eq!(names.len(), MAILBOXES.len());
    let pool = PoolId::new(LbName::new("lb"), PoolName::new("pool"));
    let watchers = Kind::ALL.map(|kind| End::Watcher(kind).mailbox());
    let several = watchers.into_iter().chain([End::Pools.mailbox(), pool.mailbox()]);
    assert_eq!(several.filter(|name| names.contains(name)).count(), 6);
}
