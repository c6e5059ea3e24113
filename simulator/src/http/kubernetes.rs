//! HTTP server of the simulated API server: plain answers, and watches that stream changes.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use futures::Stream;
use simulator_models::kube::{Reply, Request, WatchId};
use tokio::sync::watch;

use super::{cut, headers, path_and_query};
use crate::cluster::Cluster;
use crate::owner::Owner;

/// Answers one request, or opens a watch.
pub(super) async fn answer(
    request: HttpRequest,
    body: web::Bytes,
    cluster: web::Data<Owner<Cluster>>,
) -> HttpResponse {
    let model_request = Request {
        method: request.method().as_str().to_owned(),
        path_and_query: path_and_query(&request),
        headers: headers(&request),
        body: body.to_vec(),
    };
    // Subscribed before the request, so that no change of the revision is missed.
    let revision = cluster.revision();
    let owner = cluster.get_ref().clone();
    let (reply, arrived_us, ahead_s) = owner
        .ask(move |cluster, now_us| (cluster.handle(&model_request, now_us), now_us, cluster.ahead_s))
        .await;
    let clock = owner.clock().ahead(ahead_s);
    match reply {
        Reply::Answer { status, headers, body, after_us } => {
            if after_us > 0 {
                tokio::time::sleep_until(owner.clock().instant(arrived_us.saturating_add(after_us))).await;
            }
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut answer = HttpResponse::build(status);
            answer.insert_header(("Date", clock.http_date(clock.now_us())));
            for (name, value) in headers {
                answer.append_header((name, value));
            }
            answer.body(body)
        }
        Reply::Watch(id, lines) => {
            let open = Watching { owner, id, revision, first: Some(lines) };
            HttpResponse::Ok().content_type("application/json").streaming(lines_of(open))
        }
        Reply::Refused => cut(&request),
    }
}

/// An open watch; it is closed in the model when its client disconnects.
struct Watching {
    owner: Owner<Cluster>,
    id: WatchId,
    revision: watch::Receiver<u64>,
    first: Option<Vec<Arc<[u8]>>>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let id = self.id;
        self.owner.send(move |cluster, _| cluster.model.close_watch(id));
    }
}

/// Returns a stream of the lines of a watch, in chunks.
fn lines_of(watching: Watching) -> impl Stream<Item = Result<web::Bytes, std::io::Error>> {
    futures::stream::unfold(watching, |mut watching| async {
        let chunk = watching.next().await?;
        Some((Ok(chunk), watching))
    })
}

impl Watching {
    /// Returns the next lines; `None` after the end of the watch.
    async fn next(&mut self) -> Option<web::Bytes> {
        if let Some(chunk) = self.first.take().and_then(|lines| joined(&lines)) {
            return Some(chunk);
        }
        loop {
            self.revision.borrow_and_update();
            let id = self.id;
            let (lines, ended, deadline) = self
                .owner
                .ask(move |cluster, now_us| {
                    let model = &mut cluster.model;
                    let lines = model.poll_watch(id, now_us);
                    (lines, model.watch_ended(id), model.watch_deadline(id, now_us))
                })
                .await;
            if let Some(chunk) = joined(&lines) {
                return Some(chunk);
            }
            if ended {
                return None;
            }
            let due = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(self.owner.clock().instant(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                moved = self.revision.changed() => moved.ok()?,
                () = due => {}
            }
        }
    }
}

fn joined(lines: &[Arc<[u8]>]) -> Option<web::Bytes> {
    match lines {
        [] => None,
        [line] => Some(web::Bytes::copy_from_slice(line)),
        several => Some(several.concat().into()),
    }
}
