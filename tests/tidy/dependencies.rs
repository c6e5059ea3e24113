//! Every dependency is used: code of its package names the crate, and some package names each dependency of the workspace.
//! What is there for its features alone stands in `ignored` under `cargo-machete`, the tool that looks for the same.

use std::collections::{BTreeMap, BTreeSet};

use super::{fail_if_any, files};

/// The tables of a manifest that have dependencies, also as the end of `target.<target>.<table>`.
const TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// What a manifest says of dependencies.
#[derive(Default)]
struct Manifest {
    /// Whether it has a package: a folder with code.
    is_package: bool,
    dependencies: BTreeSet<String>,
    of_the_workspace: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

/// Reads a manifest. One line has one dependency, as everywhere in this repository.
fn read(text: &str) -> Manifest {
    let mut manifest = Manifest::default();
    let mut table = "";
    for line in text.lines().map(str::trim) {
        if let Some(head) = line.strip_prefix('[').and_then(|head| head.strip_suffix(']')) {
            table = head;
            manifest.is_package |= table == "package";
            continue;
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
        if name.is_empty() || name.starts_with('#') {
            continue;
        }
        let last = table.rsplit('.').next().unwrap_or_default();
        if table == "workspace.dependencies" {
            manifest.of_the_workspace.insert(name.to_owned());
        } else if table.ends_with("metadata.cargo-machete") {
            manifest.ignored.extend(line.split('"').skip(1).step_by(2).map(str::to_owned));
        } else if TABLES.contains(&last) && (table == last || table.starts_with("target.")) {
            manifest.dependencies.insert(name.to_owned());
        }
    }
    manifest
}

/// Whether code names a crate: as the first part of a path, in an attribute or a derive, or by itself after `use`.
fn is_named(code: &str, dependency: &str) -> bool {
    let name = dependency.replace('-', "_");
    let of_a_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut lines = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    lines.any(|line| {
        line.match_indices(&name).any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + name.len()..]);
            let is_whole = !before.ends_with(of_a_name) && !after.starts_with(of_a_name);
            let is_alone = before.ends_with("use ") && after.starts_with([';', ' ']);
            is_whole && !before.ends_with("::") && (after.starts_with("::") || is_alone)
        })
    })
}

/// What nothing uses, as `<manifest>: <dependency>`: `files` has manifests and sources by their paths.
fn unused(files: &BTreeMap<String, String>) -> Vec<String> {
    let manifests =
        files.iter().filter_map(|(path, text)| Some((path.strip_suffix("Cargo.toml")?, read(text))));
    let manifests: BTreeMap<&str, Manifest> = manifests.collect();
    // The longest folder that a file is in is that of its package.
    let home = |path: &str| {
        let folders = manifests.iter().filter(|(folder, it)| it.is_package && path.starts_with(**folder));
        folders.map(|(folder, _)| *folder).max_by_key(|folder| folder.len())
    };
    let mut code: BTreeMap<&str, String> = BTreeMap::new();
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        if let Some(folder) = home(path) {
            code.entry(folder).or_default().push_str(text);
        }
    }
    let ignored_everywhere: BTreeSet<&String> = manifests
        .iter()
        .filter(|(_, it)| !it.of_the_workspace.is_empty())
        .flat_map(|(_, it)| &it.ignored)
        .collect();
    let mut found = Vec::new();
    for (folder, manifest) in &manifests {
        let code = code.get(folder).map_or("", String::as_str);
        for name in manifest.dependencies.difference(&manifest.ignored) {
            if !ignored_everywhere.contains(name) && !is_named(code, name) {
                found.push(format!("{folder}Cargo.toml: {name}"));
            }
        }
        for name in &manifest.of_the_workspace {
            if !manifests.values().any(|it| it.dependencies.contains(name)) {
                found.push(format!("{folder}Cargo.toml: {name} of the workspace"));
            }
        }
    }
    found
}

#[test]
fn every_dependency_is_used() {
    let mut files = files(&[".rs", "Cargo.toml"]);
    // Written by cargo-hakari, for its features alone.
    files.retain(|path, _| !path.starts_with(".config/features/"));
    fail_if_any("take it out of the manifest", &unused(&files));
}

#[test]
fn a_dependency_that_no_code_names_is_noticed() {
    let root = "[workspace.dependencies]\none = \"1\"\ntwo-parts = \"1\"\nforgotten = \"1\"\n\
        [workspace.metadata.cargo-machete]\nignored = [\"features-alone\"]\n\
        [package]\nname = \"root\"\n[dependencies]\none.workspace = true\ntwo-parts.workspace = true\n\
        [target.'cfg(unix)'.dependencies]\nthree = { workspace = true }\n\
        [dev-dependencies]\nfeatures-alone.workspace = true\n";
    let member = "[package]\nname = \"member\"\n[dependencies]\none.workspace = true\nfour = \"1\"\n\
        [package.metadata.cargo-machete]\nignored = [\"four\"]\n";
    let given = [
        ("Cargo.toml", root),
        (
            "src/lib.rs",
            "// one::is in a comment\nuse two_parts;\nfn all() { three::times(); phone::one(); }\n",
        ),
        ("member/Cargo.toml", member),
        ("member/src/lib.rs", "use one::more;\n"),
    ];
    let given = given.map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(unused(&BTreeMap::from(given)), ["Cargo.toml: one", "Cargo.toml: forgotten of the workspace"]);
}
