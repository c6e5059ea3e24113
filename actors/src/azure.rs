//! The port to Azure Resource Manager: runs each call as a task and sends the answer to the writer as one more input.
//! In a dry run, the port answers every PUT itself, so that none leaves the process (C4).

mod log;

use std::collections::HashMap;
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Recipient};
use arm::{Answered, Client, Headroom};
use model::arm::{ArmAnswer, ArmCall, ArmRequest};
use model::ids::{LbName, Operation};
use pool_core::route::{ArmMessage, Delivery};

use tracing::Instrument;

use self::log::{Accepted, CallSubject, Write};
use crate::address_book::Deliver;

/// Handling of the process's writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effects {
    /// Writes are sent.
    Carried,
    /// Writes are shown, and nothing is sent (C4).
    Withheld,
}

/// The port.
pub struct AzurePort {
    client: Arc<Client>,
    effects: Effects,
    writer: Recipient<Deliver>,
    /// Last write of each load balancer whose operation continues after the answer; for log lines only.
    running: HashMap<LbName, (Operation, Write)>,
}

impl AzurePort {
    /// Creates a port that calls through this client and sends answers to the writer.
    #[must_use]
    pub fn new(client: Arc<Client>, effects: Effects, writer: Recipient<Deliver>) -> AzurePort {
        AzurePort { client, effects, writer, running: HashMap::new() }
    }

    fn call(&self, call: ArmCall, port: Recipient<Accepted>) {
        let (client, writer, effects) = (Arc::clone(&self.client), self.writer.clone(), self.effects);
        let ArmCall { id, request } = call;
        let subject = self.subject(&request);
        let span = log::span(&subject);
        let exchange = async move {
            let Answered { answer, headroom } = match (effects, &request) {
                (Effects::Withheld, ArmRequest::PutPool { .. }) => {
                    Answered { answer: ArmAnswer::Withheld, headroom: Headroom::default() }
                }
                (Effects::Carried, ArmRequest::PutPool { .. })
                | (
                    Effects::Carried | Effects::Withheld,
                    ArmRequest::GetLoadBalancer(_) | ArmRequest::GetPool(_) | ArmRequest::Poll(_),
                ) => client.execute(request).await,
            };
            // The port records the operation before the writer receives the answer and polls the operation.
            if let Some(accepted) = log::answer(subject, &answer)
                && port.send(accepted).await.is_err()
            {
                tracing::debug!("did not record an accepted write: the port has stopped");
            }
            // The remaining quota comes first, so that it applies to the calls that follow from the answer.
            let remaining =
                headroom.by_class().map(|(class, remaining)| writer::In::Headroom(class, remaining));
            let inputs = remaining.chain([writer::In::Answered(id, answer)]);
            if writer.send(Deliver(inputs.map(Delivery::Writer).collect())).await.is_err() {
                tracing::debug!("dropped an answer of ARM: the writer has stopped");
            }
        };
        drop(tokio::spawn(exchange.instrument(span)));
    }

    /// Returns the subject of a call, for log lines.
    fn subject(&self, request: &ArmRequest) -> CallSubject {
        match request {
            ArmRequest::GetLoadBalancer(lb) => CallSubject::LoadBalancer(lb.clone()),
            ArmRequest::GetPool(pool) => CallSubject::Pool(pool.clone()),
            ArmRequest::PutPool { pool, edit, permit, record, .. } => {
                CallSubject::Put(Write::new(pool.clone(), permit.attempt, edit, Arc::clone(record)))
            }
            ArmRequest::Poll(operation) => {
                let known = self.running.values().find(|(running, _)| running == operation);
                known.map_or_else(
                    || CallSubject::OtherPoll(operation.clone()),
                    |(_, write)| CallSubject::Poll(write.clone()),
                )
            }
        }
    }
}

impl Actor for AzurePort {
    type Context = Context<Self>;
}

impl Handler<Accepted> for AzurePort {
    type Result = ();

