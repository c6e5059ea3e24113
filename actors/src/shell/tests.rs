//! The shell on tokio's paused clock, with a machine that counts.

use std::time::Duration;

use actix::Handler;
use model::ids::{LbName, PoolId, PoolName, ServiceUid};
use model::report;
use pools::discovery;
use reporting::events;
use tokio::sync::mpsc;

use super::*;

/// Emits one output per input, and one more by its timer, two seconds after the first input.
#[derive(Default)]
struct Counter {
    wake: Option<Now>,
    woken: usize,
}

impl Machine for Counter {
    type In = discovery::In;
    type Out = discovery::Out;

    fn step(&mut self, now: Now, input: discovery::In, out: &mut Vec<discovery::Out>) {
        self.wake.get_or_insert(now.plus(Duration::from_secs(2)));
        if let discovery::In::Missing(pool) = input {
            out.push(discovery::Out::Read { call: model::ids::CallId(1), lb: pool.lb });
        }
    }

    fn deadline(&self) -> Option<Now> {
        self.wake.filter(|_| self.woken == 0)
    }

    fn tick(&mut self, _: Now, out: &mut Vec<discovery::Out>) {
        self.woken += 1;
        out.push(discovery::Out::Synced);
    }
}

/// Forwards its messages, after an optional delay.
struct Sink {
    deliveries: mpsc::UnboundedSender<Delivery>,
    slow: Duration,
}

impl Actor for Sink {
    type Context = Context<Self>;
}

impl Handler<Deliver> for Sink {
    type Result = actix::ResponseFuture<()>;

    fn handle(&mut self, Deliver(deliveries): Deliver, _: &mut Self::Context) -> Self::Result {
        for delivery in deliveries {
            assert!(self.deliveries.send(delivery).is_ok(), "the test listens");
        }
        let slow = self.slow;
        Box::pin(async move { tokio::time::sleep(slow).await })
    }
}

/// Returns an address book with the same sink at every end, which takes this long for each delivery.
pub(crate) fn address_book_of_sinks(slow: Duration) -> (Arc<AddressBook>, mpsc::UnboundedReceiver<Delivery>) {
    let (deliveries, receiver) = mpsc::unbounded_channel();
    let sink = Sink { deliveries, slow }.start().recipient::<Deliver>();
    (Arc::new(AddressBook::all_to(&sink)), receiver)
}

fn input_of(delivery: Delivery) -> Option<discovery::In> {
    if let Delivery::Discovery(input) = delivery { Some(input) } else { None }
}

fn missing(lb: &str) -> Delivery {
    let pool = PoolId::new(LbName::new(lb), PoolName::new("pool"));
    Delivery::Discovery(discovery::In::Missing(pool))
}

fn lb_of(delivery: &Delivery) -> String {
    let Delivery::Writer(writer::In::Read { lb, .. }) = delivery else { panic!("no read: {delivery:?}") };
    lb.to_string()
}

#[actix::test]
async fn a1_a_shell_routes_in_order_and_keeps_one_timer() {
    tokio::time::pause();
    let clock = Clock::of_runtime();
    let (address_book, mut receiver) = address_book_of_sinks(Duration::ZERO);
    let shell = Shell::new(Counter::default(), input_of, Output::Discovery, clock, address_book).start();
    let before = clock.now();
    shell.send(Deliver(vec![missing("a"), missing("b"), missing("c")])).await.expect("it lives");
    let mut lbs = Vec::new();
    for _ in 0..3 {
        lbs.push(lb_of(&receiver.recv().await.expect("an output")));
    }
    assert_eq!(lbs, ["a", "b", "c"]);
    let woken = receiver.recv().await.expect("the timer's output");
    assert!(matches!(woken, Delivery::Directory(_)), "{woken:?}");
    assert!(clock.now().since(before) >= Duration::from_secs(2));
}

#[actix::test]
async fn a3_newer_facts_replace_older_ones_for_a_busy_receiver() {
    tokio::time::pause();
    let (address_book, mut receiver) = address_book_of_sinks(Duration::from_secs(1));
    let mut edges: Edges<End> = Edges::default();
    let fact = |uid: &str| Delivery::Discovery(discovery::In::Service(ServiceUid::new(uid), None));
    edges.push(End::Discovery, fact("a"));
    let sender = Sender { edges, address_book }.start();
    // The first fact is in flight; the others wait, and only the newest of each stays.
    sender.send(Push(vec![fact("b"), fact("b"), fact("c"), fact("b")])).await.expect("it lives");
    let mut deliveries = Vec::new();
    for _ in 0..3 {
        let Delivery::Discovery(discovery::In::Service(uid, _)) = receiver.recv().await.expect("a fact")
        else {
            panic!("not a fact")
        };
        deliveries.push(uid.to_string());
    }
    assert_eq!(deliveries, ["a", "b", "c"]);
    assert!(receiver.try_recv().is_err(), "nothing else was sent");
}

/// An actor with only edges.
struct Sender {
    edges: Edges<End>,
    address_book: Arc<AddressBook>,
}

#[derive(Message)]
#[rtype(result = "()")]
struct Push(Vec<Delivery>);

impl Actor for Sender {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        flush(self, ctx);
    }
}

impl HasEdges for Sender {
    type To = End;

    fn edges(&mut self) -> &mut Edges<End> {
        &mut self.edges
    }

    fn recipient(&self, to: &End) -> Option<Recipient<Deliver>> {
        Some(self.address_book.recipient(*to).clone())
    }
}

impl Handler<Push> for Sender {
    type Result = ();

    fn handle(&mut self, Push(deliveries): Push, ctx: &mut Self::Context) {
        for delivery in deliveries {
            self.edges.push(End::Discovery, delivery);
        }
        flush(self, ctx);
    }
}

#[actix::test]
async fn a_delivery_for_another_machine_is_ignored() {
    let (address_book, mut receiver) = address_book_of_sinks(Duration::ZERO);
    let shell =
        Shell::new(Counter::default(), input_of, Output::Discovery, Clock::of_runtime(), address_book)
            .start();
    let what = report::EventKind::DataError { endpoints: 1, example: "x".into() };
    let foreign =
        Delivery::Events(events::In::Report(report::Report { subjects: Vec::new(), what, note: None }));
    shell.send(Deliver(vec![foreign])).await.expect("it lives");
    shell.send(Ping).await.expect("it steps");
    assert!(receiver.try_recv().is_err());
}
