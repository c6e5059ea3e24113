//! The places of one listener: a connection that finds all of them taken ends another one of the client that has the most:
//! its oldest that has not sent the head of its request, or else its oldest. Clients that send nothing, or read nothing,
//! keep no others out, such as the kubelet with its probes. Whether a connection is still in its TLS handshake does not
//! matter.

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

/// The places of a listener.
#[derive(Clone)]
pub(super) struct Places(Rc<RefCell<Taken>>);

struct Taken {
    room: usize,
    last: u64,
    count: usize,
    /// Those of each client that has any, in the order in which they end.
    clients: BTreeMap<Option<IpAddr>, BTreeMap<Key, Rc<Ending>>>,
}

/// Where a connection is among those of its client.
type Key = (Stage, u64);

/// How far a connection is that has a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// Its request has no complete head.
    Waiting,
    /// It is answered.
    Asked,
}

/// How a connection is told that it ends.
#[derive(Default)]
struct Ending {
    is_over: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

/// The place of one connection.
pub(super) struct Place {
    places: Places,
    client: Option<IpAddr>,
    /// `None`: it has taken none, or needs none.
    key: Cell<Option<Key>>,
    /// Whether its response has no end, and the number of such responses has a limit of its own.
    is_endless: Cell<bool>,
    ending: Rc<Ending>,
}

/// A connection with a place.
pub(super) struct Placed<S> {
    stream: S,
    place: Rc<Place>,
}

impl Places {
    /// Places for so many connections.
    pub(super) fn new(room: usize) -> Places {
        Places(Rc::new(RefCell::new(Taken { room, last: 0, count: 0, clients: BTreeMap::new() })))
    }

    /// Gives a connection of this client a place as soon as it waits for its client, or has its request: the many that the system has
    /// accepted together do not end each other before they were read.
    pub(super) fn seat<S>(&self, stream: S, client: Option<IpAddr>) -> Placed<S> {
        let place = Place {
            places: self.clone(),
            client,
            key: Cell::new(None),
            is_endless: Cell::new(false),
            ending: Rc::default(),
        };
        Placed { stream, place: Rc::new(place) }
    }
}

impl Taken {
    fn insert(&mut self, client: Option<IpAddr>, key: Key, ending: &Rc<Ending>) {
        self.clients.entry(client).or_default().insert(key, Rc::clone(ending));
        self.count += 1;
    }

    fn remove(&mut self, client: Option<IpAddr>, key: Key) {
        let Some(connections) = self.clients.get_mut(&client) else { return };
        if connections.remove(&key).is_some() {
            self.count -= 1;
        }
        if connections.is_empty() {
            self.clients.remove(&client);
        }
    }

    /// Takes the place of another connection where there is none.
    fn make_room(&mut self) -> Option<Rc<Ending>> {
        if self.count < self.room {
            return None;
        }
        // Of two that have as many, the one whose connection would end first.
        let most = |connections: &BTreeMap<Key, Rc<Ending>>| {
            (connections.len(), Reverse(connections.first_key_value().map(|(key, _)| *key)))
        };
        let (client, connections) = self.clients.iter().max_by_key(|(_, connections)| most(connections))?;
        let (client, (key, ending)) = (*client, connections.first_key_value()?);
        let (key, ending) = (*key, Rc::clone(ending));
        self.remove(client, key);
        Some(ending)
    }
}

impl Place {
    /// Notes that the head of the request has come.
    pub(super) fn on_head(&self) {
        self.take(Stage::Asked);
    }

    /// Notes that the response has no end: this connection needs no place any more, and no time limit.
    pub(super) fn on_endless(&self) {
        self.leave();
        self.is_endless.set(true);
    }

    /// Whether the response has no end.
    pub(super) fn is_endless(&self) -> bool {
        self.is_endless.get()
    }

    fn take(&self, stage: Stage) {
        let number = self.leave();
        let ended = {
            let mut taken = self.places.0.borrow_mut();
            let number = number.unwrap_or_else(|| {
                taken.last += 1;
                taken.last
            });
            let ended = taken.make_room();
            taken.insert(self.client, (stage, number), &self.ending);
            self.key.set(Some((stage, number)));
            ended
        };
        if let Some(ending) = ended {
            ending.is_over.set(true);
            if let Some(task) = ending.task.take() {
                task.wake();
            }
        }
    }

    /// Leaves the place, and gives its number.
    fn leave(&self) -> Option<u64> {
        let key = self.key.take()?;
        self.places.0.borrow_mut().remove(self.client, key);
        Some(key.1)
    }

    /// Fails where the place has gone to another connection.
    fn check(&self) -> io::Result<()> {
        if self.ending.is_over.get() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn on_pending(&self, cx: &Context<'_>) {
        self.ending.task.replace(Some(cx.waker().clone()));
    }
}

impl<S> Placed<S> {
    /// The place of this connection.
    pub(super) fn place(&self) -> Rc<Place> {
        Rc::clone(&self.place)
    }

