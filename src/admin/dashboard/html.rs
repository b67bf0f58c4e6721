//! HTML that is safe to send: text becomes [`Html`] only by being escaped, and pages consist of nothing else.

/// A piece of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Html(String);

impl Html {
    /// Escapes the text, so that it stays text in an element or in an attribute.
    pub(super) fn text(text: &str) -> Html {
        let mut html = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '&' => html.push_str("&amp;"),
                '<' => html.push_str("&lt;"),
                '>' => html.push_str("&gt;"),
                '"' => html.push_str("&quot;"),
                '\'' => html.push_str("&#39;"),
                c => html.push(c),
            }
        }
        Html(html)
    }

    /// Takes HTML from the source code as it is.
    pub(super) fn raw(html: &'static str) -> Html {
        Html(html.to_owned())
    }

    pub(super) fn number(number: impl Into<u64>) -> Html {
        Html(grouped(number.into()))
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

impl FromIterator<Html> for Html {
    fn from_iter<I: IntoIterator<Item = Html>>(pieces: I) -> Html {
        Html(pieces.into_iter().map(|piece| piece.0).collect())
    }
}

/// Puts pieces into the placeholders of a template: `{{name}}`.
pub(super) fn fill(template: &'static str, pieces: &[(&str, Html)]) -> Html {
    let mut html = String::with_capacity(template.len() * 2);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("every place in our templates is closed");
        let piece = pieces.iter().find(|(known, _)| *known == name);
        html.push_str(before);
        html.push_str(&piece.expect("there is a piece for every place").1.0);
        rest = after;
    }
    html.push_str(rest);
    Html(html)
}

/// Formats a time for people; the same as in `web/format.js`.
pub(super) fn span(ms: u64) -> String {
    match ms {
        0 => "0 s".to_owned(),
        1..10_000 => format!("{} s", ((ms as f64 / 100.0).round() / 10.0).max(0.1)),
        10_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}

/// Formats when something happens that is this many seconds from now.
pub(super) fn until(seconds: Option<f64>) -> Html {
    match seconds {
        None => Html::raw("–"),
        Some(0.0) => Html::raw("now"),
        Some(seconds) => Html::text(&span((seconds * 1e3) as u64)),
    }
}

/// Formats 1 234 567, with thin spaces that do not break.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(Html::text("<a b=\"c\" d='e'>&"), Html("&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;".into()));
    }

    #[test]
    fn what_is_put_in_a_place_is_not_looked_through_again() {
        let pieces = [("a", Html::text("{{b}}")), ("b", Html::text("x"))];
        assert_eq!(fill("1{{a}}2{{b}}3", &pieces).into_string(), "1{{b}}2x3");
    }

    #[test]
    fn times_and_numbers_are_short() {
        let told: Vec<String> =
            [0, 20, 1_000, 2_340, 4_990, 12_900, 119_000, 125_000, 7_200_000, 900_000_000].map(span).to_vec();
        assert_eq!(told, ["0 s", "0.1 s", "1 s", "2.3 s", "5 s", "12 s", "119 s", "2 min", "2 h", "10 d"]);
        assert_eq!([grouped(0), grouped(1_234_567)], ["0", "1\u{202f}234\u{202f}567"]);
    }
}
