//! Who we are: the tokens of an identity, and the means to have another one when Azure refuses it (C3). When one is asked
//! for, and what calls get meanwhile, is decided by [`renewal`]; how each identity gets its token is the business of the
//! other modules below.
//!
//! The tokens have one owner, a task that begins with the first call. It asks on tasks of their own, so that a request
//! goes on when the call that made it is not waited for any more.

mod certificate;
mod explain;
mod metadata;
mod once;
mod renewal;
mod source;
#[cfg(test)]
pub(crate) mod test_certificates;
mod token_file;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::{AccessToken, TokenCredential};
use azure_core::error::{Error, ErrorKind};
use azure_core::http::Transport;
use model::machine::Machine as _;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OnceCell, oneshot};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use self::renewal::{Caller, In, Out, Renewal, RequestId};
use crate::identity::{Identity, Login};
use crate::settings::Clocks;

/// Makes a credential that knows nothing yet, and that asks again for each token.
pub(crate) type Make = Arc<dyn Fn() -> azure_core::Result<Arc<dyn TokenCredential>> + Send + Sync>;

/// The tokens of an identity.
pub(crate) struct Tokens {
    make: Make,
    first: Arc<dyn TokenCredential>,
    scope: String,
    clocks: Clocks,
    owner: OnceCell<UnboundedSender<Message>>,
}

/// What the owner is told.
enum Message {
    /// A call needs a token.
    Wanted(oneshot::Sender<Result<AccessToken, Arc<str>>>),
    /// Azure has refused this one.
    Rejected(AccessToken),
}

/// Why there is no token, in words that name what to change.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
struct NoToken {
    why: String,
    /// For how long the authority wants to be left alone.
    retry_after: Option<Duration>,
}

impl Tokens {
    /// Those of an identity; `None` for the identity that has none.
    pub(crate) fn new(
        identity: &Identity,
        login: &Login,
        transport: &Transport,
        clocks: Clocks,
    ) -> azure_core::Result<Option<Arc<Tokens>>> {
        // With a metadata document the credential replaces the scope by that of the document.
        let scope = match login {
            Login::Known { audience, .. } => scope_of(audience),
            Login::Metadata { document, .. } => scope_of(&document.origin().ascii_serialization()),
        };
        let make = source::of(identity, login, transport, &clocks)?;
        make.map(|make| Tokens::made_by(make, scope, clocks).map(Arc::new)).transpose()
    }

    /// Those that credentials from here bring.
    pub(crate) fn made_by(make: Make, scope: String, clocks: Clocks) -> azure_core::Result<Tokens> {
        Ok(Tokens { first: make()?, make, scope, clocks, owner: OnceCell::new() })
    }

    /// A token that is good.
    pub(crate) async fn token(&self) -> azure_core::Result<AccessToken> {
        let (answer, answered) = oneshot::channel();
        self.tell(Message::Wanted(answer)).await;
        let gone = || Err("the task that obtains tokens has ended".into());
        let answer = answered.await.unwrap_or_else(|_| gone());
        answer.map_err(|why| Error::with_message(ErrorKind::Credential, why.to_string()))
    }

    /// Azure has refused this token.
    pub(crate) async fn rejected(&self, token: AccessToken) {
        self.tell(Message::Rejected(token)).await;
    }

    async fn tell(&self, message: Message) {
        let owner = self.owner.get_or_init(async || {
            let (owner, messages) = unbounded_channel();
            drop(tokio::spawn(Owner::new(self).run(messages)));
            owner
        });
        // It runs for as long as anything can send to it; a runtime that ends has no calls either.
        drop(owner.await.send(message));
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens")
    }
}

/// The task that owns the tokens: it reads the clocks for the machine, and asks.
struct Owner {
    renewal: Renewal,
    make: Make,
    credential: Arc<dyn TokenCredential>,
    scope: Arc<str>,
    clocks: Clocks,
    callers: BTreeMap<Caller, oneshot::Sender<Result<AccessToken, Arc<str>>>>,
    called: u64,
    requests: JoinSet<(RequestId, azure_core::Result<AccessToken>)>,
    /// The request that was begun last.
    last: Option<(RequestId, AbortHandle)>,
}