    fn handle(&mut self, Accepted(operation, write): Accepted, _: &mut Self::Context) {
        self.running.insert(write.pool.lb.clone(), (operation, write));
    }
}

impl Handler<Deliver> for AzurePort {
    type Result = ();

    fn handle(&mut self, Deliver(deliveries): Deliver, ctx: &mut Self::Context) {
        for delivery in deliveries {
            if let Delivery::Arm(message) = delivery {
                match message {
                    ArmMessage::Call(call) => self.call(call, ctx.address().recipient()),
                    ArmMessage::Gates { reads_until, writes_until } => {
                        self.client.set_gates(reads_until, writes_until);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::arm::Failure;
    use model::ids::CallId;
    use model::sample::GateClass;
    use simulator::{Fakes, Settings, Size, World};
    use tokio::sync::mpsc;

    /// Receives the inputs of the writer.
    struct WriterStub(mpsc::UnboundedSender<Vec<Delivery>>);

    impl Actor for WriterStub {
        type Context = Context<Self>;
    }

    impl Handler<Deliver> for WriterStub {
        type Result = ();

        fn handle(&mut self, Deliver(deliveries): Deliver, _: &mut Self::Context) {
            self.0.send(deliveries).expect("the test listens");
        }
    }

    async fn answered(url: &str) -> Vec<Delivery> {
        let defaults = simulator::models::arm::Settings::default();
        let settings = arm::Settings {
            endpoint: url.parse().expect("an address"),
            api_version: "2025-05-01".to_owned(),
            subscription: defaults.subscription,
            resource_group: defaults.resource_group,
            identity: arm::Identity::Anonymous,
            login: arm::Login::Known { authority_host: String::new(), audience: String::new() },
            user_agent: "azure-backend-pool-controller/test".to_owned(),
            timeouts: arm::Timeouts::default(),
            clocks: arm::Clocks {
                now: Arc::new(|| model::machine::Now::ZERO),
                wall: Arc::new(model::machine::Wall::default),
            },
        };
        let client = Arc::new(Client::new(settings).expect("a client"));
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let writer = WriterStub(sender).start().recipient();
        let port = AzurePort::new(client, Effects::Carried, writer).start();
        let call = ArmCall {
            id: CallId(7),
            request: ArmRequest::GetLoadBalancer(LbName::new(simulator::CLUSTER_NAME)),
        };
        let message = Deliver(vec![Delivery::Arm(ArmMessage::Call(call))]);
        port.send(message).await.expect("the port lives");
        receiver.recv().await.expect("an answer")
    }

    #[actix::test]
    async fn w9_the_writer_receives_the_remaining_quota_before_the_answer() {
        let fakes = Fakes::start(Settings::default()).await.expect("loopback has free ports");
        let size = Size { services: 1, load_balancers: 1, ..Size::default() };
        World::new(size, 1).populate(&fakes, &simulator::vnet_id()).await;
        let received = answered(&fakes.arm_url).await;
        let [Delivery::Writer(first), Delivery::Writer(second)] = &received[..] else {
            panic!("{received:?}")
        };
        assert!(matches!(first, writer::In::Headroom(GateClass::Reads, 1..)), "{first:?}");
        assert!(matches!(second, writer::In::Answered(CallId(7), ArmAnswer::LoadBalancer(_))), "{second:?}");
    }

    #[actix::test]
    async fn w9_without_an_answer_no_remaining_quota_is_reported() {
        let fakes = Fakes::start(Settings::default()).await.expect("loopback has free ports");
        let url = fakes.arm_url.clone();
        fakes.stop().await;
        let received = answered(&url).await;
        let [Delivery::Writer(writer::In::Answered(CallId(7), ArmAnswer::Failed(failure)))] = &received[..]
        else {
            panic!("{received:?}")
        };
        let Failure { kind, .. } = &**failure;
        assert_eq!(*kind, model::arm::FailureKind::NotConnected);
    }
}
