//! Promises of the development guide (docs/development): its tables of variables, its make targets, and the manifests
//! of workload clusters.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::kubernetes;

/// The variables of `make deploy-workload-cluster` as cloud-provider-azure's guide has them: name, required, default.
const DEPLOYMENT: [(&str, bool, &str); 28] = [
    ("AZURE_SUBSCRIPTION_ID", true, ""),
    ("AZURE_TENANT_ID", true, ""),
    ("AZURE_CLIENT_ID", true, ""),
    ("CLUSTER_NAME", true, ""),
    ("AZURE_RESOURCE_GROUP", true, ""),
    ("MANAGEMENT_CLUSTER_NAME", true, ""),
    ("KIND", false, "true"),
    ("WORKLOAD_CLUSTER_TEMPLATE", false, "tests/k8s-azure-manifest/cluster-api/vmss-multi-nodepool.yaml"),
    ("CUSTOMIZED_CLOUD_CONFIG_TEMPLATE", false, ""),
    ("AZURE_CLUSTER_IDENTITY_SECRET_NAME", false, "cluster-identity-secret"),
    ("AZURE_CLUSTER_IDENTITY_SECRET_NAMESPACE", false, "default"),
    ("CLUSTER_IDENTITY_NAME", false, "cluster-identity"),
    ("CONTROL_PLANE_MACHINE_COUNT", false, "1"),
    ("WORKER_MACHINE_COUNT", false, "2"),
    ("AZURE_CONTROL_PLANE_MACHINE_TYPE", false, "Standard_D4s_v3"),
    ("AZURE_NODE_MACHINE_TYPE", false, "Standard_D2s_v3"),
    ("AZURE_LOCATION", false, "westus2"),
    ("AZURE_CLOUD_CONTROLLER_MANAGER_IMG_REGISTRY", false, "mcr.microsoft.com/oss/kubernetes"),
    ("AZURE_CLOUD_NODE_MANAGER_IMG_REGISTRY", false, "mcr.microsoft.com/oss/kubernetes"),
    ("AZURE_CLOUD_CONTROLLER_MANAGER_IMG_NAME", false, "azure-cloud-controller-manager"),
    ("AZURE_CLOUD_NODE_MANAGER_IMG_NAME", false, "azure-cloud-node-manager"),
    ("AZURE_CLOUD_CONTROLLER_MANAGER_IMG_TAG", false, "v1.28.4"),
    ("AZURE_CLOUD_NODE_MANAGER_IMG_TAG", false, "v1.28.4"),
    ("KUBERNETES_VERSION", false, "v1.28.0"),
    ("AZURE_LOADBALANCER_SKU", false, "Standard"),
    ("LB_BACKEND_POOL_CONFIG_TYPE", false, "nodeIPConfiguration"),
    ("PUT_VMSS_VM_BATCH_SIZE", false, "0"),
    ("AZURE_SSH_PUBLIC_KEY", false, ""),
];

/// The variables of the tests as the same guide has them: name, required. Its default of the SKU, basic, is retired.
const TESTS: [(&str, bool); 8] = [
    ("AZURE_TENANT_ID", true),
    ("AZURE_SUBSCRIPTION_ID", true),
    ("AZURE_CLIENT_ID", true),
    ("AZURE_CLIENT_SECRET", true),
    ("AZURE_ENVIRONMENT", false),
    ("AZURE_LOCATION", true),
    ("AZURE_LOADBALANCER_SKU", false),
    ("KUBECONFIG", false),
];

const SCRIPT: &str = "tests/k8s-azure-manifest/workload-cluster";
const SCHEMAS: &str = "tests/k8s-azure-manifest/cluster-api/schemas";

/// A row of a table: whether the variable is required, and its default.
type Row = (bool, String);

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the rows of a page's table of variables: `| NAME | required | description | default |`.
fn documented(page: &str) -> BTreeMap<String, Row> {
    let text = read(page);
    let table = text.lines().skip_while(|line| *line != "| variable | required | description | default |");
    let rows = table.skip(2).take_while(|line| line.starts_with('|')).map(|line| {
        let cells = line.strip_prefix("| `").and_then(|line| line.strip_suffix(" |"));
        let cells: Vec<&str> = cells.unwrap_or_else(|| panic!("{page}: {line}")).split(" | ").collect();
        let [name, required, about, default] = cells.as_slice() else { panic!("{page}: {line}") };
        assert!(!about.is_empty(), "{page}: {line}");
        (name.trim_end_matches('`').to_owned(), (*required == "true", default.replace('`', "")))
    });
    rows.collect()
}

