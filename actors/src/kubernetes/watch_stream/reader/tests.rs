//! A stream whose watcher is slow, on tokio's paused clock.

use futures::SinkExt;
use futures::channel::mpsc;
use model::ids::CallId;
use model::object::{Object, ResourceVersion};
use sources::watch::{Line, WatchRequest};

use super::*;
use crate::address_book::End;
use crate::shell::tests::address_book_of_sinks;

/// Time that the watcher and the writer need for each message.
const SLOW: Duration = Duration::from_secs(3);

fn line(name: &str, version: usize) -> Result<String, LinesCodecError> {
    let labels = format!(r#"{{"kubernetes.io/service-name":"{name}"}}"#);
    let meta = format!(
        r#"{{"namespace":"shop","name":"{name}-1","uid":"{name}","resourceVersion":"{version}","labels":{labels}}}"#
    );
    Ok(format!(r#"{{"type":"MODIFIED","object":{{"addressType":"IPv4","metadata":{meta},"endpoints":[]}}}}"#))
}

#[actix::test]
async fn a_stream_is_read_while_its_watcher_is_busy() {
    tokio::time::pause();
    let (clock, kind) = (Clock::of_runtime(), Kind::EndpointSlices);
    let (address_book, mut receiver) = address_book_of_sinks(SLOW);
    let recipient = address_book.recipient(End::Watcher(kind)).clone();
    let watcher = WatcherRoute { kind, recipient, writer: address_book.writer.clone() };
    let request = WatchRequest::Watch { from: ResourceVersion("1".into()) };
    let reader = Reader::new(clock, &WatchCall { call: CallId(7), kind, request }, &watcher);
    let (mut server, lines) = mpsc::channel(0);
    let reading = tokio::spawn(async move { reader.read_all(lines, Timestamp::now).await });

    let began = clock.now();
    for version in 2..1_002 {
        server.send(line(["web", "api"][version % 2], version)).await.expect("it is read");
    }
    assert!(clock.now().since(began) < SLOW, "there is no answer yet");
    drop(server);
    assert_eq!(reading.await.expect("it ends"), None);

    let (mut delivered, mut unread) = (Vec::new(), Vec::new());
    while let Ok(delivery) = receiver.try_recv() {
        if let Delivery::Watcher(_, In::Line { line: Line::Object(Object::Slice(slice)), read, .. }) =
            &delivery
        {
            assert!(read.since(began) < SLOW, "read on arrival");
            delivered.push((slice.key.name.to_string(), slice.resource_version.0.to_string()));
        } else if let Delivery::Writer(writer::In::Unread(pool, _)) = &delivery {
            unread.push(pool.as_str().to_owned());
        } else {
            panic!("{delivery:?}");
        }
    }
    let newest =
        [("web-1", "1000"), ("api-1", "1001")].map(|(name, version)| (name.to_owned(), version.to_owned()));
    assert!(delivered.ends_with(&newest), "{delivered:?}");
    assert!(delivered.len() <= 6, "superseded lines are not delivered: {delivered:?}");
    assert!(unread.iter().any(|pool| pool == "shop-web") && unread.len() <= 6, "{unread:?}");
}

#[actix::test]
async fn all_lines_are_delivered_before_a_stream_ends() {
    tokio::time::pause();
    let kind = Kind::EndpointSlices;
    let (address_book, mut receiver) = address_book_of_sinks(SLOW);
    let recipient = address_book.recipient(End::Watcher(kind)).clone();
    let watcher = WatcherRoute { kind, recipient, writer: address_book.writer.clone() };
    let request = WatchRequest::Watch { from: ResourceVersion("1".into()) };
    let reader = Reader::new(Clock::of_runtime(), &WatchCall { call: CallId(7), kind, request }, &watcher);
    let cut = Err(LinesCodecError::MaxLineLengthExceeded);
    let lines = (0..600).map(|n| line(&format!("svc-{n}"), n)).chain([cut, line("late", 9_999)]);
    let failure = reader.read_all(futures::stream::iter(lines), Timestamp::now).await;
    assert!(matches!(failure, Some(WatchFailure::Other(_))), "{failure:?}");
    let mut delivered = 0;
    while let Ok(delivery) = receiver.try_recv() {
        delivered += usize::from(matches!(delivery, Delivery::Watcher(..)));
    }
    assert_eq!(delivered, 600);
}

#[actix::test]
async fn e2_the_age_of_unhandled_lines_is_reported() {
    tokio::time::pause();
    let own = recorder::tests::own();
    let _guard = metrics::set_default_local_recorder(&own);
    let reported_lag = || {
        let start = "backend_pool_controller_processing_lag_seconds{kind=\"endpointslices\"} ";
        own.handle().render().lines().find_map(|line| line.strip_prefix(start)?.parse::<f64>().ok())
    };
    let kind = Kind::EndpointSlices;
    let (address_book, _receiver) = address_book_of_sinks(SLOW);
    let recipient = address_book.recipient(End::Watcher(kind)).clone();
    let watcher = WatcherRoute { kind, recipient, writer: address_book.writer.clone() };
    let request = WatchRequest::Watch { from: ResourceVersion("1".into()) };
    let reader = Reader::new(Clock::of_runtime(), &WatchCall { call: CallId(7), kind, request }, &watcher);
    let (mut server, lines) = mpsc::channel(0);
    let reading = tokio::spawn(async move { reader.read_all(lines, Timestamp::now).await });
    server.send(line("web", 2)).await.expect("it is read");
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert!(reported_lag().is_some_and(|lag| (1.0..=2.5).contains(&lag)), "{:?}", reported_lag());
    tokio::time::sleep(2 * SLOW).await;
    assert!(reported_lag().is_some_and(|lag| lag < 0.001), "{:?}", reported_lag());
    drop(server);
    assert_eq!(reading.await.expect("it ends"), None);
}
