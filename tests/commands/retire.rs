//! `retire` where there is no API server to ask. With one it is shown by the stories against a control plane.

use super::{Folder, KUBECONFIG, path, run, text};

#[test]
fn retire_asks_until_its_time_is_over_and_then_says_what_to_do() {
    let folder = Folder::new();
    let kubeconfig = folder.write("kubeconfig", KUBECONFIG);
    let given = ["--namespace", "shop", "--deployment", "pools", "--within", "2s", "--kubeconfig"];
    let output = run(&[&["retire"][..], &given, &[path(&kubeconfig)]].concat());
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{said}{told}");
    assert_eq!(said.matches("waiting for the API server: ").count(), 1, "each reason is told once: {said}");
    assert!(
        told.starts_with("error: it is unknown after 2s whether Deployment shop/pools runs Pods: "),
        "{told}"
    );
    assert!(told.contains("get this Deployment, patch its scale, and list Pods in shop"), "{told}");
}

#[test]
fn retire_needs_to_be_told_of_which_deployment() {
    for arguments in
        [&["retire", "--namespace", "shop"][..], &["retire", "--namespace", "", "--deployment", "a"]]
    {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn retire_refuses_a_selector_that_it_cannot_read_or_that_is_for_all_pods() {
    for (selector, why) in [
        ("app in (web", "not a label selector: a `(` without `)`; write labels such as"),
        ("app>1", "not a label selector: the label key \"app>1\"; write labels such as"),
        ("app=web,", "not a label selector: the label key \"\"; write labels such as"),
        ("", "it matches all Pods; write labels such as"),
    ] {
        let given = ["retire", "--namespace", "shop", "--deployment", "pools", "--selector", selector];
        let output = run(&given);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{selector:?}: {told}");
        assert!(told.contains("for '--selector <LABELS>': ") && told.contains(why), "{selector:?}: {told}");
    }
}
