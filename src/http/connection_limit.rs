//! Limits the connections of one listener to a number of slots. A connection that finds no free slot evicts another
//! one of the client with the most connections: the oldest that has not sent the head of its request, or else the
//! oldest. Therefore clients that send or read nothing do not keep out others, such as the kubelet with its probes.
//! Connections in their TLS handshake count too.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use actix_web::rt::net::{ActixStream, Ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The slots of a listener.
#[derive(Clone)]
pub(super) struct ConnectionLimit(Rc<RefCell<Slots>>);

struct Slots {
    capacity: usize,
    /// Number of the newest connection.
    last_number: u64,
    count: usize,
    /// The connections of each client, in the order of their eviction.
    clients: BTreeMap<Option<IpAddr>, BTreeMap<Position, Rc<Eviction>>>,
}

/// Position of a connection in the order of eviction among those of its client.
type Position = (Stage, u64);

/// Progress of a connection that has a slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// The head of its request is incomplete.
    Waiting,
    /// Its request is processed, or its response is sent.
    Requested,
}

/// Notifies the task of a connection that another connection has evicted it.
#[derive(Default)]
struct Eviction {
    is_evicted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// The slot of one connection.
pub(super) struct ConnectionSlot {
    limit: ConnectionLimit,
    client: Option<IpAddr>,
    /// `None` while the connection has no slot, or needs none.
    position: Cell<Option<Position>>,
    /// Whether the response has no end; such responses have a limit of their own.
    is_endless: Cell<bool>,
    eviction: Rc<Eviction>,
}

/// A connection that is subject to the limit.
pub(super) struct LimitedStream<S> {
    stream: S,
    slot: Rc<ConnectionSlot>,
}

impl ConnectionLimit {
    /// Creates a limit of this many connections.
    pub(super) fn new(capacity: usize) -> ConnectionLimit {
        ConnectionLimit(Rc::new(RefCell::new(Slots {
            capacity,
            last_number: 0,
            count: 0,
            clients: BTreeMap::new(),
        })))
    }

    /// Accepts a connection of this client. The connection takes a slot when it first waits for its client or has read
    /// a request. Thus connections that are accepted together do not evict each other before they are read.
    pub(super) fn accept<S>(&self, stream: S, client: Option<IpAddr>) -> LimitedStream<S> {
        let slot = ConnectionSlot {
            limit: self.clone(),
            client,
            position: Cell::new(None),
            is_endless: Cell::new(false),
            eviction: Rc::default(),
        };
        LimitedStream { stream, slot: Rc::new(slot) }
    }
}

impl Slots {
    fn insert(&mut self, client: Option<IpAddr>, position: Position, eviction: &Rc<Eviction>) {
        self.clients.entry(client).or_default().insert(position, Rc::clone(eviction));
        self.count += 1;
    }

    fn remove(&mut self, client: Option<IpAddr>, position: Position) {
        let Some(connections) = self.clients.get_mut(&client) else { return };
        if connections.remove(&position).is_some() {
            self.count -= 1;
        }
        if connections.is_empty() {
            self.clients.remove(&client);
        }
    }

    /// Removes another connection if all slots are taken, and returns its eviction.
    fn evict_if_full(&mut self) -> Option<Rc<Eviction>> {
        if self.count < self.capacity {
            return None;
        }
        // If clients have equally many connections, choose the one whose connection is first in the order of eviction.
        let most = |connections: &BTreeMap<Position, Rc<Eviction>>| {
            (connections.len(), Reverse(connections.first_key_value().map(|(position, _)| *position)))
        };
        let (client, connections) = self.clients.iter().max_by_key(|(_, connections)| most(connections))?;
        let (client, (position, eviction)) = (*client, connections.first_key_value()?);
        let (position, eviction) = (*position, Rc::clone(eviction));
        self.remove(client, position);
        Some(eviction)
    }
}

impl ConnectionSlot {
    /// Records that the head of the request has been read.
    pub(super) fn on_head(&self) {
        self.acquire(Stage::Requested);
    }

    /// Records that the response has no end: releases the slot, and removes the time limit.
    pub(super) fn on_endless(&self) {
        self.release();
        self.is_endless.set(true);
    }

    /// Returns whether the response has no end.
    pub(super) fn is_endless(&self) -> bool {
        self.is_endless.get()
    }

    fn acquire(&self, stage: Stage) {
        let number = self.release();
        let evicted = {
            let mut slots = self.limit.0.borrow_mut();
            let number = number.unwrap_or_else(|| {
                slots.last_number += 1;
                slots.last_number
            });
            let evicted = slots.evict_if_full();
            slots.insert(self.client, (stage, number), &self.eviction);
            self.position.set(Some((stage, number)));
            evicted
        };
        if let Some(eviction) = evicted {
            eviction.is_evicted.set(true);
            if let Some(waker) = eviction.waker.take() {
                waker.wake();
            }
        }
    }

    /// Releases the slot, if there is one, and returns the number of the connection.
    fn release(&self) -> Option<u64> {
        let position = self.position.take()?;
        self.limit.0.borrow_mut().remove(self.client, position);
        Some(position.1)
    }

    /// Fails if another connection has evicted this one.
    fn check(&self) -> io::Result<()> {
        if self.eviction.is_evicted.get() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn on_pending(&self, cx: &Context<'_>) {
        self.eviction.waker.replace(Some(cx.waker().clone()));
    }
}

impl<S> LimitedStream<S> {
    /// Returns the slot of this connection.
    pub(super) fn slot(&self) -> Rc<ConnectionSlot> {
        Rc::clone(&self.slot)
    }

