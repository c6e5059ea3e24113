//! The series of single pools: at most [`LISTED`], those that have been out of sync for longest (E2).
//!
//! The recorder would keep a series for the lifetime of the process. These end as soon as the pool is in sync, so
//! they are written at each scrape. Their labels are not called `namespace` and `service`, because a ServiceMonitor
//! sets labels of these names.

use std::time::Duration;

use model::ids::{PoolId, ServiceKey};
use model::redact::Printable;

use super::POOL_OUT_OF_SYNC;

/// Maximum pools and series.
pub const LISTED: usize = 50;

/// A pool that is out of sync.
#[derive(Clone, Debug)]
pub struct OutOfSyncPool<'a> {
    /// Id of the pool.
    pub pool: &'a PoolId,
    /// Services of the pool; empty if a control plane fills it.
    pub services: Vec<&'a ServiceKey>,
    /// Time that it has been out of sync.
    pub age: Duration,
}

/// Returns the pools in Prometheus' text format, one series per Service. For a pool without a Service, the labels of
/// the Service are empty. Without pools the text is empty.
#[must_use]
pub fn pools_out_of_sync(pools: &[OutOfSyncPool<'_>]) -> String {
    if pools.is_empty() {
        return String::new();
    }
    let help = "Time that a pool has been out of sync, for the pools that have been so for longest.";
    let mut text = format!("# HELP {POOL_OUT_OF_SYNC} {help}\n# TYPE {POOL_OUT_OF_SYNC} gauge\n");
    pools.iter().flat_map(series).take(LISTED).for_each(|line| text.push_str(&line));
    text.push('\n');
    text
}

/// Returns the lines of one pool.
fn series(of: &OutOfSyncPool<'_>) -> Vec<String> {
    let mut services: Vec<(&str, &str)> =
        of.services.iter().map(|key| (key.namespace.as_ref(), key.name.as_ref())).collect();
    services.sort_unstable();
    if services.is_empty() {
        services.push(("", ""));
    }
    let line = |(namespace, name): (&str, &str)| {
        let labels = [
            label("load_balancer", of.pool.lb.as_str()),
            label("backend_pool", of.pool.pool.as_str()),
            label("service_namespace", namespace),
            label("service_name", name),
        ];
        format!("{POOL_OUT_OF_SYNC}{{{}}} {}\n", labels.join(","), of.age.as_secs_f64())
    };
    services.into_iter().map(line).collect()
}

/// Formats a label. The escapes of a printable text are plain characters of its value.
fn label(name: &str, value: &str) -> String {
    let value = Printable::line(value).as_str().replace('\\', "\\\\").replace('"', "\\\"");
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use model::ids::{LbName, PoolName};

    use super::*;

    fn page(pools: &[(PoolId, Vec<ServiceKey>, u64)]) -> String {
        let pools: Vec<_> = pools
            .iter()
            .map(|(pool, services, age)| OutOfSyncPool {
                pool,
                services: services.iter().collect(),
                age: Duration::from_secs(*age),
            })
            .collect();
        pools_out_of_sync(&pools)
    }

    fn id(name: &str) -> PoolId {
        PoolId::new(LbName::new("kubernetes"), PoolName::new(name))
    }

    #[test]
    fn e2_a_pool_out_of_sync_has_a_series_per_service() {
        let services = vec![ServiceKey::new("shop-a", "b"), ServiceKey::new("shop", "a-b")];
        let text = page(&[(id("shop-a-b"), services, 900), (id("a\"b\\"), Vec::new(), 2)]);
        let metric = "backend_pool_controller_pool_out_of_sync_seconds";
        let expected = [
            format!("# TYPE {metric} gauge"),
            format!(
                r#"{metric}{{load_balancer="kubernetes",backend_pool="shop-a-b",service_namespace="shop",service_name="a-b"}} 900"#
            ),
            format!(
                r#"{metric}{{load_balancer="kubernetes",backend_pool="shop-a-b",service_namespace="shop-a",service_name="b"}} 900"#
            ),
            format!(
                r#"{metric}{{load_balancer="kubernetes",backend_pool="a\"b\\",service_namespace="",service_name=""}} 2"#
            ),
        ];
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).skip(1).collect();
        assert_eq!(lines, expected, "{text}");
        assert_eq!(page(&[]), "", "a pool that is in sync again has no series");
    }

    #[test]
    fn e2_labels_reach_a_terminal_as_printable_text() {
        let hostile = "a\u{1b}[2j\u{7}\r\n\u{202e}b";
        let pool = PoolId::new(LbName::new(hostile), PoolName::new(hostile));
        let text = page(&[(pool, vec![ServiceKey::new(hostile, hostile)], 1)]);
        let label = r#""a\\u{1b}[2j\\u{7}\\u{d}\\u{a}\\u{202e}b""#;
        assert_eq!(text.matches(label).count(), 4, "{text}");
        assert!(text.chars().all(|c| c == '\n' || (' '..='~').contains(&c)), "{text:?}");
    }

    #[test]
    fn e2_no_more_than_fifty_series_are_shown() {
        let services = || vec![ServiceKey::new("shop", "a"), ServiceKey::new("shop", "b")];
        let pools: Vec<_> = (0..40).map(|n| (id(&format!("p{n:02}")), services(), 1_000 - n)).collect();
        let text = page(&pools);
        let series: Vec<&str> = text.lines().filter(|line| line.contains("} ")).collect();
        assert_eq!(series.len(), LISTED);
        assert!(
            series.iter().all(|line| line.contains("\"p0") || line.contains("\"p1") || line.contains("\"p2"))
        );
    }
}
