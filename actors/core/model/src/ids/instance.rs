//! Ids of virtual machines, and how they are read from Azure resource ids (docs/design/nodes.md, N2). This module does
//! not check that a machine exists.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A machine of a scale set. Nodes and network interfaces name it alike.
const OF_SCALE_SET: &str = "/subscriptions/*/resourceGroups/*/providers/Microsoft.Compute/virtualMachineScaleSets/*/virtualMachines/*";
/// A machine outside of scale sets, or in a flexible scale set.
const OF_MACHINE: &str = "/subscriptions/*/resourceGroups/*/providers/Microsoft.Compute/virtualMachines/*";
/// The rest of the id, after the machine, for network interfaces of a scale set.
const AT_SCALE_SET: &str = "/subscriptions/*/resourceGroups/*/providers/Microsoft.Compute/virtualMachineScaleSets/*/virtualMachines/*/networkInterfaces/*/ipConfigurations/*";
/// A network interface that is a resource of its own.
const OF_INTERFACE: &str =
    "/subscriptions/*/resourceGroups/*/providers/Microsoft.Network/networkInterfaces/*/ipConfigurations/*";
/// The suffix that the name of an interface adds to the name of its machine.
const INTERFACE: &str = "-nic";

/// A virtual machine, named as nodes and network interfaces name it: `<scale set>/<number>`, or its own name outside
/// of a scale set (N2).
///
/// Azure compares these names without regard to case; equality, order and hash do the same. Operators see the spelling
/// that was seen first. The type is small, because every address entry may have one.
#[derive(Clone)]
pub struct InstanceId(Arc<Spelling>);

struct Spelling {
    shown: Arc<str>,
    folded: Arc<str>,
}

case_insensitive!(InstanceId);

impl InstanceId {
    /// Wraps the text and keeps its spelling.
    pub fn new(text: impl Into<Arc<str>>) -> InstanceId {
        let shown: Arc<str> = text.into();
        let folded = if shown.bytes().any(|b| b.is_ascii_uppercase()) {
            Arc::from(shown.to_ascii_lowercase())
        } else {
            Arc::clone(&shown)
        };
        InstanceId(Arc::new(Spelling { shown, folded }))
    }

    /// Returns the text in the spelling that was seen first.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.shown
    }

    /// Returns the text in lower case, used for comparison.
    #[must_use]
    pub fn folded(&self) -> &str {
        &self.0.folded
    }

    /// Returns the virtual machine in a node's provider id (`azure:///subscriptions/…`); `None` if it names none.
    #[must_use]
    pub fn of_provider_id(text: &str) -> Option<InstanceId> {
        let (cloud, id) = text.trim().split_once("://")?;
        if !cloud.eq_ignore_ascii_case("azure") {
            return None;
        }
        if let Some([_, _, set, number]) = names(id, OF_SCALE_SET) {
            return Some(InstanceId::in_set(set, number));
        }
        let [_, _, machine] = names(id, OF_MACHINE)?;
        Some(InstanceId::new(machine))
    }

    /// Returns the virtual machine in the id of a network interface's IP configuration; `None` if it names none.
    ///
    /// The id of an interface that is a resource of its own does not contain the machine. The machine is then derived
    /// from the name of the interface, by the conventions of the tools that create both.
    #[must_use]
    pub fn of_ip_configuration(id: &str) -> Option<InstanceId> {
        let id = id.trim();
        if let Some([_, _, set, number, _, _]) = names(id, AT_SCALE_SET) {
            return Some(InstanceId::in_set(set, number));
        }
        let [_, _, interface, _] = names(id, OF_INTERFACE)?;
        Some(of_interface(interface))
    }

    fn in_set(set: &str, number: &str) -> InstanceId {
        InstanceId::new(format!("{set}/{number}"))
    }
}

/// Returns the parts of `id` at the stars of `form`; `None` if the id does not have this form.
fn names<'a, const N: usize>(id: &'a str, form: &str) -> Option<[&'a str; N]> {
    let mut names = Vec::with_capacity(N);
    let mut parts = id.split('/');
    for word in form.split('/') {
        let part = parts.next()?;
        if word != "*" {
            if !part.eq_ignore_ascii_case(word) {
                return None;
            }
        } else if is_name(part) {
            names.push(part);
        } else {
            return None;
        }
    }
    if parts.next().is_some() {
        return None;
    }
    names.try_into().ok()
}

