//! `retire` without an API server. tests/cluster/retire.rs tests it with one.

use super::{Folder, KUBECONFIG, path, run, text};

#[test]
fn retire_retries_until_its_time_limit_and_has_a_remedy() {
    let folder = Folder::new();
    let kubeconfig = folder.write("kubeconfig", KUBECONFIG);
    let given = ["--namespace", "shop", "--deployment", "pools", "--within", "2s", "--kubeconfig"];
    let output = run(&[&["retire"][..], &given, &[path(&kubeconfig)]].concat());
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{stdout}{stderr}");
    assert_eq!(
        stdout.matches("waiting for the API server: ").count(),
        1,
        "each reason is printed once: {stdout}"
    );
    assert!(
        stderr.starts_with("error: it is unknown after 2s whether Deployment shop/pools runs Pods: "),
        "{stderr}"
    );
    assert!(stderr.contains("get this Deployment, patch its scale, and list Pods in shop"), "{stderr}");
}

#[test]
fn retire_needs_the_name_of_the_deployment() {
    for arguments in
        [&["retire", "--namespace", "shop"][..], &["retire", "--namespace", "", "--deployment", "a"]]
    {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn retire_refuses_unreadable_or_empty_selectors() {
    for (selector, reason) in [
        ("app in (web", "not a label selector: a `(` without `)`; write labels such as"),
        ("app>1", "not a label selector: the label key \"app>1\"; write labels such as"),
        ("app=web,", "not a label selector: the label key \"\"; write labels such as"),
        ("", "it matches all Pods; write labels such as"),
    ] {
        let given = ["retire", "--namespace", "shop", "--deployment", "pools", "--selector", selector];
        let output = run(&given);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{selector:?}: {stderr}");
        assert!(
            stderr.contains("for '--selector <LABELS>': ") && stderr.contains(reason),
            "{selector:?}: {stderr}"
        );
    }
}
