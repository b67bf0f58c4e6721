//! One Rust file, read just well enough to check rules about it.
//!
//! A scanner, not a parser: it blanks what is not code (comments, literals) and what is not shipped (`#[cfg(test)]`
//! items). It keeps every line break, so that a byte offset gives the line. It has no rules of its own; they are in
//! `tidy/rules.rs`.

use std::ops::Range;

/// A file of the tree, in four views of the same length.
pub(crate) struct Source {
    /// Relative to the root of the repository, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// `text` with comments and literals blanked.
    pub(crate) code: String,
    /// `code` with test-only items blanked: the shipped code.
    pub(crate) product: String,
    /// `text` with everything but comments blanked.
    pub(crate) comments: String,
}

/// A shipped function that has a body.
pub(crate) struct Function<'s> {
    pub(crate) name: &'s str,
    pub(crate) line: usize,
    pub(crate) lines: usize,
    /// Without `self`.
    pub(crate) parameters: usize,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (code, comments) = code_and_comments(text);
        let product = blank_tests(&code);
        Source { path: path.to_owned(), text: text.to_owned(), code, product, comments }
    }

    /// Marks the file as a `#[cfg(test)] mod name;` declared elsewhere: nothing of it is shipped.
    pub(crate) fn test_only(mut self) -> Self {
        self.product = blanked(&self.code, 0..self.code.len());
        self
    }

    /// `["proxy", "target"]` for `src/proxy/target.rs`; empty for the crate root and for files outside `src`.
    pub(crate) fn module(&self) -> Vec<&str> {
        let Some(inside) = self.path.strip_prefix("src/").and_then(|path| path.strip_suffix(".rs")) else {
            return Vec::new();
        };
        let mut module: Vec<&str> = inside.split('/').collect();
        module.pop_if(|last| *last == "mod");
        if matches!(module[..], ["main" | "lib"]) { Vec::new() } else { module }
    }

    /// The files that may hold the modules which this one declares for tests only.
    pub(crate) fn test_modules(&self) -> Vec<String> {
        let beside = self.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let below = match self.module()[..] {
            [] => "src".to_owned(),
            ref module => format!("src/{}", module.join("/")),
        };
        let files = test_items(&self.code).into_iter().flat_map(|item| {
            let declaration = self.code[item.clone()].trim_end().strip_suffix(';');
            let Some((_, name)) = declaration.and_then(|mod_name| mod_name.rsplit_once("mod ")) else {
                return Vec::new();
            };
            let attribute = self.text[item].split_once("#[path = \"").and_then(|(_, path)| path.split_once('"'));
            match attribute {
                Some((path, _)) => vec![format!("{beside}/{path}")],
                None => vec![format!("{below}/{name}.rs"), format!("{below}/{name}/mod.rs")],
            }
        });
        files.collect()
    }

    /// Lines with something shipped on them, blank lines and comments between them included.
    pub(crate) fn product_lines(&self) -> usize {
        if self.product.trim().is_empty() {
            return 0;
        }
        let tested: usize = test_items(&self.code).into_iter().map(|item| self.code[item].lines().count()).sum();
        self.text.lines().count().saturating_sub(tested)
    }

    /// Every path in the product that begins at `root` (`crate`, `std`), braces expanded: `std::{fs, io::Read}` gives
    /// `["fs"]` and `["io", "Read"]`. Each comes with its line.
    pub(crate) fn paths_from(&self, root: &str) -> Vec<(usize, Vec<String>)> {
        let start = format!("{root}::");
        let product = &self.product;
        let starts = |&at: &usize| product[at..].starts_with(&start) && !product[..at].ends_with("::");
        let mut found = Vec::new();
        for at in words_at(product, root).filter(starts) {
            let mut paths = Vec::new();
            expand(&product[at + start.len()..], &[], &mut paths);
            found.extend(paths.into_iter().map(|path| (line_of(product, at), path)));
        }
        found
    }

    pub(crate) fn functions(&self) -> Vec<Function<'_>> {
        let product = &self.product;
        let functions = words_at(product, "fn").filter_map(|at| {
            let name = word(product[at + 2..].trim_start());
            let end = item_end(product, at);
            let (line, lines) = (line_of(product, at), product[at..end].lines().count());
            let parameters = parameters(&product[at..end]);
            (!name.is_empty() && product[..end].ends_with('}')).then_some(Function { name, line, lines, parameters })
        });
        functions.collect()
    }

    /// Line and name of each shipped struct, enum and trait.
    pub(crate) fn types(&self) -> Vec<(usize, &str)> {
        let product = &self.product;
        let types = ["struct", "enum", "trait"].into_iter().flat_map(|keyword| {
            let name = move |at: usize| word(product[at + keyword.len()..].trim_start());
            words_at(product, keyword).map(move |at| (line_of(product, at), name(at)))
        });
        types.filter(|(_, name)| !name.is_empty()).collect()
    }

    /// Line and name of each type, trait and module that is declared. Associated types are left out: the trait, which
    /// may be another crate's, named them.
    pub(crate) fn declared_names(&self) -> Vec<(usize, &str)> {
        let code = &self.code;
        let at_top = |at: usize| code[..at].matches('{').count() == code[..at].matches('}').count();
        let keywords = ["struct", "enum", "trait", "type", "union", "mod"];
        let declared = keywords.into_iter().flat_map(|keyword| {
            words_at(code, keyword)
                .filter(move |&at| keyword != "type" || at_top(at))
                .map(move |at| (line_of(code, at), word(code[at + keyword.len()..].trim_start())))
        });
        declared.filter(|(_, name)| !name.is_empty()).collect()
    }
}

