//! URLs of resources.

use model::ids::{LbName, PoolId, PoolName};

use super::settings;
use crate::Settings;
use crate::url::{AddressError, Addresses};

fn addresses(endpoint: &str) -> Addresses {
    let (subscription, resource_group) = ("s/1".to_owned(), "my rg".to_owned());
    let api_version = "2024-05-01-preview".to_owned();
    Addresses::new(&Settings { subscription, resource_group, api_version, ..settings(endpoint) })
}

fn pool(lb: &str, pool: &str) -> PoolId {
    PoolId::new(LbName::new(lb), PoolName::new(pool))
}

#[test]
fn each_name_is_one_segment_of_the_path() {
    let url = addresses("https://h:8443/arm/").pool(&pool("a/../b?x#y", "%2e%2e\\\u{e9}")).unwrap();
    assert_eq!(
        url.as_str(),
        "https://h:8443/arm/subscriptions/s%2F1/resourceGroups/my%20rg/providers/Microsoft.Network/loadBalancers/a%2F..%2Fb%3Fx%23y/backendAddressPools/%252e%252e%5C%C3%A9?api-version=2024-05-01-preview"
    );
    let url = addresses("https://h").load_balancer(&LbName::new("Kubernetes-internal")).unwrap();
    assert!(
        url.as_str().ends_with("/loadBalancers/Kubernetes-internal?api-version=2024-05-01-preview"),
        "{url}"
    );
}

#[test]
fn names_that_would_change_the_path_are_refused() {
    for name in ["", ".", "..", "a\tb", "a\nb", "\0"] {
        let refused = addresses("https://h").pool(&pool("lb", name));
        assert_eq!(refused, Err(AddressError::Name(name.to_owned())), "{name:?}");
        assert!(addresses("https://h").load_balancer(&LbName::new(name)).is_err());
    }
}
