//! What the admin API can do, in the words of OpenAPI 3.1 (H3): kept by hand, and compared with real answers by a test.

use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, web};

use super::query::Query;

/// The document; `{{version}}` stands for the version of this program.
const DOCUMENT: &str = include_str!("openapi.json");

/// The document with its version.
pub(super) struct OpenApi(Bytes);

impl OpenApi {
    /// Puts the version in.
    pub(super) fn of_this_version() -> OpenApi {
        OpenApi(DOCUMENT.replace("{{version}}", env!("CARGO_PKG_VERSION")).into())
    }
}

/// The document.
pub(super) async fn openapi(request: HttpRequest, document: web::Data<OpenApi>) -> HttpResponse {
    if let Err(wrong) = Query::of(&request, &[]) {
        return wrong.into();
    }
    HttpResponse::Ok().content_type("application/json").body(document.0.clone())
}
