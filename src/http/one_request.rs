//! A connection from which one request is read (docs/design/surface.md, H1-H5). Its head and body go to the server;
//! bytes after them are discarded. Without this, the server would parse all bytes that have arrived, and keep each
//! request.

mod head_end;
mod response;

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_http::ServiceConfig;
use actix_http::h1::{Codec, Message, MessageType};
use actix_web::web::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_util::codec::Decoder as _;

use self::head_end::HeadEnd;
use self::response::ResponseStart;
use super::HEAD_TIMEOUT;
use super::body::BODY_TIMEOUT;
use super::connection_limit::ConnectionSlot;

/// Timeout of a client for reading a whole response, except event streams. The listener's `TCP_USER_TIMEOUT` restarts
/// whenever the client reads a byte.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of a head, in bytes: 32 KiB for the token (`auth`), and 8 KiB for everything else.
const MAX_HEAD: usize = 40 << 10;
/// The response to a larger head. The server's own limit takes three times the memory.
const TOO_LARGE: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// Maximum bytes per read.
const READ_SIZE: usize = 4 << 10;
/// Maximum bytes after a request that are read and discarded. A client that has sent a little too much still receives
/// the response, because closing a connection with unread bytes resets it.
const MAX_DISCARDED: usize = 16 << 10;

/// Maximum size of a request, in bytes: head and body, including the transfer encoding.
const MAX_REQUEST: usize = MAX_HEAD + MAX_DISCARDED;

/// A stream from which one request is read.
pub(super) struct OneRequest<S> {
    stream: S,
    reading: RequestProgress,
    /// Bytes that were read, and go to the server before more is read.
    unserved: BytesMut,
    /// Bytes of the request that have been read.
    read: usize,
    /// Deadline of the whole request.
    deadline: Pin<Box<Sleep>>,
    response: ResponseStart,
    /// Deadline of the whole response, once it has begun.
    response_deadline: Option<Pin<Box<Sleep>>>,
    slot: Rc<ConnectionSlot>,
}

/// Progress of reading the request.
enum RequestProgress {
    /// The request is incomplete.
    Request(Request),
    /// The request is complete, or cannot be parsed. Up to `remaining` more bytes are read and discarded.
    Behind { remaining: usize },
    /// Its head is too large. The rest of the response is sent, and up to `remaining` more bytes are read and
    /// discarded.
    TooLarge { unsent: &'static [u8], remaining: usize },
}

/// An incomplete request. The server's own parser finds its end.
struct Request {
    parser: Box<Codec>,
    unparsed: BytesMut,
    /// Finds the end of the head; `None` once the head is complete. Before that, nothing is parsed or goes to the
    /// server, because each piece would make both parse the head again from its first byte.
    head: Option<HeadEnd>,
}

/// The reason why discarding ended.
enum Discarded {
    /// The client has closed its side.
    Ended,
    /// The limit is reached.
    All,
}

impl<S> OneRequest<S> {
    /// Creates a stream from which one request is read; the connection has this slot.
    pub(super) fn of(stream: S, slot: Rc<ConnectionSlot>, config: &ServiceConfig) -> OneRequest<S> {
        let parser = Box::new(Codec::new(config.clone()));
        let reading = RequestProgress::Request(Request {
            parser,
            unparsed: BytesMut::new(),
            head: Some(HeadEnd::default()),
        });
        let deadline = Box::pin(sleep(HEAD_TIMEOUT + BODY_TIMEOUT));
        OneRequest {
            stream,
            reading,
            unserved: BytesMut::new(),
            read: 0,
            deadline,
            response: ResponseStart::default(),
            response_deadline: None,
            slot,
        }
    }

    /// Returns the slot of this connection.
    pub(super) fn slot(&self) -> &Rc<ConnectionSlot> {
        &self.slot
    }

