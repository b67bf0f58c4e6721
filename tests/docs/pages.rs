//! Links between pages lead somewhere, and the site has every page.
//!
//! A link is checked if it is relative: its file must exist, and its anchor must be a heading of that file. mdBook
//! and GitHub name anchors by the same rules. Links to other sites are not checked: tests need no internet.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The pages outside `docs/`.
const AT_THE_TOP: &[&str] =
    &["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "AGENTS.md", "llms.txt"];
const SUMMARY: &str = "docs/SUMMARY.md";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text_of(page: &Path) -> String {
    fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// Every page below `docs/`, relative to the repository.
pub(crate) fn pages() -> Vec<PathBuf> {
    let (mut pages, mut folders) = (Vec::new(), vec![PathBuf::from("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a readable folder").flatten() {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The lines of a text outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The targets of the links in a text, with their lines. A link in code is not a link.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Every second piece is code. What is left keeps its order, so `[`code`](target)` is still a link.
        let plain: String = line.split('`').step_by(2).collect();
        for piece in plain.split("](").skip(1) {
            found.extend(piece.split_once(')').map(|(target, _)| (number, target.to_owned())));
        }
    }
    found
}

/// The anchors of a text's headings: lower case, without punctuation, spaces as dashes. A repeated one gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.strip_prefix(' ')).flatten()
    });
    let mut found = BTreeSet::new();
    for heading in headings {
        let title: String =
            heading.split("](").map(|part| part.split_once(')').map_or(part, |(_, rest)| rest)).collect();
        let title = title.trim().to_lowercase().replace(' ', "-");
        let anchor: String = title.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect();
        let repeated = times.entry(anchor.clone()).or_default();
        found.insert(if *repeated == 0 { anchor } else { format!("{anchor}-{repeated}") });
        *repeated += 1;
    }
    found
}

/// `docs/guides` and `../api.md` are `docs/api.md`. None if the link leads out of the repository.
fn joined(folder: &Path, target: &str) -> Option<PathBuf> {
    let mut path = folder.to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => path.pop().then_some(())?,
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// What is wrong with the links of a page.
fn broken(page: &Path, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (line, link) in links(text) {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = link.split_once('#').map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
        let folder = page.parent().unwrap_or(Path::new(""));
        let path = if file.is_empty() { Some(page.to_owned()) } else { joined(folder, file) };
        let problem = match (path.filter(|path| root().join(path).exists()), anchor) {
            (None, _) => "leads to no file",
            (Some(path), Some(anchor)) if path != page && !anchors(&text_of(&path)).contains(anchor) => {
                "leads to no heading"
            }
            (Some(path), Some(anchor)) if path == page && !anchors(text).contains(anchor) => "leads to no heading",
            _ => continue,
        };
        problems.push(format!("{}:{line}: {link} {problem}", page.display()));
    }
    problems
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages().into_iter().chain(AT_THE_TOP.iter().map(PathBuf::from));
    let problems: Vec<String> = pages.flat_map(|page| broken(&page, &text_of(&page))).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_broken_link_is_noticed() {
    let text = "# A `b`: c\n## Two\n## Two\n```sh\n# not one\n[x](nowhere.md)\n```\n\
        [1](#a-b-c) [2](#two-1) [3](api.md) [`4`](../README.md#https) [5](https://example.com/#x) `[6](code)`\n\
        [7](#not-one) [8](nowhere.md)\n[9](api.md#nowhere) [10](../../outside) ![11](images/none.png)\n";
    let page = Path::new("docs/pacing.md");
    let expected = [
        "docs/pacing.md:9: #not-one leads to no heading",
        "docs/pacing.md:9: nowhere.md leads to no file",
        "docs/pacing.md:10: api.md#nowhere leads to no heading",
        "docs/pacing.md:10: ../../outside leads to no file",
        "docs/pacing.md:10: images/none.png leads to no file",
    ];
    assert_eq!(broken(page, text), expected);
}

#[test]
fn the_site_has_every_page_once() {
    let summary = text_of(Path::new(SUMMARY));
    let mut listed: Vec<PathBuf> =
        links(&summary).iter().filter_map(|(_, link)| joined(Path::new("docs"), link)).collect();
    listed.sort();
    let pages: Vec<PathBuf> = pages().into_iter().filter(|page| page != Path::new(SUMMARY)).collect();
    assert_eq!(listed, pages, "{SUMMARY} on the left, the pages below docs/ on the right");
}

/// What a page begins with below its title, if that is not a sentence or a command.
fn bad_start(text: &str) -> Option<&str> {
    let mut lines = text.lines().filter(|line| !line.is_empty());
    let title = lines.next().unwrap_or_default();
    let next = lines.next().unwrap_or_default();
    if !title.starts_with("# ") {
        return Some(title);
    }
    next.starts_with(['#', '|', '-', '!']).then_some(next)
}

/// A reader learns in the first lines what the page is good for.
#[test]
fn every_page_starts_with_what_it_gives() {
    for page in pages().into_iter().filter(|page| page != Path::new(SUMMARY)) {
        assert_eq!(bad_start(&text_of(&page)), None, "{}: write a sentence below the title", page.display());
    }
}

#[test]
fn a_page_without_a_start_is_noticed() {
    assert_eq!(bad_start("# Title\n\nWhat you get.\n"), None);
    assert_eq!(bad_start("# Title\n\n```sh\ncurtsy\n```\n"), None);
    assert_eq!(bad_start("# Title\n\n| a |\n"), Some("| a |"));
    assert_eq!(bad_start("What\n"), Some("What"));
}
