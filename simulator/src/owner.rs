//! One task owns one model and answers questions about it one after another, on one clock.
//!
//! A question is a closure that gets the model and the time. Questions of one asker are answered in their order.
//! The owner also lets time pass in the model at its deadlines, and publishes its revision to all that wait.

use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::Clock;

/// Questions that are answered before revision and deadline are looked at again.
const BATCH: usize = 64;

/// A model that an owner task can own.
pub trait Model: Send + 'static {
    /// Increases whenever a waiting caller may find something new.
    fn revision(&self) -> u64;
    /// Returns the next moment at which time alone changes something, in microseconds.
    fn deadline(&self) -> Option<u64>;
    /// Advances the model to the present time.
    fn tick(&mut self, now_us: u64);
}

type Question<M> = Box<dyn FnOnce(&mut M, u64) + Send>;

/// The address of an owner task; the task ends when the last address is gone.
pub struct Owner<M> {
    questions: mpsc::UnboundedSender<Question<M>>,
    revision: watch::Receiver<u64>,
    clock: Clock,
}

impl<M> Clone for Owner<M> {
    fn clone(&self) -> Self {
        Self { questions: self.questions.clone(), revision: self.revision.clone(), clock: self.clock }
    }
}

impl<M: Model> Owner<M> {
    /// Starts the owner's task on the current runtime.
    pub fn start(model: M, clock: Clock) -> Self {
        let (questions, received) = mpsc::unbounded_channel();
        let (published, revision) = watch::channel(model.revision());
        tokio::spawn(own(model, clock, received, published));
        Self { questions, revision, clock }
    }

    /// Asks and waits for the answer.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut M, u64) -> T + Send + 'static,
    ) -> T {
        let (answer, answered) = oneshot::channel();
        self.send(move |model, now_us| {
            // An asker that has stopped waiting needs no answer.
            drop(answer.send(question(model, now_us)));
        });
        answered.await.expect("the owner lives as long as one of its addresses")
    }

    /// Sends a closure without waiting for its result.
    pub fn send(&self, question: impl FnOnce(&mut M, u64) + Send + 'static) {
        // The owner is gone only when its runtime is, and then no receiver is left.
        drop(self.questions.send(Box::new(question)));
    }

    /// Returns the revision, to wait for its next move.
    #[must_use]
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.clone()
    }

    /// Returns the clock that the owner reads.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }
}

async fn own<M: Model>(
    mut model: M,
    clock: Clock,
    mut received: mpsc::UnboundedReceiver<Question<M>>,
    published: watch::Sender<u64>,
) {
    let mut questions = Vec::with_capacity(BATCH);
    loop {
        let deadline = model.deadline();
        let due = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(clock.instant(at)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            count = received.recv_many(&mut questions, BATCH) => {
                if count == 0 {
                    return;
                }
                for question in questions.drain(..) {
                    question(&mut model, clock.now_us());
                }
            }
            () = due => model.tick(clock.now_us()),
        }
        let revision = model.revision();
        published.send_if_modified(|known| std::mem::replace(known, revision) != revision);
    }
}