/// Returns true if this can be the name of a resource. Ids in Azure messages may have other text in place of a name,
/// such as a whole id written with bars.
fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || ['-', '_', '.', '(', ')'].contains(&c);
    !text.is_empty() && text.chars().all(fits)
}

/// Returns the machine of the interface with this name: `<machine>-nic` or `<machine>-nic-<number>`, or the machine's
/// own name. AKS puts `nic` inside the machine's name: `aks-<pool>-<digits>-nic-<number>`.
fn of_interface(interface: &str) -> InstanceId {
    let itself = || InstanceId::new(interface);
    let folded = interface.to_ascii_lowercase();
    let Some(at) = folded.rfind(INTERFACE).filter(|at| *at > 0) else { return itself() };
    let (Some(machine), Some(end)) = (interface.get(..at), interface.get(at + INTERFACE.len()..)) else {
        return itself();
    };
    match end.strip_prefix('-') {
        None if end.is_empty() => InstanceId::new(machine),
        Some(number) if is_number(number) && is_of_aks(machine) => {
            InstanceId::new(format!("{machine}-{number}"))
        }
        Some(number) if is_number(number) => InstanceId::new(machine),
        None | Some(_) => itself(),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true for names like those of AKS machines (`k8s-` for the predecessor of AKS): a word first, digits last.
fn is_of_aks(machine: &str) -> bool {
    let machine = machine.to_ascii_lowercase();
    let makers = ["aks-", "k8s-"];
    let rest = makers.iter().find_map(|maker| machine.strip_prefix(maker));
    rest.and_then(|rest| rest.rsplit_once('-')).is_some_and(|(_, digits)| is_number(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str =
        "/subscriptions/b4dfd7b1-43b6-4a45-b5b1-a61a8e0b2a0c/resourceGroups/mc_rg_cluster_westeurope";

    fn of_provider_id(text: &str) -> Option<String> {
        InstanceId::of_provider_id(text).map(|instance| instance.to_string())
    }

    fn of_ip_configuration(id: &str) -> Option<String> {
        InstanceId::of_ip_configuration(id).map(|instance| instance.to_string())
    }

    #[test]
    fn n2_a_provider_id_names_a_scale_set_instance_or_a_vm() {
        let compute = format!("{GROUP}/providers/Microsoft.Compute");
        let set = "virtualMachineScaleSets/aks-nodepool1-12345678-vmss";
        let cases = [
            (format!("azure://{compute}/{set}/virtualMachines/0"), Some("aks-nodepool1-12345678-vmss/0")),
            (format!("azure://{compute}/{set}/virtualMachines/117"), Some("aks-nodepool1-12345678-vmss/117")),
            (
                format!("azure://{compute}/virtualMachines/aks-nodepool1-12345678-0"),
                Some("aks-nodepool1-12345678-0"),
            ),
            (format!("azure://{compute}/virtualMachines/pool-vmss_1a2b3c4d"), Some("pool-vmss_1a2b3c4d")),
            (format!("azure://{compute}/virtualMachines/vm").to_uppercase(), Some("VM")),
            (format!("  azure://{compute}/virtualMachines/vm\n"), Some("vm")),
            (format!("{compute}/virtualMachines/vm"), None),
            (format!("aws://{compute}/virtualMachines/vm"), None),
            ("aws:///eu-west-1a/i-0123456789abcdef0".to_owned(), None),
            ("kind://docker/kind/kind-worker".to_owned(), None),
            (format!("azure://{compute}/virtualMachines/"), None),
            (format!("azure://{compute}/virtualMachines/vm/"), None),
            (format!("azure://{compute}/virtualMachines/vm/extensions/x"), None),
            (format!("azure://{compute}/{set}"), None),
            (format!("azure://{compute}/{set}/virtualMachines/"), None),
            (format!("azure://{compute}/virtualMachines/one two"), None),
            (
                "azure:///subscriptions//resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/vm"
                    .to_owned(),
                None,
            ),
            (format!("azure://{GROUP}/providers/Microsoft.Network/virtualMachines/vm"), None),
            ("azure://".to_owned(), None),
            (String::new(), None),
        ];
        for (text, expected) in cases {
            assert_eq!(of_provider_id(&text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn n2_an_ip_configuration_names_the_machine_of_its_interface() {
        let (compute, network) =
            (format!("{GROUP}/providers/Microsoft.Compute"), format!("{GROUP}/providers/Microsoft.Network"));
        let in_set = format!("{compute}/virtualMachineScaleSets/aks-np-12345678-vmss/virtualMachines/3");
        let own =
            |interface: &str| format!("{network}/networkInterfaces/{interface}/ipConfigurations/ipconfig1");
        let cases = [
            (
                format!("{in_set}/networkInterfaces/aks-np-12345678-vmss/ipConfigurations/ipconfig1"),
                Some("aks-np-12345678-vmss/3"),
            ),
            (
                format!("{in_set}/networkInterfaces/nic/ipConfigurations/v6").to_lowercase(),
                Some("aks-np-12345678-vmss/3"),
            ),
            (own("aks-pool-123-nic-0"), Some("aks-pool-123-0")),
            (own("aks-nodepool1-12345678-nic-12"), Some("aks-nodepool1-12345678-12")),
            (own("k8s-agentpool1-12345678-nic-1"), Some("k8s-agentpool1-12345678-1")),
            (own("k8s-master-12345678-NIC-0"), Some("k8s-master-12345678-0")),
            (own("cluster-md-0-x7k2p-nic"), Some("cluster-md-0-x7k2p")),
            (own("cluster-md-0-x7k2p-nic-0"), Some("cluster-md-0-x7k2p")),
            (own("cluster-md-0-x7k2p-nic-1"), Some("cluster-md-0-x7k2p")),
            (own("aks-jumpbox-nic-0"), Some("aks-jumpbox")),
            (own("clinic-nic"), Some("clinic")),
            (own("exper-pr-1436-29012345678901-master-0"), Some("exper-pr-1436-29012345678901-master-0")),
            (own("nic1"), Some("nic1")),
            (own("-nic"), Some("-nic")),
            (own("pool-nic-1a2b3c4d"), Some("pool-nic-1a2b3c4d")),
            (own("vm-nic-"), Some("vm-nic-")),
            (own(""), None),
            (
                own(
                    "|providers|Microsoft.Compute|virtualMachineScaleSets|hbtest1|virtualMachines|1|networkInterfaces|primary",
                ),
                None,
            ),
            (format!("{network}/networkInterfaces/vm-nic"), None),
            (format!("{in_set}/networkInterfaces/nic"), None),
            (in_set.clone(), None),
            (format!("{compute}/virtualMachines/vm/networkInterfaces/nic/ipConfigurations/c"), None),
            (format!("{network}/loadBalancers/lb/frontendIPConfigurations/f"), None),
            (String::new(), None),
        ];
        for (id, expected) in cases {
            assert_eq!(of_ip_configuration(&id).as_deref(), expected, "{id:?}");
        }
    }

    #[test]
    fn n2_a_node_and_its_interface_match_in_any_spelling() {
        let id = |subscription: &str, group: &str, rest: &str| {
            format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/{rest}")
        };
        let set = "Microsoft.Compute/virtualMachineScaleSets/aks-NP-vmss/virtualMachines/0";
        let node = InstanceId::of_provider_id(&format!("azure://{}", id("s", "mc_rg", set)));
        let interface =
            id("0-0-0-0", "MC_RG", &format!("{set}/networkInterfaces/NIC/ipConfigurations/c")).to_uppercase();
        assert!(node.is_some());
        assert_eq!(InstanceId::of_ip_configuration(&interface), node);
        assert_eq!(node.as_ref().map(InstanceId::as_str), Some("aks-NP-vmss/0"), "as it was first seen");
        assert_eq!(node.as_ref().map(InstanceId::folded), Some("aks-np-vmss/0"));
        assert_ne!(Some(InstanceId::new("aks-NP-vmss/1")), node);
    }

    #[test]
    fn an_instance_uses_one_pointer_in_an_entry() {
        assert_eq!(size_of::<Option<InstanceId>>(), size_of::<usize>());
    }
}