/// The line, counted from 1, that holds the byte at `offset`.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// The positions of `wanted` as a whole word (it may contain `::` or end in `!`).
pub(crate) fn words_at<'t>(text: &'t str, wanted: &'t str) -> impl Iterator<Item = usize> + 't {
    text.match_indices(wanted).map(|(at, _)| at).filter(move |&at| {
        let before = text[..at].chars().next_back();
        let after = text[at + wanted.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The word at the start of the text, empty if there is none.
pub(crate) fn word(text: &str) -> &str {
    text.split(|c| !is_word(c)).next().unwrap_or_default()
}

/// Reads one use tree, adds its leaves to `paths`, and returns the rest of `text`.
fn expand<'t>(text: &'t str, prefix: &[String], paths: &mut Vec<Vec<String>>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = expand(rest, prefix, paths).trim_start();
            match rest.strip_prefix(',') {
                Some(more) if !more.trim_start().starts_with('}') => rest = more,
                Some(more) => return more.trim_start().strip_prefix('}').unwrap_or(more),
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let segment = if text.starts_with('*') { "*" } else { word(text) };
    let path = [prefix, &[segment.to_owned()]].concat();
    let rest = &text[segment.len()..];
    match rest.strip_prefix("::") {
        Some(below) if !segment.is_empty() && !below.starts_with('<') => expand(below, &path, paths),
        _ => {
            paths.push(path);
            let renamed = rest.trim_start().strip_prefix("as ").map(str::trim_start);
            renamed.map_or(rest, |alias| &alias[word(alias).len()..])
        }
    }
}

/// The text with everything in `range` but its line breaks turned into spaces.
fn blanked(text: &str, range: Range<usize>) -> String {
    let blank: String = text[range.clone()].chars().flat_map(blank_char).collect();
    [&text[..range.start], &blank, &text[range.end..]].concat()
}

/// As many spaces as the character has bytes, so that offsets stay true.
fn blank_char(c: char) -> impl Iterator<Item = char> + Clone {
    let (fill, times) = if c == '\n' { ('\n', 1) } else { (' ', c.len_utf8()) };
    std::iter::repeat_n(fill, times)
}

/// The text without comments and literals, and the comments alone; what is left out is blank.
fn code_and_comments(text: &str) -> (String, String) {
    let (mut code, mut comments) = (String::with_capacity(text.len()), String::with_capacity(text.len()));
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let in_word = text[..at].chars().next_back().is_some_and(is_word);
        let literal = literal_len(&text[at..], in_word);
        let part = &text[at..at + literal.max(c.len_utf8())];
        let blank = part.chars().flat_map(blank_char);
        match literal {
            0 => (code.push(c), comments.extend(blank)),
            _ if c == '/' => (code.extend(blank), comments.push_str(part)),
            _ => (code.extend(blank.clone()), comments.extend(blank)),
        };
        at += part.len();
    }
    (code, comments)
}

/// The number of parameters of the function at the start of `code`, without `self`.
fn parameters(code: &str) -> usize {
    let (mut depth, mut angles, mut start) = (0, 0, None);
    let mut list = Vec::new();
    for (at, c) in code.char_indices() {
        match c {
            '(' if depth == 0 && angles == 0 => (depth, start) = (1, Some(at + 1)),
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '<' => angles += 1,
            '>' if !code[..at].ends_with('-') => angles -= 1,
            _ => {}
        }
        let between = c == ',' && depth == 1;
        if let Some(from) = start.filter(|_| angles == 0 && (between || depth == 0)) {
            list.push(code[from..at].trim());
            start = Some(at + 1);
            if depth == 0 {
                break;
            }
        }
    }
    list.into_iter().filter(|parameter| !parameter.is_empty() && words_at(parameter, "self").next().is_none()).count()
}

/// The length in bytes of the comment or literal at the start of `text`; 0 if there is none.
fn literal_len(text: &str, in_word: bool) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment_len(text);
    }
    if text.starts_with('"') {
        return quoted_len(text, '"');
    }
    if text.starts_with('\'') {
        return char_len(text);
    }
    if in_word { 0 } else { raw_string_len(text) }
}

fn block_comment_len(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

fn quoted_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal; a lifetime has no quote after its first character.
fn char_len(text: &str) -> usize {
    let mut inside = text.chars().skip(1);
    match (inside.next(), inside.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted_len(text, '\''),
        _ => 0,
    }
}

fn raw_string_len(text: &str) -> usize {
    let Some(opening) = ["r", "br", "cr"].iter().find_map(|prefix| text.strip_prefix(prefix)) else { return 0 };
    let hashes = opening.len() - opening.trim_start_matches('#').len();
    let Some(inside) = opening[hashes..].strip_prefix('"') else { return 0 };
    let closing = format!("\"{}", "#".repeat(hashes));
    let len = inside.find(&closing).map_or(inside.len(), |at| at + closing.len());
    text.len() - inside.len() + len
}

fn blank_tests(code: &str) -> String {
    test_items(code).into_iter().fold(code.to_owned(), |code, item| blanked(&code, item))
}

/// The ranges of the items under `#[cfg(test)]`, including the attribute.
fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut items: Vec<Range<usize>> = Vec::new();
    for (at, _) in code.match_indices("#[cfg(test)]") {
        if items.last().is_none_or(|last| last.end <= at) {
            items.push(at..item_end(code, at));
        }
    }
    items
}

/// The position after the `;` or the closing brace that ends the item at `start`.
fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0usize;
    for (at, c) in code[start..].char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && matches!(c, ';' | '}') {
            return start + at + 1;
        }
    }
    code.len()
}
