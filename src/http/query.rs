//! Query parameters. A parameter that the path does not have, or that is given twice, is an error.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};

use super::problem::problem;

/// Maximum entries of one page.
pub(super) const MAX_PAGE_SIZE: usize = 1_000;
/// Entries of one page by default.
pub(super) const DEFAULT_PAGE_SIZE: usize = 200;

/// The parameters of a request.
#[derive(Debug)]
pub(super) struct Query(BTreeMap<String, String>);

/// Description of what is wrong with a parameter.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QueryError(String);

impl QueryError {
    /// Describes a parameter whose value is not as expected.
    pub(super) fn new(name: &str, found: &str, expected: &str) -> QueryError {
        QueryError(format!("{name}: {found:?} is not {expected}"))
    }
}

/// Parses a parameter that must be one of these values; `word` returns the text of each.
pub(super) fn one_of<T: Copy, const N: usize>(
    name: &str,
    text: &str,
    all: [T; N],
    word: fn(T) -> &'static str,
) -> Result<T, QueryError> {
    let known = all.into_iter().find(|one| word(*one) == text);
    known.ok_or_else(|| QueryError::new(name, text, &format!("one of {}", all.map(word).join(", "))))
}

impl From<QueryError> for HttpResponse {
    fn from(QueryError(detail): QueryError) -> HttpResponse {
        problem(StatusCode::BAD_REQUEST, "invalid query", &detail)
    }
}

impl Query {
    /// Parses the parameters of a request to a path that has the parameters in `known`.
    pub(super) fn of(request: &HttpRequest, known: &[&str]) -> Result<Query, QueryError> {
        Query::read(request.query_string(), known)
    }

    fn read(text: &str, known: &[&str]) -> Result<Query, QueryError> {
        let pairs = web::Query::<Vec<(String, String)>>::from_query(text)
            .map_err(|error| QueryError(format!("the query cannot be read: {error}")))?;
        let mut read = BTreeMap::new();
        for (name, value) in pairs.into_inner() {
            if !known.contains(&name.as_str()) {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(QueryError(format!("{name}: unknown parameter; this path has {known}")));
            }
            if read.insert(name.clone(), value).is_some() {
                return Err(QueryError(format!("{name}: given more than once")));
            }
        }
        Ok(Query(read))
    }

    /// Returns the value of a parameter.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Parses a parameter that must be `true` or `false`.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, QueryError> {
        let flag = |text: &str| text.parse().map_err(|_| QueryError::new(name, text, "true or false"));
        self.text(name).map(flag).transpose()
    }

    /// Returns the maximum number of entries of the page.
    pub(super) fn limit(&self) -> Result<usize, QueryError> {
        let Some(text) = self.text("limit") else { return Ok(DEFAULT_PAGE_SIZE) };
        let limit = text.parse().ok().filter(|limit| (1..=MAX_PAGE_SIZE).contains(limit));
        limit.ok_or_else(|| {
            QueryError::new("limit", text, &format!("a whole number from 1 to {MAX_PAGE_SIZE}"))
        })
    }

    /// Returns the two halves, around the first slash, of the `next` of the previous page.
    pub(super) fn after(&self) -> Result<Option<(&str, &str)>, QueryError> {
        let Some(text) = self.text("after") else { return Ok(None) };
        let halves = text.split_once('/');
        halves.map(Some).ok_or_else(|| QueryError::new("after", text, "the `next` of a page"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["state", "late", "limit", "after"];

    #[test]
    fn h3_parameters_are_decoded_and_read_by_name() {
        let query = Query::read("state=in_sync&limit=7&after=lb%2Fa%20b", &KNOWN).expect("a query");
        assert_eq!(query.text("state"), Some("in_sync"));
        assert_eq!((query.limit(), query.flag("late")), (Ok(7), Ok(None)));
        assert_eq!(query.after(), Ok(Some(("lb", "a b"))));
        let nothing = Query::read("", &KNOWN).expect("a query");
        assert_eq!(
            (nothing.text("state"), nothing.limit(), nothing.after()),
            (None, Ok(DEFAULT_PAGE_SIZE), Ok(None))
        );
    }

    #[test]
    fn h3_a_wrong_parameter_is_named() {
        let refused = |text: &str| {
            let query = Query::read(text, &KNOWN);
            let wrong = query.and_then(|query| {
                query.limit().and_then(|_| query.flag("late")).and_then(|_| query.after().map(drop))
            });
            wrong.expect_err("it is wrong").0
        };
        for (text, name) in [
            ("colour=red", "colour"),
            ("limit=1&limit=2", "limit"),
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=-1", "limit"),
            ("limit=many", "limit"),
            ("limit=", "limit"),
            ("after=nonsense", "after"),
            ("late=yes", "late"),
        ] {
            let detail = refused(text);
            assert!(detail.starts_with(&format!("{name}: ")), "{text}: {detail}");
        }
    }
}
