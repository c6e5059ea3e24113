//! The page at `/` (H3): one document with its style and its script. The script reads the admin API as any other
//! client. The page is assembled at startup. Its Content-Security-Policy permits this style and this script, and
//! nothing else.

use actix_web::http::header::{CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, web};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::query::Query;

/// The document, with the placeholders `{{style}}`, `{{script}}` and `{{version}}`.
const DOCUMENT: &str = include_str!("web/page.html");
/// The style of the page.
const STYLE: &str = include_str!("web/page.css");
/// The script of the page. The order of the files matters.
const SCRIPT: &str = concat!(
    include_str!("web/api.js"),
    include_str!("web/tree.js"),
    include_str!("web/requests.js"),
    include_str!("web/top.js"),
    include_str!("web/lists.js"),
    include_str!("web/one.js"),
    include_str!("web/page.js"),
);

/// The header that prevents pages of other sites from loading this page as a resource.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// The header that isolates this page from windows of other sites.
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// The assembled page and its Content-Security-Policy.
#[derive(Clone)]
pub(super) struct WebPage {
    body: Bytes,
    policy: String,
}

impl WebPage {
    /// Assembles the page.
    pub(super) fn assembled() -> WebPage {
        let body = DOCUMENT
            .replace("{{version}}", env!("CARGO_PKG_VERSION"))
            .replace("{{style}}", STYLE)
            .replace("{{script}}", SCRIPT);
        let policy = format!(
            "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; base-uri 'none'; form-action \
             'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
            hash(STYLE),
            hash(SCRIPT)
        );
        WebPage { body: body.into(), policy }
    }
}

/// Returns the hash of a text, as a source of a Content-Security-Policy.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

/// Responds with the page.
pub(super) async fn web_page(request: HttpRequest, page: web::Data<WebPage>) -> HttpResponse {
    if let Err(wrong) = Query::of(&request, &[]) {
        return wrong.into();
    }
    HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .insert_header((CONTENT_SECURITY_POLICY, page.policy.as_str()))
        .insert_header((REFERRER_POLICY, "no-referrer"))
        .insert_header((RESOURCE_POLICY, "same-origin"))
        .insert_header((OPENER_POLICY, "same-origin"))
        .body(page.body.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h3_nothing_in_the_style_or_the_script_ends_its_element_early() {
        for (text, end) in [(STYLE, "</style"), (SCRIPT, "</script"), (SCRIPT, "<!--")] {
            assert!(!text.to_lowercase().contains(end), "{end}");
        }
        for text in [STYLE, SCRIPT] {
            assert!(!text.contains("{{"), "what is put in has no place for anything else");
        }
    }

    #[test]
    fn h3_the_hash_is_that_of_the_policys_definition() {
        // The example of the specification, Content Security Policy Level 3, 8.3.
        let told = "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='";
        assert_eq!(hash("alert('Hello, world.');"), told);
    }
}