/// Returns the rows of the table in the script.
fn in_script() -> BTreeMap<String, Row> {
    let text = read(SCRIPT);
    let table = text.split("\nvariables='\n").nth(1).and_then(|rest| rest.split("\n'\n").next());
    let table = table.expect("the script has a table");
    let rows = table.lines().map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next().expect("a name").to_owned();
        (name, (words.next() == Some("true"), words.next().unwrap_or_default().to_owned()))
    });
    rows.collect()
}

#[test]
fn deployment_variables_are_those_of_the_guide() {
    let wanted: BTreeMap<String, Row> = DEPLOYMENT
        .iter()
        .map(|(name, required, default)| ((*name).to_owned(), (*required, (*default).to_owned())))
        .collect();
    assert_eq!(in_script(), wanted);
    assert_eq!(documented("docs/development/deploy-clusters.md"), wanted);
    let template = read("tests/k8s-azure-manifest/cluster-api/vmss-multi-nodepool.yaml")
        + &read("tests/k8s-azure-manifest/cluster-api/azure.json")
        + &read(SCRIPT);
    let unused: Vec<&String> =
        wanted.keys().filter(|name| template.matches(name.as_str()).count() < 2).collect();
    assert!(unused.is_empty(), "nothing uses {unused:?}");
}

#[test]
fn e2e_variables_are_those_of_the_guide_and_the_program() {
    let program: BTreeMap<String, Row> = e2e::VARIABLES
        .iter()
        .map(|one| (one.name.to_owned(), (one.required, one.default.to_owned())))
        .collect();
    assert_eq!(documented("docs/development/e2e-tests.md"), program);
    for (name, required) in TESTS {
        assert_eq!(program.get(name).map(|row| row.0), Some(required), "{name}");
    }
}

#[test]
fn every_make_target_of_the_guide_is_there() {
    let makefile = read("Makefile");
    let pages = std::fs::read_dir(root().join("docs/development")).expect("the pages");
    let pages: Vec<String> =
        pages.flatten().map(|page| std::fs::read_to_string(page.path()).expect("a page")).collect();
    let is_named = |target: &str| pages.iter().any(|page| page.contains(&format!("make {target}")));
    let targets = [
        "image",
        "push",
        "update-dependencies",
        "update-fixtures",
        "test-e2e",
        "deploy-workload-cluster",
        "delete-workload-cluster",
    ];
    for target in targets {
        assert!(makefile.contains(&format!("\n{target}:")), "the Makefile has no {target}");
        assert!(is_named(target), "no page names make {target}");
    }
}

