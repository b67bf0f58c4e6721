//! Everything a robots.txt says, for the operator to look at.
//!
//! Not for the request path: it keeps the text as written, including what curtsy does not act on and rules that apply
//! to no client. Promises: groups, names and delays are those that [`Rules`](super::Rules) uses. Text is the original
//! as UTF-8; code that displays it must escape it.

use std::time::Duration;

use super::line::{self, Key, MAX_BODY, RobotsLine};
use super::{ask, parse};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// In the order of the file. Groups of one name are not merged.
    pub groups: Vec<SurveyGroup>,
    /// Sitemaps, which belong to no group, and other notes before the first group.
    pub notes: Vec<SurveyNote>,
    /// The file is longer than what is read.
    pub is_cut: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SurveyGroup {
    /// Empty if the rules are before the first User-agent line: they apply to no client.
    pub names: Vec<Name>,
    pub rules: Vec<WrittenRule>,
    pub notes: Vec<SurveyNote>,
}

/// A User-agent line.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    pub line: u32,
    pub written: String,
    /// What clients are compared with: a product token in lower case or `*`; `None` if the line names no client.
    pub token: Option<String>,
    /// The delay that the group asks of this name.
    pub delay: Option<Duration>,
}

/// An Allow or Disallow line. A line with an empty path has no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenRule {
    pub line: u32,
    pub allow: bool,
    pub path: String,
}

/// Something that is shown but not enforced.
#[derive(Clone, Debug, PartialEq)]
pub struct SurveyNote {
    pub line: u32,
    pub kind: NoteKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    Sitemap,
    /// Cloudflare's `search=yes, ai-train=no`.
    ContentSignal,
    /// The IETF's `/path train-ai=n` (draft-ietf-aipref-attach).
    ContentUsage,
    VisitTime,
    /// As written. The resulting delay is stored with the names.
    CrawlDelay,
    RequestRate,
}

impl NoteKind {
    /// The key, in its usual spelling.
    pub fn key(self) -> &'static str {
        match self {
            NoteKind::Sitemap => "Sitemap",
            NoteKind::ContentSignal => "Content-Signal",
            NoteKind::ContentUsage => "Content-Usage",
            NoteKind::VisitTime => "Visit-time",
            NoteKind::CrawlDelay => "Crawl-delay",
            NoteKind::RequestRate => "Request-rate",
        }
    }
}

impl Survey {
    pub fn of(body: &[u8]) -> Survey {
        let mut surveyor = Surveyor::default();
        line::lines(body).for_each(|line| surveyor.take(&line));
        surveyor.end_group();
        Survey { is_cut: body.len() > MAX_BODY, ..surveyor.survey }
    }
}

/// Follows the same rules as the parser of [`Rules`](super::Rules), which `parse` explains.
#[derive(Default)]
struct Surveyor {
    survey: Survey,
    group: SurveyGroup,
    undelayed: usize,
    delayed: bool,
}

impl Surveyor {
    fn take(&mut self, line: &RobotsLine<'_>) {
        match line.key {
            Key::UserAgent => self.take_name(line),
            Key::Allow => self.take_rule(line, true),
            Key::Disallow => self.take_rule(line, false),
            Key::CrawlDelay => {
                self.take_delay(ask::crawl_delay(line.value));
                self.take_note(line, NoteKind::CrawlDelay);
            }
            Key::RequestRate => {
                self.take_delay(ask::request_rate(line.value));
                self.take_note(line, NoteKind::RequestRate);
            }
            Key::Sitemap => self.take_note(line, NoteKind::Sitemap),
            Key::ContentSignal => self.take_note(line, NoteKind::ContentSignal),
            Key::ContentUsage => self.take_note(line, NoteKind::ContentUsage),
            Key::VisitTime => self.take_note(line, NoteKind::VisitTime),
        }
    }