    /// Fails after the deadline of the response.
    fn check_deadline(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.slot.is_endless() {
            return Ok(());
        }
        let response_deadline =
            self.response_deadline.get_or_insert_with(|| Box::pin(sleep(RESPONSE_TIMEOUT)));
        if response_deadline.as_mut().poll(cx).is_ready() {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(())
        }
    }
}

/// Result of parsing the bytes that were read.
#[derive(PartialEq, Eq, Debug)]
enum ParseResult {
    /// The request needs more bytes.
    More,
    /// The request ends, and `behind` bytes follow it. An invalid request ends with 0: the server answers it.
    End { behind: usize },
}

impl Request {
    /// Takes the bytes that were read last (none if the client has closed its side), and adds to `unserved` those for
    /// the server. Returns the next progress if the request is complete.
    fn take(&mut self, read: &[u8], unserved: &mut BytesMut) -> Option<RequestProgress> {
        self.unparsed.extend_from_slice(read);
        if read.is_empty() {
            if self.head.is_some() {
                // The server responds to the incomplete head with an error.
                unserved.extend_from_slice(&self.unparsed);
            }
            return Some(RequestProgress::Behind { remaining: MAX_DISCARDED });
        }
        match &mut self.head {
            None => unserved.extend_from_slice(read),
            Some(end) => {
                let before = self.unparsed.len() - read.len();
                let found = end.search(read);
                if before + found.unwrap_or(read.len()) > MAX_HEAD {
                    return Some(RequestProgress::TooLarge { unsent: TOO_LARGE, remaining: MAX_DISCARDED });
                }
                found?;
                self.head = None;
                unserved.extend_from_slice(&self.unparsed);
            }
        }
        match parse(&mut self.parser, &mut self.unparsed) {
            ParseResult::More => None,
            ParseResult::End { behind } => {
                // The end is within the bytes that go to the server now.
                unserved.truncate(unserved.len() - behind);
                Some(RequestProgress::Behind { remaining: MAX_DISCARDED.saturating_sub(behind) })
            }
        }
    }
}

fn parse(parser: &mut Codec, unparsed: &mut BytesMut) -> ParseResult {
    loop {
        match parser.decode(unparsed) {
            // A payload without an end, as after CONNECT, is not part of the request.
            Ok(Some(Message::Item(_))) if parser.message_type() != MessageType::Payload => break,
            Ok(Some(Message::Chunk(None))) => break,
            Ok(Some(Message::Item(_) | Message::Chunk(Some(_)))) => {}
            Ok(None) => return ParseResult::More,
            Err(_) => return ParseResult::End { behind: 0 },
        }
    }
    ParseResult::End { behind: unparsed.len() }
}

/// Reads and discards up to `remaining` bytes. Ready when they are read, or when the client has closed its side.
fn poll_discard<S: AsyncRead + Unpin>(
    stream: &mut S,
    remaining: &mut usize,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Discarded>> {
    while *remaining > 0 {
        let mut space = [MaybeUninit::uninit(); READ_SIZE];
        let mut read = ReadBuf::uninit(&mut space[..READ_SIZE.min(*remaining)]);
        ready!(Pin::new(&mut *stream).poll_read(cx, &mut read))?;
        match read.filled().len() {
            0 => return Poll::Ready(Ok(Discarded::Ended)),
            count => *remaining -= count,
        }
    }
    Poll::Ready(Ok(Discarded::All))
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for OneRequest<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let OneRequest { stream, reading, unserved, read: count, deadline, response, slot, .. } =
            self.get_mut();
        loop {
            if !unserved.is_empty() {
                into.put_slice(&unserved.split_to(into.remaining().min(unserved.len())));
                return Poll::Ready(Ok(()));
            }
            match reading {
                RequestProgress::Request(request) => {
                    if deadline.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                    let mut space = [MaybeUninit::uninit(); READ_SIZE];
                    let mut read = ReadBuf::uninit(&mut space);
                    ready!(Pin::new(&mut *stream).poll_read(cx, &mut read))?;
                    *count += read.filled().len();
                    if *count > MAX_REQUEST {
                        return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                    }
                    let next = request.take(read.filled(), unserved);
                    if request.head.is_none() {
                        slot.on_head();
                    }
                    if let Some(next) = next {
                        *reading = next;
                    }
                }
                // Reading shows whether the client has closed the connection.
                RequestProgress::Behind { remaining } => {
                    return match ready!(poll_discard(stream, remaining, cx))? {
                        Discarded::Ended => Poll::Ready(Ok(())),
                        // Nothing more is read: only writing shows that the client has closed the connection.
                        Discarded::All => Poll::Pending,
                    };
                }
                RequestProgress::TooLarge { unsent, remaining } => {
                    while !unsent.is_empty() {
                        let sent = ready!(response.poll_write(stream, cx, unsent))?;
                        if sent == 0 {
                            break;
                        }
                        *unsent = &unsent[sent..];
                    }
                    ready!(response.poll_flush(stream, cx))?;
                    ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
                    ready!(poll_discard(stream, remaining, cx))?;
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for OneRequest<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.check_deadline(cx)?;
        let OneRequest { stream, response, .. } = self.get_mut();
        response.poll_write(stream, cx, from)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let OneRequest { stream, response, .. } = self.get_mut();
        ready!(response.poll_flush(stream, cx))?;
        Pin::new(stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let OneRequest { stream, response, .. } = self.get_mut();
        ready!(response.poll_flush(stream, cx))?;
        Pin::new(stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::super::connection_limit::ConnectionLimit;
    use super::*;

    const HEADERS: &str = "x-content-type-options: nosniff\r\ncache-control: no-store\r\n";

    fn one_request<S>(stream: S) -> OneRequest<S> {
        OneRequest::of(stream, ConnectionLimit::new(1).accept((), None).slot(), &ServiceConfig::default())
    }

    /// Returns what the server reads of `sent` if the client sends it in pieces of this size and then closes its side.
    async fn read_of(sent: &[u8], piece: usize) -> Vec<u8> {
        let (mut client, server) = duplex(piece);
        let mut read = Vec::new();
        let mut server = one_request(server);
        let send = async {
            // If the client sends too much, the rest is not read, and the write fails.
            drop(client.write_all(sent).await);
            drop(client);
        };
        let (_, end) = tokio::join!(send, server.read_to_end(&mut read));
        end.expect("a request");
        read
    }

    #[actix_web::test]
    async fn h1_one_request_is_read_with_its_body_and_nothing_behind() {
        for request in [
            "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n",
        ] {
            for behind in ["", "\r\n", "GET / HTTP/1.1\r\nhost: b\r\n\r\n", "no request"] {
                for piece in [1, 7, 64, READ_SIZE] {
                    let sent = format!("{request}{behind}");
                    let read = read_of(sent.as_bytes(), piece).await;
                    assert_eq!(String::from_utf8_lossy(&read), request, "{behind:?} in pieces of {piece}");
                }
            }
        }
    }

    #[actix_web::test]
    async fn h1_a_head_sent_byte_by_byte_reaches_the_server_whole() {
        let (mut client, server) = duplex(1);
        let mut server = one_request(server);
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(9_000));
        let mut space = [0; 64 << 10];
        for byte in &head.as_bytes()[..head.len() - 1] {
            client.write_all(&[*byte]).await.expect("it is read");
            let mut read = std::pin::pin!(server.read(&mut space));
            assert!(futures::poll!(read.as_mut()).is_pending());
        }
        client.write_all(b"\n").await.expect("it is read");
        assert_eq!(server.read(&mut space).await.expect("a request"), head.len());
    }

    #[actix_web::test]
    async fn h1_a_head_is_too_large_wherever_it_is_cut() {
        let head = |length: usize| format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(length - 23));
        let of_length = |length| {
            let head = head(length);
            assert_eq!(head.len(), length);
            head
        };
        for piece in [1_000, 4_095, 100_000] {
            let longest = of_length(MAX_HEAD);
            assert_eq!(read_of(longest.as_bytes(), piece).await.len(), MAX_HEAD);
            let (mut client, server) = duplex(100_000);
            client.write_all(of_length(MAX_HEAD + 1).as_bytes()).await.expect("there is room");
            let mut server = one_request(server);
            let mut space = [0; 9];
            let (read, answer) = tokio::join!(server.read(&mut space), async move {
                let mut answer = String::new();
                client.read_to_string(&mut answer).await.map(|_| answer)
            });
            assert!(read.is_err());
            let (status, rest) = TOO_LARGE.split_at("HTTP/1.1 431 Request Header Fields Too Large\r\n".len());
            assert_eq!(answer.expect("an answer").into_bytes(), [status, HEADERS.as_bytes(), rest].concat());
        }
    }

    #[actix_web::test]
    async fn h3_every_response_has_the_headers_from_any_handler() {
        let go_on = "HTTP/1.1 100 Continue\r\n\r\n";
        let body = "HTTP/1.1 200 OK\r\n".repeat(3_000);
        for (interim, status, rest) in [
            ("", "HTTP/1.1 408 Request Timeout\r\n", "content-length: 0\r\n\r\n"),
            ("", "HTTP/1.0 200 OK\r\n", &*format!("content-length: {}\r\n\r\n{body}", body.len())),
            (go_on, "HTTP/1.1 400 Bad Request\r\n", "\r\n"),
        ] {
            for (piece, space) in [(1, 1), (7, 64), (100_000, 3), (100_000, 100_000)] {
                let (mut client, server) = duplex(space);
                let mut server = one_request(server);
                let written = format!("{interim}{status}{rest}");
                let write = async move {
                    for piece in written.as_bytes().chunks(piece) {
                        server.write_all(piece).await.expect("the client reads");
                        server.flush().await.expect("the client reads");
                    }
                    server.shutdown().await.expect("the client reads");
                };
                let mut read = String::new();
                let (_, end) = tokio::join!(write, client.read_to_string(&mut read));
                end.expect("text");
                assert!(
                    read == format!("{interim}{status}{HEADERS}{rest}"),
                    "{status} {piece} {space}: {read:.200}"
                );
            }
        }
    }

    #[actix_web::test]
    async fn h1_an_invalid_request_is_passed_to_the_server() {
        for sent in ["\u{16}\u{3}\u{1}hello", "hello", "GET / HTTP/1.1\r\nhost: a\r\n", "a b c d\r\n\r\n", ""]
        {
            for piece in [1, 64] {
                let read = read_of(sent.as_bytes(), piece).await;
                assert!(sent.as_bytes().starts_with(&read), "{sent:?}");
                assert_eq!(read.is_empty(), sent.is_empty(), "{sent:?}");
            }
        }
    }

    #[actix_web::test]
    async fn h1_no_more_than_16_kib_is_read_behind_a_request() {
        let (mut client, server) = duplex(1 << 20);
        client.write_all(&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(10_000)).await.expect("there is room");
        let mut server = one_request(server);
        let mut space = [0; READ_SIZE];
        assert_eq!(server.read(&mut space).await.expect("a request"), 27);
        let mut read = std::pin::pin!(server.read(&mut space));
        assert!(futures::poll!(read.as_mut()).is_pending());
        // The rest are the bytes that were sent and that the server has not read.
        let mut rest = Vec::new();
        drop(client);
        server.stream.read_to_end(&mut rest).await.expect("the rest");
        assert!(rest.len() >= 27 * 10_000 - MAX_DISCARDED - READ_SIZE, "{}", rest.len());
    }

    #[actix_web::test]
    async fn h1_conflicting_lengths_are_passed_to_the_server() {
        let sent = b"POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
        let read = read_of(sent, READ_SIZE).await;
        assert!(sent.starts_with(&read) && !read.is_empty());
    }
}
