//! The port to Azure Resource Manager: makes each call as a task of its own and brings the answer back as one
//! more input of the writer. A dry run answers every PUT here, so that none can leave the process (C4).

mod log;

use std::collections::HashMap;
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Recipient};
use arm::Client;
use pool_core::arm::{ArmAnswer, ArmCall, ArmRequest};
use pool_core::ids::{LbName, Operation};
use pool_core::route::{ArmMessage, Delivery};
use pool_core::writer;
use tokio::time::Instant;

use self::log::{About, Accepted, Write};
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
    /// The last write of each load balancer whose operation ran on after its answer; told about, and nothing else.
    running: HashMap<LbName, (Operation, Write)>,
}

impl AzurePort {
    /// A port that calls through this client and answers the writer.
    #[must_use]
    pub fn new(client: Arc<Client>, effects: Effects, writer: Recipient<Deliver>) -> AzurePort {
        AzurePort { client, effects, writer, running: HashMap::new() }
    }

    fn call(&self, call: ArmCall, port: Recipient<Accepted>) {
        let (client, writer, effects) = (Arc::clone(&self.client), self.writer.clone(), self.effects);
        let ArmCall { id, request } = call;
        let told = self.subject(&request);
        drop(tokio::spawn(async move {
            let answer = match (effects, &request) {
                (Effects::Withheld, ArmRequest::PutPool { .. }) => ArmAnswer::Withheld,
                (Effects::Carried | Effects::Withheld, _) => client.execute(request).await,
            };
            // Before the writer hears of it and asks how the operation stands.
            if let Some(accepted) = log::answer(told, &answer)
                && port.send(accepted).await.is_err()
            {
                tracing::debug!("a write was accepted after the port had stopped");
            }
            let delivery = Delivery::Writer(writer::In::Answered(id, answer));
            if writer.send(Deliver(vec![delivery])).await.is_err() {
                tracing::debug!("an answer of ARM came after the writer had stopped");
            }
        }));
    }

    /// What a call is about, for people.
    fn subject(&self, request: &ArmRequest) -> About {
        match request {
            ArmRequest::GetLoadBalancer(lb) => About::LoadBalancer(lb.clone()),
            ArmRequest::GetPool(pool) => About::Pool(pool.clone()),
            ArmRequest::PutPool { pool, edit, .. } => About::Put(Write {
                pool: pool.clone(),
                added: edit.add.len(),
                removed: edit.remove.len(),
                began: Instant::now(),
                correlation_id: None,
            }),
            ArmRequest::Poll(operation) => {
                let known = self.running.values().find(|(running, _)| running == operation);
                About::Poll(known.map(|(_, write)| write.clone()))
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
