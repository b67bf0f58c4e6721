//! The report about a robots.txt: the answer of the API and of `curtsy robots`.
//!
//! Built from what decides about a request (the record, its rules, the policy of the host), so it always says what
//! happens. The text of the file is included only if it was just fetched, because it is not stored. Text from the file
//! is unchanged; code that prints it must escape it. Fields are an interface: add, never rename.

use serde::{Deserialize, Serialize};

use super::fetch::FetchResult;
use super::question::Question;
use crate::politeness::fault::{HostReply, OriginFault};
use crate::politeness::policy::{self, Policy};
use crate::politeness::robots::reply::{self, RecordLook, RobotsRecordState, Says, TroubleKind};
use crate::politeness::robots::survey::{self, Survey};
use crate::politeness::robots::{Agents, Choice, MAX_BODY, Rule, Rules};
use crate::politeness::time::{Timestamp, millis};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub url: String,
    pub verdict: ReportVerdict,
    pub reason: Reason,
    /// The rule that decides.
    pub rule: Option<RuleLine>,
    /// The name of the group that applies to the client.
    pub group: Option<String>,
    /// The names by which the client looks for its group.
    pub agents: Vec<String>,
    pub agents_from: AgentsFrom,
    /// robots.txt does not apply to this client (`robots.exempt_user_agents`).
    pub exempt: bool,
    /// How curtsy applies robots.txt to this host.
    pub mode: ReportMode,
    /// Whether curtsy itself answers a GET of this URL.
    pub refused: bool,
    /// Whether everything is forbidden. This is the only rule that also applies to a tunnel.
    pub everything_denied: bool,
    pub delay: Delay,
    /// All rules of the group.
    pub rules: Vec<RuleLine>,
    pub file: FileReport,
    /// Why the file could not be fetched lately.
    pub trouble: Option<TroubleReport>,
    /// What else the file says to this client; `None` if the file was not fetched for this report.
    pub notes: Option<Vec<ReportNote>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportVerdict {
    Allowed,
    Denied,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    Rule,
    /// No rule of the group matches the path.
    NoRule,
    NoGroup,
    NoFile,
    /// robots.txt itself may always be fetched.
    RobotsTxt,
    Unreachable,
    Throttled,
    /// Comparing the path with the rules would take too much work, so it is denied.
    TooComplicated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentsFrom {
    UserAgent,
    /// `robots.user_agent`.
    Configuration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportMode {
    Enforce,
    Warn,
    Off,
}

/// A rule and its line, in canonical spelling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleLine {
    pub line: u32,
    pub rule: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// Between two requests, by Crawl-delay or Request-rate.
    pub asked_ms: Option<u64>,
    /// The delay that curtsy obeys.
    pub obeyed_ms: u64,
    /// `robots.max_crawl_delay` limits the delay.
    pub capped: bool,
    /// The configured delay of this host.
    pub configured_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReport {
    /// Where the file was found, or where it should be.
    pub url: String,
    /// The redirects that led there.
    pub redirects: Vec<String>,
    /// `None` if unknown.
    pub exists: Option<bool>,
    /// Whether it was fetched for this report. If not, it was known.
    pub fetched: bool,
    pub status: Option<u16>,
    pub size_bytes: Option<u64>,
    /// The file is longer than what is read.
    pub cut: bool,
    pub age_s: Option<u64>,
    /// For how long it will be used without asking again.
    pub fresh_s: Option<u64>,
    pub error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TroubleReport {
    /// The origin answered 429.
    pub throttled: bool,
    /// The status of the last answer; none if there was no answer.
    #[serde(default)]
    pub status: Option<u16>,
    /// Why there was no answer, in one word.
    #[serde(default)]
    pub fault: Option<String>,
    pub times: u32,
    pub since_s: u64,
    /// The earliest time of the next fetch.
    pub retry_after_s: u64,
}

/// A line that curtsy shows but does not act on, except for delays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportNote {
    pub line: u32,
    pub key: String,
    pub text: String,
}

/// The input of a report.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub question: &'a Question,
    pub agents: &'a Agents,
    pub agents_from: AgentsFrom,
    pub exempt: bool,
    pub policy: &'a Policy,
    /// `robots.crawl_delay`.
    pub obeys_delay: bool,
    /// Whether an unknown file denies.
    pub denies_unknown: bool,
    pub applies_to_get: bool,
    pub record: Option<&'a RobotsRecordState>,
    /// The fetch for this report, if any.
    pub seen: Option<&'a FetchResult>,
    pub now: Timestamp,
}

impl Report {
    pub fn new(facts: &Facts<'_>) -> Report {
        let look = facts.record.map(|record| record.look(facts.now));
        let rules = match &look {
            Some(RecordLook::Use(Says::Rules(rules)) | RecordLook::UseAndRefresh(Says::Rules(rules))) => {
                Some(rules.as_ref())
            }
            _ => None,
        };
        let (verdict, reason, rule) = facts.judge(look.as_ref(), rules);
        let enforced = facts.policy.robots == policy::RobotsMode::Enforce && !facts.exempt && facts.applies_to_get;
        let unwelcome = verdict == ReportVerdict::Denied || (verdict == ReportVerdict::Unknown && facts.denies_unknown);
        let choice = rules.map_or(Choice::Nobody, |rules| rules.choice(facts.agents));
        Report {
            url: facts.question.url(),
            verdict,
            reason,
            rule: rule.map(RuleLine::from),
            group: name(choice).map(str::to_owned),
            agents: facts.agents.tokens().map(str::to_owned).collect(),
            agents_from: facts.agents_from,
            exempt: facts.exempt,
            mode: facts.policy.robots.into(),
            refused: enforced && unwelcome,
            everything_denied: rules.is_some_and(|rules| rules.denies_everything(facts.agents).is_some()),
            delay: facts.delay(rules),
            rules: rules.map(|rules| rules.rules(facts.agents).map(RuleLine::from).collect()).unwrap_or_default(),
            file: facts.file(look.as_ref()),
            trouble: facts
                .record
                .and_then(|record| record.trouble)
                .map(|trouble| TroubleReport::at(facts.now, trouble)),
            notes: facts.seen.map(|seen| notes(&Survey::of(&seen.body), choice, facts.agents)),
        }
    }
}

impl Facts<'_> {
    fn judge<'r>(
        &self,
        look: Option<&RecordLook<'_>>,
        rules: Option<&'r Rules>,
    ) -> (ReportVerdict, Reason, Option<Rule<'r>>) {
        if self.question.path == "/robots.txt" {
            return (ReportVerdict::Allowed, Reason::RobotsTxt, None);
        }
        let Some(rules) = rules else {
            return match look {
                Some(RecordLook::Use(_) | RecordLook::UseAndRefresh(_)) => {
                    (ReportVerdict::Allowed, Reason::NoFile, None)
                }
                Some(RecordLook::Refuse { kind: TroubleKind::Throttled, .. }) => {
                    (ReportVerdict::Unknown, Reason::Throttled, None)
                }
                _ => (ReportVerdict::Unknown, Reason::Unreachable, None),
            };
        };
        let found = rules.verdict(self.agents, &self.question.path);
        let verdict = if found.allowed { ReportVerdict::Allowed } else { ReportVerdict::Denied };
        let reason = match (found.rule, rules.choice(self.agents)) {
            _ if found.too_complicated => Reason::TooComplicated,
            (Some(_), _) => Reason::Rule,
            (None, Choice::Nobody) => Reason::NoGroup,
            (None, _) => Reason::NoRule,
        };
        (verdict, reason, found.rule)
    }

    fn delay(&self, rules: Option<&Rules>) -> Delay {
        let asked = rules.and_then(|rules| rules.delay(self.agents));
        let counts = self.obeys_delay && !self.exempt && self.policy.robots != policy::RobotsMode::Off;
        let obeyed = asked.filter(|_| counts).unwrap_or_default();
        Delay {
            asked_ms: asked.map(millis),
            obeyed_ms: millis(obeyed.min(self.policy.max_crawl_delay)),
            capped: obeyed > self.policy.max_crawl_delay,
            configured_ms: millis(self.policy.delay),
        }
    }

    fn file(&self, look: Option<&RecordLook<'_>>) -> FileReport {
        let answer = self.record.and_then(|record| record.answer.as_ref());
        let used = matches!(look, Some(RecordLook::Use(_) | RecordLook::UseAndRefresh(_)));
        let known = answer.filter(|_| used);
        let mut file = FileReport {
            url: format!("{}/robots.txt", self.question.origin),
            exists: known.map(|answer| matches!(answer.says, Says::Rules(_))),
            age_s: known.and_then(reply::RobotsAnswer::came_at).map(|at| self.now.since(at).as_secs()),
            fresh_s: known.map(|answer| answer.fresh_until.since(self.now).as_secs()),
            ..FileReport::default()
        };
        if let Some(seen) = self.seen {
            file.fetched = true;
            file.redirects = seen.trail.clone();
            file.url = file.redirects.pop().unwrap_or(file.url);
            file.status = seen.status;
            file.size_bytes = seen.status.filter(|status| *status / 100 == 2).map(|_| seen.body.len() as u64);
            file.cut = seen.body.len() > MAX_BODY;
            file.error.clone_from(&seen.error);
        }
        file
    }
}