/// Runs a script of the repository with the required variables and these.
fn run(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.current_dir(root()).args(arguments);
    for (name, ..) in DEPLOYMENT {
        command.env_remove(name);
    }
    command.env_remove("IMAGE_REGISTRY").env_remove("AZURE_CLIENT_SECRET").env_remove("DRY_RUN");
    command.envs(variables.iter().copied()).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const REQUIRED: [(&str, &str); 6] = [
    ("AZURE_SUBSCRIPTION_ID", "11111111-1111-1111-1111-111111111111"),
    ("AZURE_TENANT_ID", "22222222-2222-2222-2222-222222222222"),
    ("AZURE_CLIENT_ID", "33333333-3333-3333-3333-333333333333"),
    ("CLUSTER_NAME", "guide-test"),
    ("AZURE_RESOURCE_GROUP", "guide-test"),
    ("MANAGEMENT_CLUSTER_NAME", "management"),
];

/// Returns the manifests as they are applied.
fn rendered() -> String {
    let output = run(SCRIPT, &["render"], &REQUIRED);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Returns the violations of the schema of its kind by a manifest.
fn offences(manifest: &Value) -> Vec<String> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_lowercase();
    let version = word(&manifest["apiVersion"]);
    let group = version.split(['.', '/']).next().unwrap_or_default();
    let name = format!("{SCHEMAS}/{}-{group}-v1beta1.json", word(&manifest["kind"]));
    let schema: Value = serde_json::from_str(&read(&name)).expect("a schema");
    let validator = jsonschema::validator_for(&schema).expect("a schema of its kind");
    validator
        .iter_errors(manifest)
        .map(|error| format!("{name}: {}: {error}", error.instance_path()))
        .collect()
}

#[test]
fn workload_cluster_manifests_conform_to_their_crds() {
    let rendered = rendered();
    assert!(!rendered.contains("${"), "{rendered}");
    let manifests: Vec<Value> = serde_saphyr::from_multiple(&rendered).expect("YAML");
    assert_eq!(manifests.len(), 11);
    for manifest in &manifests {
        assert_eq!(offences(manifest), Vec::<String>::new());
    }
    let mut wrong = manifests[0].clone();
    wrong["spec"]["clusterNetwok"] = json!({});
    assert_eq!(offences(&wrong).len(), 1, "a misspelt property is no offence");
    let mut wrong = manifests[0].clone();
    wrong["spec"]["paused"] = json!("yes");
    assert_eq!(offences(&wrong).len(), 1, "a property of another type is no offence");
}

#[test]
fn workload_cluster_manifests_pass_kubeconform() {
    let Some(kubeconform) = kubernetes::tool("kubeconform") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cluster.yaml");
    std::fs::write(&file, rendered()).expect("it can be written");
    let schemas = format!("{SCHEMAS}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json");
    let judged = |file: &Path| {
        let output = Command::new(&kubeconform)
            .current_dir(root())
            .args(["-strict", "-summary", "-schema-location", &schemas])
            .arg(file)
            .output()
            .expect("kubeconform runs");
        (output.status.success(), text(&output.stdout))
    };
    let (passed, output) = judged(&file);
    assert!(passed && output.contains("Valid: 11, Invalid: 0, Errors: 0, Skipped: 0"), "{output}");
    std::fs::write(&file, rendered().replace("vmSize:", "size:")).expect("it can be written");
    assert!(!judged(&file).0, "kubeconform refuses nothing");
}

#[test]
fn workload_clusters_are_deployed_and_deleted_dry() {
    let dry = |target: &str, more: &[(&str, &str)]| {
        let variables =
            [&REQUIRED[..], &[("DRY_RUN", "true"), ("AZURE_CLIENT_SECRET", "secret-of-the-client")], more]
                .concat();
        let output = run("make", &["--no-print-directory", target], &variables);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let output = dry(
        "deploy-workload-cluster",
        &[("IMAGE_REGISTRY", "registry.example/team"), ("LB_BACKEND_POOL_CONFIG_TYPE", "nodeIP")],
    );
    for step in [
        "--context=kind-management apply --filename target/workload-cluster/guide-test/cluster.yaml",
        "cloudControllerManager.imageTag=v1.28.4",
        "image.repository=registry.example/team/azure-backend-pool-controller",
    ] {
        assert!(output.contains(step), "{step} is not in:\n{output}");
    }
    let config = read("target/workload-cluster/guide-test/azure.json");
    let cloud: Value = serde_json::from_str(&config).expect("the cloud configuration is JSON");
    assert_eq!(cloud["multipleStandardLoadBalancerConfigurations"][1]["primaryVMSet"], "guide-test-mp-1");
    assert!(!config.contains("secret-of"), "a dry run has written the secret");
    std::fs::remove_dir_all(root().join("target/workload-cluster/guide-test")).expect("it was written");
    let output = dry("delete-workload-cluster", &[("KIND", "false")]);
    assert!(output.contains("--context=management delete cluster guide-test --wait"), "{output}");

    let missing = run(SCRIPT, &["deploy"], &REQUIRED[..4]);
    let message = text(&missing.stderr);
    assert_eq!(missing.status.code(), Some(64), "{message}");
    assert!(message.contains("not set: AZURE_RESOURCE_GROUP MANAGEMENT_CLUSTER_NAME;"), "{message}");
    let basic = run(SCRIPT, &["render"], &[&REQUIRED[..], &[("AZURE_LOADBALANCER_SKU", "Basic")]].concat());
    assert!(text(&basic.stderr).contains("set Standard"), "{}", text(&basic.stderr));
}

#[test]
fn targets_that_need_a_registry_or_the_network_run_dry() {
    let make = |arguments: &[&str]| {
        let output = run("make", &[&["--no-print-directory"], arguments].concat(), &[]);
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    let layout = make(&["--dry-run", "push", "OCI_LAYOUT=target/image"]);
    assert!(layout.0 && layout.1.contains("type=oci,tar=false,dest=target/image"), "{}", layout.1);
    assert!(!layout.1.contains("push=true"), "{}", layout.1);
    for (target, step) in [
        ("update-dependencies", "+ cargo update"),
        ("update-fixtures", "+ tests/k8s-azure-manifest/update-schemas"),
    ] {
        let (success, output) = make(&[target, "DRY_RUN=true"]);
        assert!(success && output.contains(step), "{target}: {output}");
    }
}
