//! The port to Azure Resource Manager: makes each call as a task of its own and brings the answer back as one
//! more input of the writer. A dry run answers every PUT here, so that none can leave the process (C4).

use std::sync::Arc;

use actix::{Actor, Context, Handler, Recipient};
use arm::Client;
use pool_core::arm::{ArmAnswer, ArmCall, ArmRequest};
use pool_core::route::{ArmMessage, Delivery};
use pool_core::writer;

use crate::switchboard::Deliver;

/// What becomes of writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effects {
    /// They are carried out.
    Carried,
    /// They are shown, and nothing is sent (C4).
    Withheld,
}

/// The port.
pub struct AzurePort {
    client: Arc<Client>,
    effects: Effects,
    writer: Recipient<Deliver>,
}

impl AzurePort {
    /// A port that calls through this client and answers the writer.
    #[must_use]
    pub fn new(client: Arc<Client>, effects: Effects, writer: Recipient<Deliver>) -> AzurePort {
        AzurePort { client, effects, writer }
    }

    fn call(&self, call: ArmCall) {
        let (client, writer, effects) = (Arc::clone(&self.client), self.writer.clone(), self.effects);
        drop(tokio::spawn(async move {
            let ArmCall { id, request } = call;
            let answer = match (effects, &request) {
                (Effects::Withheld, ArmRequest::PutPool { .. }) => ArmAnswer::Withheld,
                (Effects::Carried | Effects::Withheld, _) => client.execute(request).await,
            };
            let delivery = Delivery::Writer(writer::In::Answered(id, answer));
            if writer.send(Deliver(vec![delivery])).await.is_err() {
                tracing::debug!("an answer of ARM came after the writer had stopped");
            }
        }));
    }
}

impl Actor for AzurePort {
    type Context = Context<Self>;
}

impl Handler<Deliver> for AzurePort {
    type Result = ();

    fn handle(&mut self, Deliver(deliveries): Deliver, _: &mut Self::Context) {
        for delivery in deliveries {
            if let Delivery::Arm(message) = delivery {
                match message {
                    ArmMessage::Call(call) => self.call(call),
                    ArmMessage::Gates { reads_until, writes_until } => {
                        self.client.set_gates(reads_until, writes_until);
                    }
                }
            }
        }
    }
}
