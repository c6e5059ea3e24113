//! The OpenAPI 3.1 document of the admin API (H3). utoipa derives the schemas from the types of the answers. The
//! submodules list the paths, parameters and responses in tables. Tests compare the document with real answers.

mod bodies;
mod parameters;
mod paths;
mod responses;
mod schemas;

use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::Value;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Components, InfoBuilder, LicenseBuilder, OpenApiBuilder, SecurityRequirement, ServerBuilder,
};

use super::query::Query;
use schemas::Schemas;

/// Summary of the API.
const SUMMARY: &str = "The state of the controller, and requests of operators.";
/// Description of the API: what applies to all paths.
const DESCRIPTION: &str = "docs/admin-api.md of the sources explains each state. Paths that support GET support HEAD \
                           too. Errors are problem documents: 405 with `Allow` for a method that the path does not \
                           support, 404 for an unknown path, and, where requests are authorized, 414 for a path of \
                           more than 1024 bytes or a method of more than 16. On loopback, GET and HEAD need no token. \
                           With TLS, and for each POST, the API server authorizes a bearer token.";
/// Description of the bearer token.
const BEARER: &str = "A Kubernetes bearer token, as of `kubectl create token`; its user needs permission for the \
                      non-resource URL `/azure-backend-pool-controller` and the path.";

/// The document as text.
pub(super) struct OpenApi(Bytes);

impl OpenApi {
    /// Renders the document of this version.
    pub(super) fn of_this_version() -> OpenApi {
        OpenApi(openapi_document().to_string().into())
    }
}

/// Responds with the document.
pub(super) async fn openapi(request: HttpRequest, document: web::Data<OpenApi>) -> HttpResponse {
    if let Err(wrong) = Query::of(&request, &[]) {
        return wrong.into();
    }
    HttpResponse::Ok().content_type("application/json").body(document.0.clone())
}

/// Returns the OpenAPI document of the admin API of this version.
#[must_use]
pub fn openapi_document() -> Value {
    let mut schemas = Schemas::default();
    let paths = paths::paths(&mut schemas);
    let license = LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build();
    let info = InfoBuilder::new()
        .title("The admin API of azure-backend-pool-controller")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .license(Some(license));
    let tag =
        |name: &str, description: &str| TagBuilder::new().name(name).description(Some(description)).build();
    let server = ServerBuilder::new().url("/").description(Some("Where this document was read."));
    let mut components = Components::new();
    components.parameters = parameters::parameters(&mut schemas).into_iter().collect();
    components.responses = responses::responses(&mut schemas).into_iter().collect();
    let mut bearer = Http::new(HttpAuthScheme::Bearer);
    bearer.description = Some(BEARER.to_owned());
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    let document = OpenApiBuilder::new()
        .info(info.build())
        .servers(Some([server.build()]))
        .security(Some([SecurityRequirement::new::<_, [&str; 0], _>("bearer", [])]))
        .tags(Some([
            tag(paths::READING, "Reads one published snapshot, and changes nothing."),
            tag(paths::REQUESTS, "Requests of operators."),
        ]))
        .paths(paths)
        .components(Some(components));
    let mut document = serde_json::to_value(document.build()).expect("a document is JSON");
    document["info"]["summary"] = SUMMARY.into();
    document["components"]["schemas"] = schemas.finished(bodies::bodies());
    document
}
