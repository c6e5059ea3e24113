//! Sends operator requests from HTTP handlers to the machines that decide about them, and returns the answers
//! (docs/design/model-and-mechanisms.md, A3; H3).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::Recipient;
use model::operator_request::{Answer, OperatorAction, Request, RequestId};
use pool_core::route::{Delivery, Output, route};
use tokio::sync::oneshot;

use crate::address_book::{AddressBook, Deliver, End};
use crate::host::AwaitAnswer;

/// Timeout for an answer; the machines answer within 10 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(12);

/// Sends operator requests to machines.
#[derive(Clone)]
pub struct OperatorRequests {
    host: Recipient<AwaitAnswer>,
    address_book: Arc<AddressBook>,
    last_id: Arc<AtomicU64>,
}

impl OperatorRequests {
    /// Creates a sender for the machines in this address book; this host receives the answers.
    #[must_use]
    pub fn new(host: Recipient<AwaitAnswer>, address_book: Arc<AddressBook>) -> OperatorRequests {
        OperatorRequests { host, address_book, last_id: Arc::new(AtomicU64::new(0)) }
    }

    /// Sends a request and waits for the answer; `None` if none arrives in time or the process ends.
    pub async fn send(&self, request: OperatorAction) -> Option<Answer> {
        tokio::time::timeout(REQUEST_TIMEOUT, self.answer_to(request)).await.ok().flatten()
    }

    async fn answer_to(&self, request: OperatorAction) -> Option<Answer> {
        let id = RequestId(self.last_id.fetch_add(1, Ordering::Relaxed));
        let (answer, answered) = oneshot::channel();
        self.host.send(AwaitAnswer { id, answer }).await.ok()?;
        let mut deliveries: Vec<Delivery> = Vec::new();
        route(Output::Operator(Request { id, wanted: request }), &mut |delivery| deliveries.push(delivery));
        for delivery in deliveries {
            let end = End::from(&delivery.address());
            self.address_book.recipient(end).send(Deliver(vec![delivery])).await.ok()?;
        }
        answered.await.ok()
    }
}