    /// The connection itself.
    pub(super) fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S> Drop for Placed<S> {
    fn drop(&mut self) {
        self.place.leave();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Placed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.place.check()?;
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        if read.is_pending() {
            self.place.on_pending(cx);
            if self.place.key.get().is_none() && !self.place.is_endless() {
                self.place.take(Stage::Waiting);
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Placed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.place.check()?;
        let written = Pin::new(&mut self.stream).poll_write(cx, from);
        if written.is_pending() {
            self.place.on_pending(cx);
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
        self.place.check()?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, from);
        if written.is_pending() {
            self.place.on_pending(cx);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl ActixStream for Placed<TcpStream> {
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

    /// A connection to these places, and its client's end.
    fn connect(places: &Places) -> (Placed<DuplexStream>, DuplexStream) {
        connect_from(places, [127, 0, 0, 1])
    }

    fn connect_from(places: &Places, client: [u8; 4]) -> (Placed<DuplexStream>, DuplexStream) {
        let (server, end) = duplex(1);
        (places.seat(server, Some(client.into())), end)
    }

    /// Whether a connection goes on waiting for its client.
    fn waits(connection: &mut Placed<DuplexStream>) -> bool {
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
    fn h1_the_oldest_that_has_sent_no_head_ends_first() {
        let places = Places::new(3);
        let (mut asked, _first) = connect(&places);
        assert!(waits(&mut asked));
        asked.place().on_head();
        let [mut older, mut newer, mut newest] = [(); 3].map(|()| connect(&places));
        for (connection, _) in [&mut older, &mut newer] {
            assert!(waits(connection));
        }
        assert!(waits(&mut newest.0));
        assert_eq!([&mut older, &mut newer, &mut newest].map(|(one, _)| waits(one)), [false, true, true]);
        assert!(waits(&mut asked), "one that has sent its head does not end while others have sent none");
        for (connection, _) in [&newer, &newest] {
            connection.place().on_head();
        }
        let (mut last, _client) = connect(&places);
        last.place().on_head();
        assert!(!waits(&mut asked), "where all have sent their heads, the oldest ends");
        assert!(waits(&mut newer.0) && waits(&mut newest.0) && waits(&mut last));
    }

    #[test]
    fn h1_a_connection_of_the_client_with_most_ends() {
        let places = Places::new(4);
        let (mut kubelet, _client) = connect_from(&places, [10, 0, 0, 1]);
        assert!(waits(&mut kubelet));
        let mut others: Vec<_> = (0..9).map(|_| connect_from(&places, [10, 0, 0, 2])).collect();
        for (connection, _) in &mut others {
            assert!(waits(connection));
            connection.place().on_head();
        }
        let is_open: Vec<bool> = others.iter_mut().map(|(connection, _)| waits(connection)).collect();
        assert_eq!(is_open, [[false; 6].as_slice(), &[true; 3]].concat());
        assert!(waits(&mut kubelet), "though it has sent no head");
        let mut last: Vec<_> = (3..5).map(|n| connect_from(&places, [10, 0, 0, n])).collect();
        for (connection, _) in &mut last {
            assert!(waits(connection));
        }
        assert!(!others.iter_mut().take(8).any(|(connection, _)| waits(connection)));
        assert!(waits(&mut others[8].0) && waits(&mut kubelet));
        // Where all have as many, the oldest that has sent no head.
        let (mut one_more, _client) = connect_from(&places, [10, 0, 0, 9]);
        assert!(waits(&mut one_more) && !waits(&mut kubelet) && waits(&mut others[8].0));
    }

    #[test]
    fn h1_a_connection_that_has_ended_and_a_stream_need_no_place() {
        let places = Places::new(1);
        let (mut stream, _client) = connect(&places);
        stream.place().on_head();
        stream.place().on_endless();
        for _ in 0..3 {
            let (mut other, _client) = connect(&places);
            assert!(waits(&mut other));
        }
        assert!(waits(&mut stream));
        let taken = places.0.borrow();
        assert!(taken.count == 0 && taken.clients.is_empty());
    }

    #[actix_web::test]
    async fn h1_one_that_ends_is_woken_whether_it_reads_or_writes() {
        for writes in [false, true] {
            let places = Places::new(1);
            let (mut connection, _client) = connect(&places);
            connection.place().on_head();
            let task = actix_web::rt::spawn(async move {
                if writes {
                    connection.write_all(b"more than fits").await
                } else {
                    connection.read_u8().await.map(drop)
                }
            });
            tokio::task::yield_now().await;
            assert!(!task.is_finished());
            let (other, _client) = connect(&places);
            other.place().on_head();
            let ended = task.await.expect("the task ends");
            assert_eq!(ended.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionAborted));
        }
    }
}
