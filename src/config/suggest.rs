//! Suggestions for misspelt names: "did you mean …?"

/// Returns the candidate that `word` is probably a misspelling of, if there is one.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters may be wrong: `delya` is `delay`, but `foo` is not `burst`.
    let most = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Joins words: "a", "a or b", "a, b or c".
pub(super) fn or(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [word] => word.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let keys = ["delay", "burst", "max_wait", "max_queue"];
        assert_eq!(nearest("delya", keys), Some("delay"));
        assert_eq!(nearest("maxwait", keys), Some("max_wait"));
        assert_eq!(nearest("colour", keys), None);
    }

    #[test]
    fn words_are_joined_as_one_says_them() {
        let words = ["a", "b", "c"].map(str::to_owned);
        assert_eq!([or(&words), or(&words[..2]), or(&words[..1])], ["a, b or c", "a or b", "a"]);
    }
}