impl Owner {
    fn new(tokens: &Tokens) -> Owner {
        Owner {
            renewal: Renewal::default(),
            make: Arc::clone(&tokens.make),
            credential: Arc::clone(&tokens.first),
            scope: Arc::from(tokens.scope.as_str()),
            clocks: tokens.clocks.clone(),
            callers: BTreeMap::new(),
            called: 0,
            requests: JoinSet::new(),
            last: None,
        }
    }

    async fn run(mut self, mut messages: UnboundedReceiver<Message>) {
        loop {
            let wait = self.renewal.deadline().map(|at| at.since(self.clocks.now()));
            tokio::select! {
                message = messages.recv() => match message {
                    Some(message) => self.on_message(message),
                    None => return,
                },
                Some(ended) = self.requests.join_next() => self.on_ended(ended),
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => self.tick(),
            }
        }
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Wanted(answer) => {
                self.called += 1;
                let caller = Caller(self.called);
                self.callers.insert(caller, answer);
                self.step(In::Wanted { caller, wall: self.clocks.wall() });
            }
            Message::Rejected(token) => self.step(In::Rejected(token.token)),
        }
    }

    fn on_ended(&mut self, ended: Result<(RequestId, azure_core::Result<AccessToken>), JoinError>) {
        match ended {
            Ok((request, Ok(token))) => {
                self.step(In::Brought { request, token, wall: self.clocks.wall() });
            }
            Ok((request, Err(error))) => {
                let retry_after = error.downcast_ref::<NoToken>().and_then(|no| no.retry_after);
                let why = error.to_string();
                tracing::debug!(%why, "a request for a token has brought none");
                self.step(In::Refused { request, why: why.into(), retry_after });
            }
            // It was given up.
            Err(_) => {}
        }
    }

    fn step(&mut self, input: In) {
        let mut out = Vec::new();
        self.renewal.step(self.clocks.now(), input, &mut out);
        self.act(out);
    }

    fn tick(&mut self) {
        let mut out = Vec::new();
        self.renewal.tick(self.clocks.now(), &mut out);
        self.act(out);
    }

    fn act(&mut self, out: Vec<Out>) {
        for said in out {
            match said {
                Out::Ask(request) => {
                    let (credential, scope) = (Arc::clone(&self.credential), Arc::clone(&self.scope));
                    let ask = async move { (request, credential.get_token(&[&scope], None).await) };
                    self.last = Some((request, self.requests.spawn(ask)));
                }
                Out::GiveUp(request) => {
                    if let Some((_, task)) = self.last.take_if(|(last, _)| *last == request) {
                        task.abort();
                    }
                }
                Out::BeginAnew => match (self.make)() {
                    Ok(credential) => self.credential = credential,
                    Err(error) => tracing::debug!(%error, "the credential stays as it is"),
                },
                Out::Give(caller, token) => self.answer(caller, Ok(token)),
                Out::Refuse(caller, why) => self.answer(caller, Err(why)),
            }
        }
    }

    fn answer(&mut self, caller: Caller, answer: Result<AccessToken, Arc<str>>) {
        let answered = self.callers.remove(&caller).map(|call| call.send(answer));
        // A caller that has stopped waiting needs none.
        drop(answered);
    }
}

/// What a token for this audience is asked for with; a slash at the audience's end belongs to it.
pub(crate) fn scope_of(audience: &str) -> String {
    format!("{audience}/.default")
}

/// Reads a file, but no more than one byte beyond the limit.
fn read_at_most(path: &std::path::Path, limit: usize) -> std::io::Result<Vec<u8>> {
    use std::io::Read;

    let mut bytes = Vec::new();
    let limit = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    std::fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}
