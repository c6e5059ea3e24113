//! The clusters that a pool can follow, as a table.

use super::*;
use crate::xds::facts::EdsFacts;

/// The numbers of `DiscoveryType`.
const STATIC: i32 = 0;
const STRICT_DNS: i32 = 1;
const LOGICAL_DNS: i32 = 2;
const ORIGINAL_DST: i32 = 4;

fn eds(service_name: &str, source: EdsSource) -> Option<EdsFacts> {
    Some(EdsFacts { service_name: service_name.to_owned(), source })
}

fn validated(name: &str, discovery: Option<i32>, eds: Option<EdsFacts>) -> Result<String, String> {
    let facts = ClusterFacts { name: name.to_owned(), discovery, eds };
    Cluster::of(&Arc::from(name), &facts).map(|cluster| cluster.eds_name.to_string())
}

#[test]
fn x2_a_cluster_uses_its_service_name_or_its_own_name() {
    for source in [EdsSource::Ads, EdsSource::SameServer] {
        assert_eq!(validated("shop", Some(EDS), eds("shop/web:80", source)).as_deref(), Ok("shop/web:80"));
        assert_eq!(validated("shop", Some(EDS), eds("", source)).as_deref(), Ok("shop"));
    }
}

#[test]
fn x2_names_of_the_newer_style_are_opaque() {
    let name = "xdstp://control.example/envoy.config.cluster.v3.Cluster/shop?a=1";
    let service = "xdstp://control.example/envoy.config.endpoint.v3.ClusterLoadAssignment/shop";
    assert_eq!(validated(name, Some(EDS), eds(service, EdsSource::Ads)).as_deref(), Ok(service));
    assert_eq!(validated(name, Some(EDS), eds("", EdsSource::Ads)).as_deref(), Ok(name));
}

#[test]
fn x2_clusters_of_other_types_are_rejected_with_the_type() {
    let named = [
        (STATIC, "STATIC"),
        (STRICT_DNS, "STRICT_DNS"),
        (LOGICAL_DNS, "LOGICAL_DNS"),
        (ORIGINAL_DST, "ORIGINAL_DST"),
        (99, "99"),
        (-1, "-1"),
    ];
    for (number, shown) in named {
        for facts in [None, eds("shop", EdsSource::Ads), eds("", EdsSource::Other)] {
            let fault = validated("shop", Some(number), facts).expect_err("not EDS");
            assert!(fault.starts_with(&format!("type: {shown} is not supported")), "{fault}");
            assert!(fault.contains("make it EDS") && !fault.contains("eds_config"), "{fault}");
        }
    }
    let fault = validated("shop", None, eds("shop", EdsSource::Ads)).expect_err("of a custom type");
    assert!(fault.starts_with("cluster_type: ") && fault.contains("make it EDS"), "{fault}");
}

#[test]
fn x2_endpoints_from_another_source_are_rejected() {
    let fault = validated("shop", Some(EDS), eds("shop", EdsSource::Other)).expect_err("another source");
    assert!(fault.starts_with("eds_cluster_config.eds_config: is neither ads nor self"), "{fault}");
    assert!(fault.contains("set it to ads"), "{fault}");
    let fault = validated("shop", Some(EDS), None).expect_err("no source");
    assert!(fault.starts_with("eds_cluster_config: is missing"), "{fault}");
}

#[test]
fn x2_a_wildcard_name_of_endpoints_is_rejected() {
    let fault = validated("shop", Some(EDS), eds("*", EdsSource::Ads)).expect_err("a wildcard");
    assert!(fault.starts_with("eds_cluster_config.service_name: requests all assignments"), "{fault}");
}

#[test]
fn x2_a_name_of_endpoints_above_4_kib_is_rejected() {
    let longest = "x".repeat(MAX_NAME);
    assert_eq!(
        validated("shop", Some(EDS), eds(&longest, EdsSource::Ads)).as_deref(),
        Ok(longest.as_str()),
        "{MAX_NAME} bytes"
    );
    let fault =
        validated("shop", Some(EDS), eds(&format!("{longest}x"), EdsSource::Ads)).expect_err("longer");
    let expected =
        "eds_cluster_config.service_name: has 4097 bytes, and at most 4096 are read: use a shorter name";
    assert_eq!(fault, expected);
}