    fn take_name(&mut self, line: &RobotsLine<'_>) {
        if !self.group.rules.is_empty() {
            self.end_group();
        }
        if std::mem::take(&mut self.delayed) {
            self.undelayed = self.group.names.len();
        }
        let token = parse::group_token(line.value).map(|token| if token.is_empty() { b"*" } else { token });
        self.group.names.push(Name {
            line: line.number,
            written: text(line.value),
            token: token.map(|token| text(token).to_ascii_lowercase()),
            delay: None,
        });
    }

    fn take_rule(&mut self, line: &RobotsLine<'_>, allow: bool) {
        self.group.rules.push(WrittenRule { line: line.number, allow, path: text(line.value) });
    }

    fn take_delay(&mut self, delay: Option<Duration>) {
        self.delayed = true;
        for name in &mut self.group.names[self.undelayed..] {
            name.delay = name.delay.max(delay);
        }
    }

    fn take_note(&mut self, line: &RobotsLine<'_>, kind: NoteKind) {
        let note = SurveyNote { line: line.number, kind, text: text(line.value) };
        let in_group = kind != NoteKind::Sitemap && !self.group.names.is_empty();
        if in_group { self.group.notes.push(note) } else { self.survey.notes.push(note) }
    }

    fn end_group(&mut self) {
        let group = std::mem::take(&mut self.group);
        if group != SurveyGroup::default() {
            self.survey.groups.push(group);
        }
        (self.undelayed, self.delayed) = (0, false);
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(group: &SurveyGroup) -> Vec<(u32, &str, Option<&str>, Option<u64>)> {
        let name = |name: &'_ Name| name.delay.map(|delay| delay.as_secs());
        group.names.iter().map(|n| (n.line, n.written.as_str(), n.token.as_deref(), name(n))).collect()
    }

    #[test]
    fn everything_is_told_with_its_line() {
        let survey = Survey::of(
            b"Sitemap: https://a.test/s.xml\n\
              User-agent: FooBot/1.0\n\
              Crawl-delay: 5\n\
              User-agent: *\n\
              Content-Signal: search=yes, ai-train=no\n\
              Disallow: /a%7eb\n\
              Allow:\n\
              Visit-time: 0600-0845\n\
              Sitemap: https://a.test/t.xml\n\
              User-agent: *bot\n\
              Content-Usage: /x train-ai=n\n",
        );
        let [first, second] = &survey.groups[..] else { panic!("{survey:?}") };
        assert_eq!(names(first), [(2, "FooBot/1.0", Some("foobot"), Some(5)), (4, "*", Some("*"), None)]);
        let rule = |line, allow, path: &str| WrittenRule { line, allow, path: path.to_owned() };
        assert_eq!(first.rules, [rule(6, false, "/a%7eb"), rule(7, true, "")]);
        let kinds = |notes: &[SurveyNote]| notes.iter().map(|note| (note.line, note.kind)).collect::<Vec<_>>();
        let expected = [(3, NoteKind::CrawlDelay), (5, NoteKind::ContentSignal), (8, NoteKind::VisitTime)];
        assert_eq!(kinds(&first.notes), expected);
        assert_eq!(names(second), [(10, "*bot", None, None)]);
        assert_eq!(second.notes[0].text, "/x train-ai=n");
        assert_eq!(kinds(&survey.notes), [(1, NoteKind::Sitemap), (9, NoteKind::Sitemap)]);
    }

    #[test]
    fn rules_without_a_client_are_shown_as_such() {
        let survey = Survey::of(b"Disallow: /x\nCrawl-delay: 3\nUser-agent: a\nDisallow: /y\n");
        assert_eq!(survey.groups.len(), 2);
        assert_eq!((survey.groups[0].names.len(), survey.groups[0].rules.len()), (0, 1));
        assert_eq!(survey.notes[0].kind, NoteKind::CrawlDelay);
        assert_eq!(names(&survey.groups[1]), [(3, "a", Some("a"), None)]);
    }

    #[test]
    fn a_file_too_long_is_said_to_be_cut() {
        assert!(!Survey::of(&vec![b'x'; MAX_BODY]).is_cut);
        assert!(Survey::of(&vec![b'x'; MAX_BODY + 1]).is_cut);
        assert_eq!(Survey::of(b"\xff\xfe"), Survey::default());
    }
}
