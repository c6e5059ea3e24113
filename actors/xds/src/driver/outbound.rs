//! The requests of a stream, as its transport pulls them. The transport pulls only once it is connected, so a pull
//! shows that a request is on its way (A57).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use model::xds::facts::ResourceKind;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// A request, encoded.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Kind of the requested resources.
    pub kind: ResourceKind,
    /// The message.
    pub bytes: Vec<u8>,
}

/// Requests that the transport has pulled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pulled {
    /// All requests that the stream was opened with.
    First,
    /// A later request.
    Later(ResourceKind),
}

/// The requests of a stream, starting with the first ones.
#[derive(Debug)]
pub(super) struct Outbound {
    requests: UnboundedReceiver<Outgoing>,
    /// Number of first requests that were not pulled yet.
    first: usize,
    pulls: UnboundedSender<Pulled>,
}

impl Outbound {
    /// Creates the stream of these requests; the first `first` of them open it.
    pub fn new(
        requests: UnboundedReceiver<Outgoing>,
        first: usize,
        pulls: UnboundedSender<Pulled>,
    ) -> Outbound {
        Outbound { requests, first, pulls }
    }
}

impl Stream for Outbound {
    type Item = Vec<u8>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        let this = self.get_mut();
        let Some(Outgoing { kind, bytes }) = ready!(this.requests.poll_recv(context)) else {
            return Poll::Ready(None);
        };
        let pulled = match this.first {
            0 => Some(Pulled::Later(kind)),
            1 => Some(Pulled::First),
            _ => None,
        };
        this.first = this.first.saturating_sub(1);
        if let Some(pulled) = pulled {
            super::pass(&this.pulls, pulled);
        }
        Poll::Ready(Some(bytes))
    }
}
