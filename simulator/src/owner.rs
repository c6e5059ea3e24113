//! A task that owns one model and runs closures on it one after another, on one clock.
//!
//! A closure gets the model and the time. Closures of one caller run in their order. The owner also advances the model
//! at its deadlines, and publishes its revision to waiting callers.

use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::Clock;

/// Maximum number of closures between two checks of revision and deadline.
const BATCH: usize = 64;

/// A model that an owner task can own.
pub trait Model: Send + 'static {
    /// Returns a number that increases with each change that a caller may wait for.
    fn revision(&self) -> u64;
    /// Returns the time of the next change of the model without a closure, in microseconds.
    fn deadline(&self) -> Option<u64>;
    /// Advances the model to the current time.
    fn tick(&mut self, now_us: u64);
}

type Question<M> = Box<dyn FnOnce(&mut M, u64) + Send>;

/// A handle of an owner task; the task ends when the last handle is dropped.
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

    /// Runs a closure and returns its result.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut M, u64) -> T + Send + 'static,
    ) -> T {
        let (answer, answered) = oneshot::channel();
        self.send(move |model, now_us| {
            // The caller may have stopped waiting.
            drop(answer.send(question(model, now_us)));
        });
        answered.await.expect("the owner lives as long as one of its handles")
    }

    /// Sends a closure without waiting for its result.
    pub fn send(&self, question: impl FnOnce(&mut M, u64) + Send + 'static) {
        // The owner ends only with its runtime, and then no receiver is left.
        drop(self.questions.send(Box::new(question)));
    }

    /// Returns a receiver of the revision, to wait for its next change.
    #[must_use]
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.clone()
    }

    /// Returns the owner's clock.
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
