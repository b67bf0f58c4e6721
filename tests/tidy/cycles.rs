//! The rule that files of one folder do not use each other in a circle.
//!
//! A file and the folder of its name count as one. `mod.rs` and the folder above do not count: they join the files. The
//! arrows between the folders of `src` itself are in `MAY_USE`.

use std::collections::{BTreeMap, BTreeSet};

use crate::rules::{Problem, crate_paths};
use crate::source::Source;

/// Each file, with the files beside it that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Finds circles that the list does not name, and names in the list that are no circle any more.
pub(crate) fn cycles(sources: &[Source], allowed: &[(&str, &str)]) -> Vec<Problem> {
    let found = circles(&uses(sources));
    let is_allowed = |circle: &str| allowed.iter().any(|(name, _)| *name == circle);
    let new = found.iter().filter(|circle| !is_allowed(circle)).map(|circle| format!("a circle: {circle}"));
    let stale = allowed.iter().filter(|(name, _)| !found.contains(*name));
    let stale = stale.map(|(name, _)| format!("no circle any more, remove it from CYCLES: {name}"));
    new.chain(stale).map(|what| Problem { file: "src".to_owned(), line: 1, what }).collect()
}

fn uses(sources: &[Source]) -> Uses {
    let files: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    let file =
        |path: &[String]| Some(format!("src/{}.rs", path.join("/"))).filter(|file| files.contains(file.as_str()));
    let mut uses = Uses::new();
    for source in sources {
        let module: Vec<String> = source.module().into_iter().map(str::to_owned).collect();
        for (_, path) in crate_paths(source) {
            let common = module.iter().zip(&path).take_while(|(mine, other)| mine == other).count();
            if common == 0 || common >= module.len().min(path.len()) {
                continue;
            }
            if let (Some(from), Some(to)) = (file(&module[..=common]), file(&path[..=common])) {
                uses.entry(from).or_default().insert(to);
            }
        }
    }
    uses
}

/// The sets of files that all reach each other, each as the list of its paths.
fn circles(uses: &Uses) -> BTreeSet<String> {
    let reach: Uses = uses.keys().map(|file| (file.clone(), reachable(uses, file))).collect();
    let around = reach.iter().filter(|(file, reached)| reached.contains(*file));
    let circles = around.map(|(file, reached)| {
        let back = |other: &&String| reach.get(*other).is_some_and(|reached| reached.contains(file));
        reached.iter().filter(back).map(String::as_str).collect::<Vec<_>>().join(" ")
    });
    circles.collect()
}

fn reachable(uses: &Uses, from: &str) -> BTreeSet<String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        let used = uses.get(file).into_iter().flatten();
        next.extend(used.filter(|used| reached.insert((*used).clone())).map(String::as_str));
    }
    reached
}
