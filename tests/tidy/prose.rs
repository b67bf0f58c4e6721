//! The rule that comments and pages are written in plain words.

use crate::rules::Problem;

/// Phrases that have a plainer word. `*` stands for any word but "be" and "been", `#` for a number.
const PHRASES: &[&str] = &[
    "nobody",
    "somebody",
    "whoever",
    "be it",
    "for want of",
    "those who",
    "who waits",
    "who comes",
    "who leaves",
    "in place of",
    "to be called once",
    "has * told",
    "has * * told",
    "has * kept",
    "has * * kept",
    "has * woken",
    "has * * woken",
    "has * counted",
    "has * * counted",
    // Pointers to lists that are not in the repository.
    "issue #",
    "item #",
];

/// Finds phrases outside quotes and code. They may go over the end of a line.
pub(crate) fn plain_words(path: &str, prose: &str) -> Vec<Problem> {
    let words = words(prose);
    let mut problems = Vec::new();
    for phrase in PHRASES {
        let wanted: Vec<&str> = phrase.split(' ').collect();
        for found in words.windows(wanted.len()).filter(|found| matches(found, &wanted)) {
            let what = format!("`{phrase}`: say it in plain words");
            problems.push(Problem { file: path.to_owned(), line: found[0].0, what });
        }
    }
    problems
}

fn matches(found: &[(usize, String)], wanted: &[&str]) -> bool {
    let last = wanted.len() - 1;
    found.iter().zip(wanted).enumerate().all(|(at, ((_, word), wanted))| {
        let word = if at == 0 { word.trim_start_matches(|c: char| !c.is_alphanumeric()) } else { word };
        let word = if at == last { word.trim_end_matches(|c: char| !c.is_alphanumeric()) } else { word };
        match *wanted {
            "*" => !["be", "been"].contains(&word) && word.chars().all(char::is_alphanumeric),
            "#" => !word.is_empty() && word.chars().all(|c| c.is_ascii_digit()),
            wanted => word == wanted,
        }
    })
}

/// The words in lower case with their lines. A quotation or a piece of code counts as one word, a fenced block as none.
fn words(prose: &str) -> Vec<(usize, String)> {
    let (mut fenced, mut quote, mut words) = (false, None, Vec::new());
    for (line, text) in (1..).zip(prose.lines()) {
        let text = text.trim_start_matches(|c: char| c.is_whitespace() || "/!#>".contains(c));
        fenced ^= text.starts_with("```");
        if fenced || text.is_empty() {
            quote = None;
            continue;
        }
        let mut plain = String::new();
        for c in text.chars() {
            match quote {
                Some(open) if open == c => quote = None,
                Some(_) => {}
                None => {
                    quote = Some(c).filter(|c| "`\"".contains(*c));
                    plain.push(c);
                }
            }
        }
        words.extend(plain.split_whitespace().map(|word| (line, word.to_lowercase())));
    }
    words
}