fn name(choice: Choice<'_>) -> Option<&str> {
    match choice {
        Choice::Named(name) => Some(name),
        Choice::Everybody => Some("*"),
        Choice::Nobody => None,
    }
}

/// The notes for all clients, and for this client.
fn notes(survey: &Survey, choice: Choice<'_>, agents: &Agents) -> Vec<ReportNote> {
    let covers = |token: &str| match choice {
        Choice::Named(_) => agents.tokens().any(|mine| mine == token),
        Choice::Everybody => token == "*",
        Choice::Nobody => false,
    };
    let chosen =
        |group: &&survey::SurveyGroup| group.names.iter().any(|name| name.token.as_deref().is_some_and(covers));
    let of_groups = survey.groups.iter().filter(chosen).flat_map(|group| &group.notes);
    let mut notes: Vec<ReportNote> = survey.notes.iter().chain(of_groups).map(ReportNote::from).collect();
    notes.sort_by_key(|note| note.line);
    notes
}

impl From<&survey::SurveyNote> for ReportNote {
    fn from(note: &survey::SurveyNote) -> ReportNote {
        ReportNote { line: note.line, key: note.kind.key().to_owned(), text: note.text.clone() }
    }
}

impl From<Rule<'_>> for RuleLine {
    fn from(rule: Rule<'_>) -> RuleLine {
        RuleLine { line: rule.line, rule: rule.to_string() }
    }
}

impl From<policy::RobotsMode> for ReportMode {
    fn from(mode: policy::RobotsMode) -> ReportMode {
        match mode {
            policy::RobotsMode::Enforce => ReportMode::Enforce,
            policy::RobotsMode::Warn => ReportMode::Warn,
            policy::RobotsMode::Off => ReportMode::Off,
        }
    }
}

impl TroubleReport {
    /// The cause for people.
    pub fn cause(&self) -> Option<String> {
        let answered = self.status.map(|status| format!("the host answered {status}"));
        answered.or_else(|| Some(OriginFault::parse(self.fault.as_deref()?)?.text().to_owned()))
    }

    fn at(now: Timestamp, trouble: reply::Trouble) -> TroubleReport {
        TroubleReport {
            throttled: trouble.kind == TroubleKind::Throttled,
            status: trouble.cause.and_then(HostReply::status),
            fault: trouble.cause.and_then(HostReply::fault).map(|fault| fault.word().to_owned()),
            times: trouble.times,
            since_s: now.since(trouble.since).as_secs(),
            retry_after_s: trouble.retry_at.since(now).as_secs(),
        }
    }
}