    /// Returns the underlying stream.
    pub(super) fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S> Drop for LimitedStream<S> {
    fn drop(&mut self) {
        self.slot.release();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.slot.check()?;
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        if read.is_pending() {
            self.slot.on_pending(cx);
            if self.slot.position.get().is_none() && !self.slot.is_endless() {
                self.slot.acquire(Stage::Waiting);
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.slot.check()?;
        let written = Pin::new(&mut self.stream).poll_write(cx, from);
        if written.is_pending() {
            self.slot.on_pending(cx);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.slot.check()?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, from);
        if written.is_pending() {
            self.slot.on_pending(cx);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl ActixStream for LimitedStream<TcpStream> {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        ActixStream::poll_read_ready(&self.stream, cx)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        ActixStream::poll_write_ready(&self.stream, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// Returns a connection under this limit, and its client's end.
    fn connect(limit: &ConnectionLimit) -> (LimitedStream<DuplexStream>, DuplexStream) {
        connect_from(limit, [127, 0, 0, 1])
    }

    fn connect_from(limit: &ConnectionLimit, client: [u8; 4]) -> (LimitedStream<DuplexStream>, DuplexStream) {
        let (server, end) = duplex(1);
        (limit.accept(server, Some(client.into())), end)
    }

    /// Returns whether a connection still waits for its client.
    fn waits(connection: &mut LimitedStream<DuplexStream>) -> bool {
        let mut space = [0; 9];
        match std::pin::pin!(connection.read(&mut space)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => true,
            Poll::Ready(read) => {
                assert_eq!(read.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionAborted));
                false
            }
        }
    }

    #[test]
    fn h1_the_oldest_without_a_head_is_evicted_first() {
        let limit = ConnectionLimit::new(3);
        let (mut requested, _first) = connect(&limit);
        assert!(waits(&mut requested));
        requested.slot().on_head();
        let [mut older, mut newer, mut newest] = [(); 3].map(|()| connect(&limit));
        for (connection, _) in [&mut older, &mut newer] {
            assert!(waits(connection));
        }
        assert!(waits(&mut newest.0));
        assert_eq!([&mut older, &mut newer, &mut newest].map(|(one, _)| waits(one)), [false, true, true]);
        assert!(waits(&mut requested), "not evicted while others have sent no head");
        for (connection, _) in [&newer, &newest] {
            connection.slot().on_head();
        }
        let (mut last, _client) = connect(&limit);
        last.slot().on_head();
        assert!(!waits(&mut requested), "if all have sent their heads, the oldest is evicted");
        assert!(waits(&mut newer.0) && waits(&mut newest.0) && waits(&mut last));
    }

    #[test]
    fn h1_a_connection_of_the_client_with_most_is_evicted() {
        let limit = ConnectionLimit::new(4);
        let (mut kubelet, _client) = connect_from(&limit, [10, 0, 0, 1]);
        assert!(waits(&mut kubelet));
        let mut others: Vec<_> = (0..9).map(|_| connect_from(&limit, [10, 0, 0, 2])).collect();
        for (connection, _) in &mut others {
            assert!(waits(connection));
            connection.slot().on_head();
        }
        let is_open: Vec<bool> = others.iter_mut().map(|(connection, _)| waits(connection)).collect();
        assert_eq!(is_open, [[false; 6].as_slice(), &[true; 3]].concat());
        assert!(waits(&mut kubelet), "though it has sent no head");
        let mut last: Vec<_> = (3..5).map(|n| connect_from(&limit, [10, 0, 0, n])).collect();
        for (connection, _) in &mut last {
            assert!(waits(connection));
        }
        assert!(!others.iter_mut().take(8).any(|(connection, _)| waits(connection)));
        assert!(waits(&mut others[8].0) && waits(&mut kubelet));
        // All clients have one connection: the oldest that has sent no head is evicted.
        let (mut one_more, _client) = connect_from(&limit, [10, 0, 0, 9]);
        assert!(waits(&mut one_more) && !waits(&mut kubelet) && waits(&mut others[8].0));
    }

    #[test]
    fn h1_an_ended_connection_and_a_stream_need_no_slot() {
        let limit = ConnectionLimit::new(1);
        let (mut stream, _client) = connect(&limit);
        stream.slot().on_head();
        stream.slot().on_endless();
        for _ in 0..3 {
            let (mut other, _client) = connect(&limit);
            assert!(waits(&mut other));
        }
        assert!(waits(&mut stream));
        let slots = limit.0.borrow();
        assert!(slots.count == 0 && slots.clients.is_empty());
    }

    #[actix_web::test]
    async fn h1_an_evicted_connection_is_woken_while_it_reads_or_writes() {
        for writes in [false, true] {
            let limit = ConnectionLimit::new(1);
            let (mut connection, _client) = connect(&limit);
            connection.slot().on_head();
            let task = actix_web::rt::spawn(async move {
                if writes {
                    connection.write_all(b"more than fits").await
                } else {
                    connection.read_u8().await.map(drop)
                }
            });
            tokio::task::yield_now().await;
            assert!(!task.is_finished());
            let (other, _client) = connect(&limit);
            other.slot().on_head();
            let evicted = task.await.expect("the task ends");
            assert_eq!(evicted.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionAborted));
        }
    }
}
