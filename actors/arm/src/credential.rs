//! Tokens of an identity, and the replacement of a token that Azure refuses (C3). [`renewal`] decides when to request a
//! token, and what calls get in the meantime. The other modules below request tokens of the different identities.
//!
//! A task owns the tokens; it starts with the first call. It requests tokens on separate tasks, so that a request
//! continues even if the call that started it has stopped waiting.

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

/// Creates a credential without a cache: it requests every token.
pub(crate) type CredentialFactory =
    Arc<dyn Fn() -> azure_core::Result<Arc<dyn TokenCredential>> + Send + Sync>;

/// The tokens of an identity.
pub(crate) struct Tokens {
    make: CredentialFactory,
    initial_credential: Arc<dyn TokenCredential>,
    scope: String,
    clocks: Clocks,
    owner: OnceCell<UnboundedSender<Message>>,
}

/// Message to the owner.
enum Message {
    /// A call needs a token.
    TokenNeeded(oneshot::Sender<Result<AccessToken, Arc<str>>>),
    /// Azure has rejected this token.
    TokenRejected(AccessToken),
}

/// Reason why there is no token, in a message that names what to change.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
struct NoToken {
    reason: String,
    /// `Retry-After` of the authority.
    retry_after: Option<Duration>,
}

impl Tokens {
    /// Creates the tokens of an identity; `None` for the anonymous one.
    pub(crate) fn new(
        identity: &Identity,
        login: &Login,
        transport: &Transport,
        clocks: Clocks,
    ) -> azure_core::Result<Option<Arc<Tokens>>> {
        // With a metadata document, the credential uses the scope of the document instead.
        let scope = match login {
            Login::Known { audience, .. } => scope_of(audience),
            Login::Metadata { document, .. } => scope_of(&document.origin().ascii_serialization()),
        };
        let make = source::of(identity, login, transport, &clocks)?;
        make.map(|make| Tokens::with_factory(make, scope, clocks).map(Arc::new)).transpose()
    }

    /// Creates tokens from these credentials.
    pub(crate) fn with_factory(
        make: CredentialFactory,
        scope: String,
        clocks: Clocks,
    ) -> azure_core::Result<Tokens> {
        Ok(Tokens { initial_credential: make()?, make, scope, clocks, owner: OnceCell::new() })
    }

    /// Returns a valid token.
    pub(crate) async fn token(&self) -> azure_core::Result<AccessToken> {
        let (answer, answered) = oneshot::channel();
        self.send(Message::TokenNeeded(answer)).await;
        let task_ended = || Err("the task that obtains tokens has ended".into());
        let answer = answered.await.unwrap_or_else(|_| task_ended());
        answer.map_err(|reason| Error::with_message(ErrorKind::Credential, reason.to_string()))
    }

    /// Reports that Azure has rejected this token.
    pub(crate) async fn rejected(&self, token: AccessToken) {
        self.send(Message::TokenRejected(token)).await;
    }

    async fn send(&self, message: Message) {
        let owner = self.owner.get_or_init(async || {
            let (owner, messages) = unbounded_channel();
            drop(tokio::spawn(TokenTask::new(self).run(messages)));
            owner
        });
        // The owner runs while anything can send to it. When the runtime ends, there are no calls either.
        drop(owner.await.send(message));
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens")
    }
}

/// The task that owns the tokens: it reads the clocks for the machine, and requests tokens.
struct TokenTask {
    renewal: Renewal,
    make: CredentialFactory,
    credential: Arc<dyn TokenCredential>,
    scope: Arc<str>,
    clocks: Clocks,
    callers: BTreeMap<Caller, oneshot::Sender<Result<AccessToken, Arc<str>>>>,
    last_caller: u64,
    requests: JoinSet<(RequestId, azure_core::Result<AccessToken>)>,
    /// The request that was started last.
    last: Option<(RequestId, AbortHandle)>,
}

impl TokenTask {
    fn new(tokens: &Tokens) -> TokenTask {
        TokenTask {
            renewal: Renewal::default(),
            make: Arc::clone(&tokens.make),
            credential: Arc::clone(&tokens.initial_credential),
            scope: Arc::from(tokens.scope.as_str()),
            clocks: tokens.clocks.clone(),
            callers: BTreeMap::new(),
            last_caller: 0,
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
            Message::TokenNeeded(answer) => {
                self.last_caller += 1;
                let caller = Caller(self.last_caller);
                self.callers.insert(caller, answer);
                self.step(In::TokenNeeded { caller, wall: self.clocks.wall() });
            }
            Message::TokenRejected(token) => self.step(In::TokenRejected(token.token)),
        }
    }

    fn on_ended(&mut self, ended: Result<(RequestId, azure_core::Result<AccessToken>), JoinError>) {
        match ended {
            Ok((request, Ok(token))) => {
                self.step(In::TokenReceived { request, token, wall: self.clocks.wall() });
            }
            Ok((request, Err(error))) => {
                let retry_after = error.downcast_ref::<NoToken>().and_then(|no_token| no_token.retry_after);
                let reason = error.to_string();
                tracing::debug!(%reason, "a request for a token failed");
                self.step(In::RequestFailed { request, reason: reason.into(), retry_after });
            }
            // The request was given up.
            Err(_) => {}
        }
    }

    fn step(&mut self, input: In) {
        let mut out = Vec::new();
        self.renewal.step(self.clocks.now(), input, &mut out);
        self.handle(out);
    }

    fn tick(&mut self) {
        let mut out = Vec::new();
        self.renewal.tick(self.clocks.now(), &mut out);
        self.handle(out);
    }

    fn handle(&mut self, out: Vec<Out>) {
        for output in out {
            match output {
                Out::RequestToken(request) => {
                    let (credential, scope) = (Arc::clone(&self.credential), Arc::clone(&self.scope));
                    let request_token = async move { (request, credential.get_token(&[&scope], None).await) };
                    self.last = Some((request, self.requests.spawn(request_token)));
                }
                Out::GiveUp(request) => {
                    if let Some((_, task)) = self.last.take_if(|(last, _)| *last == request) {
                        task.abort();
                    }
                }
                Out::ResetCredential => match (self.make)() {
                    Ok(credential) => self.credential = credential,
                    Err(error) => tracing::debug!(%error, "the credential stays as it is"),
                },
                Out::Token(caller, token) => self.answer(caller, Ok(token)),
                Out::TokenUnavailable(caller, reason) => self.answer(caller, Err(reason)),
            }
        }
    }

    fn answer(&mut self, caller: Caller, answer: Result<AccessToken, Arc<str>>) {
        let answered = self.callers.remove(&caller).map(|call| call.send(answer));
        // A caller that has stopped waiting needs no answer.
        drop(answered);
    }
}

/// Returns the scope for this audience; a trailing slash belongs to the audience.
pub(crate) fn scope_of(audience: &str) -> String {
    format!("{audience}/.default")
}

/// Reads a file, up to one byte beyond the limit.
fn read_at_most(path: &std::path::Path, limit: usize) -> std::io::Result<Vec<u8>> {
    use std::io::Read;

    let mut bytes = Vec::new();
    let limit = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    std::fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}
