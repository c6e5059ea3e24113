//! Modules of one crate of the core do not import each other in a cycle, except a parent and its child.

use std::collections::{BTreeMap, BTreeSet};

use super::{before_tests, fail_if_any, files, is_test};

/// A module, by its path in its crate; empty for the root of the crate.
type Module = Vec<String>;

/// The paths that a module names: those of its `use`s, and those in its code.
#[derive(Default)]
struct Names {
    uses: Vec<String>,
    paths: Vec<String>,
}

/// The modules of one crate.
type Crate = BTreeMap<Module, Names>;

/// Returns the paths in a tree of a `use`.
fn expand(tree: &str) -> Vec<String> {
    let Some((before, rest)) = tree.split_once('{') else {
        return tree.split(" as ").next().map(|path| path.trim().to_owned()).into_iter().collect();
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut start, mut paths) = (0, 0, Vec::new());
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inner[start..at].trim();
                if !part.is_empty() {
                    paths.extend(expand(&format!("{}{part}", before.trim())));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    paths
}

/// Returns the paths that a source file names outside of its unit tests.
fn names(text: &str) -> Names {
    let lines = before_tests(text).lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = lines.flat_map(|line| [line.split(" //").next().unwrap_or(line), "\n"]).collect();
    let mut found = Names::default();
    for statement in code.split(';') {
        let tree = statement.rfind("use ").filter(|at| {
            let before = statement[..*at].rsplit('\n').next().unwrap_or_default().trim();
            before.is_empty() || before.starts_with("pub")
        });
        found.uses.extend(tree.into_iter().flat_map(|at| expand(&statement[at + "use ".len()..])));
        let of_a_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let words = statement[..tree.unwrap_or(statement.len())].split(|c| !of_a_path(c));
        found.paths.extend(words.filter(|word| word.contains("::")).map(str::to_owned));
    }
    found
}

/// Returns the module of a path, and the first name in the path that is no module.
fn resolve<'p>(all: &Crate, from: &Module, path: &'p str) -> Option<(Module, Option<&'p str>)> {
    let child = |of: &Module, name: &str| -> Option<Module> {
        let child: Module = of.iter().cloned().chain([name.to_owned()]).collect();
        all.contains_key(&child).then_some(child)
    };
    let mut at = from.clone();
    for (n, name) in path.split("::").enumerate() {
        match name {
            "crate" if n == 0 => at.clear(),
            "self" => {}
            "super" => drop(at.pop()?),
            _ => match child(&at, name) {
                Some(module) => at = module,
                None if n == 0 => return None,
                None => return Some((at, Some(name))),
            },
        }
    }
    Some((at, None))
}

/// Returns the module that declares the target of a path; other modules may re-export it.
fn declaring(all: &Crate, from: &Module, path: &str, depth: usize) -> Option<Module> {
    let (module, name) = resolve(all, from, path)?;
    let passes_on = |path: &&String| depth > 0 && path.rsplit("::").next() == name;
    let mut further = all[&module].uses.iter().filter(passes_on);
    Some(further.find_map(|path| declaring(all, &module, path, depth - 1)).unwrap_or(module))
}

/// Returns the imports of a crate that are part of a cycle.
fn circular(all: &Crate) -> Vec<String> {
    let is_parent =
        |one: &Module, other: &Module| other.split_last().is_some_and(|(_, parent)| one == parent);
    let imports = |from: &Module| -> BTreeSet<Module> {
        let paths = all[from].uses.iter().chain(&all[from].paths);
        let modules = paths.filter_map(|path| declaring(all, from, path, 5));
        modules.filter(|to| to != from && !is_parent(to, from) && !is_parent(from, to)).collect()
    };
    let arrows: BTreeMap<&Module, BTreeSet<Module>> = all.keys().map(|from| (from, imports(from))).collect();
    let leads_to = |from: &Module, to: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            if seen.insert(module) {
                next.extend(&arrows[module]);
            }
        }
        seen.contains(to)
    };
    let all_arrows = arrows.iter().flat_map(|(from, imported)| imported.iter().map(move |to| (*from, to)));
    let of_a_circle = all_arrows.filter(|(from, to)| leads_to(to, from));
    of_a_circle.map(|(from, to)| format!("{} imports {}", from.join("::"), to.join("::"))).collect()
}

#[test]
fn modules_of_the_core_import_in_one_direction() {
    let mut crates: BTreeMap<String, Crate> = BTreeMap::new();
    for (path, text) in files(&[".rs"]) {
        if let Some((package, file)) = path.split_once("/src/")
            && path.starts_with("actors/core")
            && !is_test(&path)
        {
            let module = file.trim_end_matches(".rs").split('/').filter(|name| *name != "lib");
            let module = module.map(str::to_owned).collect();
            crates.entry(package.to_owned()).or_default().insert(module, names(&text));
        }
    }
    assert!(crates.values().map(Crate::len).sum::<usize>() > 100, "the sources of the core were not found");
    let of = |(package, all): (&String, &Crate)| {
        circular(all).into_iter().map(|import| format!("{package}: {import}")).collect::<Vec<_>>()
    };
    let offences: Vec<String> = crates.iter().flat_map(of).collect();
    fail_if_any("move shared items into another module", &offences);
}

#[test]
fn cycles_through_other_modules_are_found() {
    let circles = |files: &[(&str, &str)]| {
        let module = |name: &str| name.split_terminator("::").map(str::to_owned).collect();
        circular(&files.iter().map(|(name, text)| (module(name), names(text))).collect())
    };
    let root = ("", "mod a;\nmod b;\nmod c;\npub use a::Item;\n");
    let (a, b) = (("a", "use super::b::{\n    self,\n    Thing,\n};\n"), ("b", "pub struct Thing;\n"));
    assert_eq!(circles(&[root, a, b]), [""; 0]);
    let both = ["a imports b", "b imports a"];
    assert_eq!(circles(&[root, a, ("b", "use crate::Item as Renamed;\n")]), both);
    assert_eq!(circles(&[root, a, ("b", "fn f(item: &super::a::Item) {}\n")]), both);
    assert_eq!(circles(&[root, a, ("b", "// use super::a::Item;\n")]), [""; 0]);
    assert_eq!(
        circles(&[root, a, ("b", "#[cfg(test)]\nmod tests {\n    use super::super::a;\n}\n")]),
        [""; 0]
    );
    let around = [root, a, ("b", "use super::c::C;\n"), ("c", "use super::{Item, b};\n")];
    assert_eq!(circles(&around), ["a imports b", "b imports c", "c imports a", "c imports b"]);
    let child = [root, a, ("b", "mod d;\nuse d::D;\n"), ("b::d", "use super::Thing;\nuse crate::a::Item;\n")];
    assert_eq!(circles(&child), [""; 0], "a parent and its child are one");
}
