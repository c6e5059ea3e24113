//! Limits the memory of large responses to clients that read slowly or not at all. A large response is sent in pieces,
//! so that its connection copies one piece and not the whole body. The number of large responses that wait for their
//! clients is limited. `/metrics` is exempt, because monitoring must be able to read it: its requests share renderings
//! instead, even if they come one after another.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use actix_web::{Error, HttpResponse};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::problem::problem_until;

/// Maximum size of the body of a response that is not large, in bytes.
const LARGE: usize = 64 << 10;
/// Maximum number of large responses of one listener that wait for their clients at the same time.
pub(super) const MAX_LARGE: usize = 16;
/// `Retry-After` of a refused response, in seconds.
const ROOM_AFTER: u64 = 5;
/// Size of the pieces in which a large body is passed to its connection, in bytes.
const PIECE: usize = 16 << 10;
/// Time for which a rendering of the metrics is new and answers all requests: the period of the snapshot.
const NEW_FOR: Duration = Duration::from_millis(250);
/// Time for which a rendering that is being sent answers other requests too.
const SHARED_FOR: Duration = Duration::from_secs(1);
/// Maximum number of renderings that are sent at the same time. Once it is reached, requests share the newest.
const MAX_RENDERINGS: usize = 4;

/// A body that is sent in pieces. It keeps a value, such as a permit, until it is dropped.
pub(super) struct InPieces<K> {
    left: Bytes,
    _kept: K,
}

impl<K> InPieces<K> {
    fn new(left: Bytes, kept: K) -> InPieces<K> {
        InPieces { left, _kept: kept }
    }
}

impl<K: Unpin> MessageBody for InPieces<K> {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.left.len() as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let length = self.left.len().min(PIECE);
        Poll::Ready((length > 0).then(|| Ok(self.left.split_to(length))))
    }
}

/// Passes a request on. Sends a large response in pieces, or responds 503 if too many large responses wait.
pub(super) async fn limit(
    room: Arc<Semaphore>,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let response = next.call(request).await?;
    if !matches!(response.response().body().size(), BodySize::Sized(size) if size > LARGE as u64) {
        return Ok(response);
    }
    let (request, response) = response.into_parts();
    let (response, body) = response.into_parts();
    let response = match (body.try_into_bytes(), room.try_acquire_owned()) {
        (Ok(bytes), Ok(permit)) => response.set_body(BoxBody::new(InPieces::new(bytes, permit))),
        (Ok(_), Err(_)) => too_many(),
        // The body has a limit of its own, as that of the metrics has.
        (Err(body), _) => response.set_body(body),
    };
    Ok(ServiceResponse::new(request, response))
}

fn too_many() -> HttpResponse {
    let detail = format!(
        "{MAX_LARGE} large responses wait for their clients to read them; try again, or request fewer entries with \
         limit"
    );
    problem_until(StatusCode::SERVICE_UNAVAILABLE, "too many large responses", &detail, ROOM_AFTER)
}

/// The renderings of the metrics that are being sent, and the newest.
#[derive(Default)]
pub(super) struct Renderings(RefCell<Vec<Rc<Rendering>>>);

/// The metrics, as rendered at one moment.
struct Rendering {
    text: Bytes,
    at: Instant,
}

impl Renderings {
    /// Returns the metrics as a body: a new rendering, or a recent one that is shared.
    pub(super) fn body(&self, now: Instant, render: impl FnOnce() -> String) -> BoxBody {
        let rendering = self.rendering(now, render);
        BoxBody::new(InPieces::new(rendering.text.clone(), rendering))
    }

    fn rendering(&self, now: Instant, render: impl FnOnce() -> String) -> Rc<Rendering> {
        let mut kept = self.0.borrow_mut();
        let is_sent = |rendering: &Rc<Rendering>| Rc::strong_count(rendering) > 1;
        let is_full = kept.iter().filter(|rendering| is_sent(rendering)).count() >= MAX_RENDERINGS;
        if let Some(newest) = kept.last() {
            let shared_for = if is_sent(newest) { SHARED_FOR } else { NEW_FOR };
            if is_full || now.duration_since(newest.at) < shared_for {
                return Rc::clone(newest);
            }
        }
        kept.retain(is_sent);
        let rendering = Rc::new(Rendering { text: render().into(), at: now });
        kept.push(Rc::clone(&rendering));
        rendering
    }
}

#[cfg(test)]
mod tests {
    use actix_web::{App, test, web};

    use super::*;

    #[actix_web::test]
    async fn h1_large_responses_that_wait_for_clients_are_limited() {
        let room = Arc::new(Semaphore::new(2));
        let answer = |size: usize| web::to(move || async move { HttpResponse::Ok().body("x".repeat(size)) });
        let limited = {
            let room = Arc::clone(&room);
            actix_web::middleware::from_fn::<_, ()>(move |request: ServiceRequest, next: Next<BoxBody>| {
                limit(Arc::clone(&room), request, next)
            })
        };
        let app = App::new()
            .route("/small", answer(LARGE))
            .route("/large", answer(3 * LARGE + 1))
            .wrap::<_, BoxBody>(limited);
        let app = test::init_service(app).await;
        let ask = async |path: &str| {
            test::call_service(&app, test::TestRequest::get().uri(path).to_request()).await
        };
        let (first, second) = (ask("/large").await, ask("/large").await);
        let refused = ask("/large").await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers().get("retry-after").expect("a header"), "5");
        let detail = String::from_utf8(test::read_body(refused).await.to_vec()).expect("text");
        assert!(detail.contains("too many large responses"), "{detail}");
        assert_eq!(test::read_body(ask("/small").await).await.len(), LARGE);
        assert_eq!(test::read_body(first).await, "x".repeat(3 * LARGE + 1));
        assert_eq!(test::read_body(ask("/large").await).await.len(), 3 * LARGE + 1);
        drop(second);
        assert_eq!(room.available_permits(), 2);
    }

    #[tokio::test]
    async fn h1_renderings_are_shared_while_new_or_being_sent() {
        let (renderings, now) = (Renderings::default(), Instant::now());
        let count = std::cell::Cell::new(0);
        let ask = |millis: u64| {
            renderings.rendering(now + Duration::from_millis(millis), || {
                count.set(count.get() + 1);
                count.get().to_string()
            })
        };
        // Requests one after another render once per period.
        for (millis, text) in [(0, "1"), (0, "1"), (249, "1"), (250, "2"), (400, "2"), (499, "2"), (500, "3")]
        {
            assert_eq!(ask(millis).text, text, "{millis} ms");
        }
        for _ in 0..1_000 {
            assert_eq!(ask(600).text, "3");
        }
        assert_eq!(count.get(), 3);
        // A rendering that is being sent is shared for longer.
        let sent: Vec<_> = [1_000, 1_300, 1_999, 2_000, 3_000, 4_000, 9_000, 99_000].map(ask).into();
        assert_eq!(
            sent.iter().map(|one| &*one.text).collect::<Vec<_>>(),
            [b"4", b"4", b"4", b"5", b"6", b"7", b"7", b"7"]
        );
        drop(sent);
        assert_eq!(ask(99_000).text, "8");
    }
}
