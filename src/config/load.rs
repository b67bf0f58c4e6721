//! Builds one checked configuration from all sources.
//!
//! Defaults, then the file, then variables, then flags: each replaces the values before it, key by key. All problems of
//! all sources are collected before any is reported.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::file::{self, ConfigSource, FileChoice};
use super::keys::{self, KeyRow};
use super::problems::{ConfigProblem, FilePosition, Problems, Severity, ValueSource};
use super::raw::Raw;
use super::{Config, HostRule, Profile, check, environment, tree};

/// Where settings come from.
#[derive(Clone, Default)]
pub struct Sources {
    pub file: FileChoice,
    /// The process environment, or the variables that a test uses instead.
    pub env: BTreeMap<String, String>,
    pub overrides: ConfigOverrides,
}

/// Settings from the command line.
#[derive(Clone, Debug, Default)]
pub struct ConfigOverrides(Vec<Override>);

#[derive(Clone, Debug)]
struct Override {
    flag: String,
    path: String,
    value: String,
}

/// A configuration that passed every check.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Config,
    pub warnings: Vec<ConfigProblem>,
    /// The file that was read.
    pub path: Option<PathBuf>,
    pub origins: ValueSources,
}

/// Where each value was set; a key that is not listed has its default.
#[derive(Clone, Debug, Default)]
pub struct ValueSources {
    keys: BTreeMap<&'static str, FilePosition>,
    /// By rule, then by key.
    rules: Vec<BTreeMap<&'static str, FilePosition>>,
}

pub fn load(sources: &Sources) -> Result<Loaded, Problems> {
    let source = file::find(&sources.file, &sources.env)?;
    read(source.as_ref(), sources)
}

/// Reads a text as if it were the file at `path`. Ignores all other sources.
#[allow(dead_code, reason = "a fuzz target uses it")]
pub fn parse(text: &str, path: &Path) -> Result<Loaded, Problems> {
    let source = ConfigSource { path: path.to_owned(), text: text.to_owned(), exposed: false };
    read(Some(&source), &Sources::default())
}

pub(super) fn read(source: Option<&ConfigSource>, sources: &Sources) -> Result<Loaded, Problems> {
    let mut draft = Draft::over(Config::default(), &sources.env);
    if let Some(source) = source {
        tree::read(source, &mut draft);
    }
    environment::read(&sources.env, &mut draft);
    sources.overrides.read(&mut draft);
    draft.apply_profile();
    check::check(&mut draft, source.is_some_and(|source| source.exposed));
    draft.finish(source)
}

impl Sources {
    /// Returns the environment of this process, and a file if one was named.
    pub fn of_process(file: Option<PathBuf>, overrides: ConfigOverrides) -> Self {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        let env = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
        Sources { file: file.map_or(FileChoice::Search, FileChoice::Path), env, overrides }
    }
}

/// Leaves out the environment, which may contain secrets.
impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("file", &self.file).finish_non_exhaustive()
    }
}

impl ConfigOverrides {
    /// Adds a flag as it is typed, such as "--max-wait", with the path of the key that it sets, "politeness.max_wait".
    /// A repeated flag adds to a list.
    pub fn add(&mut self, flag: &str, path: &str, value: &str) {
        match self.0.iter_mut().find(|earlier| earlier.flag == flag) {
            Some(earlier) => earlier.value = format!("{},{value}", earlier.value),
            None => self.0.push(Override { flag: flag.to_owned(), path: path.to_owned(), value: value.to_owned() }),
        }
    }

    /// Returns the flags that were given.
    pub fn flags(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|given| given.flag.as_str())
    }

    fn read(&self, draft: &mut Draft<'_>) {
        for Override { flag, path, value } in &self.0 {
            match keys::find(path) {
                Some(row) => draft.put(row, &Raw::typed(value), &|span| FilePosition::in_flag(flag, value, span)),
                None => {
                    let place = FilePosition::in_flag(flag, value, &(0..value.len()));
                    draft.problems.push(ConfigProblem::error(format!("{flag} sets no key: {path}"), "", Some(place)));
                }
            }
        }
    }
}

impl ValueSources {
    /// Returns where this key was set; `rate` and `profile` count as the settings that they stand for.
    pub fn of(&self, path: &str) -> Option<&ValueSource> {
        self.place(path).map(|place| &place.origin)
    }

    /// Returns the same for a key of a `[[host]]` rule; rules are counted from zero.
    pub fn of_rule(&self, rule: usize, name: &str) -> Option<&ValueSource> {
        let places = self.rules.get(rule)?;
        places.get(name).or_else(|| places.get(alternative(name)?)).map(|place| &place.origin)
    }

    pub(super) fn place(&self, path: &str) -> Option<&FilePosition> {
        self.keys.get(path).or_else(|| self.keys.get(alternative(path)?))
    }

    pub(super) fn rule_place(&self, rule: usize, name: &str) -> Option<&FilePosition> {
        self.rules.get(rule)?.get(name)
    }
}

/// A configuration that is being built.
pub(super) struct Draft<'a> {
    pub(super) config: Config,
    pub(super) origins: ValueSources,
    pub(super) problems: Vec<ConfigProblem>,
    env: &'a BTreeMap<String, String>,
}

/// Converts a span within the value that is being read into a place.
pub(super) type Placer<'a> = &'a dyn Fn(&Range<usize>) -> FilePosition;

impl<'a> Draft<'a> {
    /// Starts from these values. It is not known where they were set.
    pub(super) fn over(config: Config, env: &'a BTreeMap<String, String>) -> Self {
        Draft { config, origins: ValueSources::default(), problems: Vec::new(), env }
    }

    /// Sets one value. If the value is wrong, records the problem and keeps the old value.
    pub(super) fn put(&mut self, row: &'static KeyRow<Config>, raw: &Raw<'_>, placer: Placer<'_>) {
        if row.path == "upstream.proxy" && raw.text() == Some("env") {
            self.take_parent_from_env(row, &placer(&raw.span));
        } else {
            self.take(row, raw, placer);
        }
    }

    fn take(&mut self, row: &'static KeyRow<Config>, raw: &Raw<'_>, placer: Placer<'_>) {
        let mut tried = self.config.clone();
        match assign(row, &mut tried, raw, placer, &mut self.origins.keys) {
            Ok(_) => self.config = tried,
            Err(problems) => self.problems.extend(problems),
        }
    }

    pub(super) fn add_rule(&mut self, rule: RuleDraft) {
        if !rule.places.contains_key("match") {
            let message = format!("[[host]] #{} does not say which hosts it is for", rule.number);
            self.problems.push(ConfigProblem::error(message, r#"add match = "*.example.org""#, Some(rule.place)));
        }
        self.problems.extend(rule.problems);
        self.config.host.push(rule.settings);
        self.origins.rules.push(rule.places);
    }

    /// Handles `upstream.proxy = "env"`, which means the value of `http_proxy`. The lower-case name wins, as in curl.
    fn take_parent_from_env(&mut self, row: &'static KeyRow<Config>, asked: &FilePosition) {
        let env = self.env;
        let found = ["http_proxy", "HTTP_PROXY"].iter().find_map(|name| env.get_key_value(*name));
        match found.filter(|(_, value)| !value.is_empty()) {
            Some((name, value)) => {
                self.take(row, &Raw::typed(value), &|span| FilePosition::in_variable(name, value, span));
            }
            None => self.take(row, &Raw::typed(""), &|_| asked.clone()),
        }
    }

    pub(super) fn apply_profile(&mut self) {
        let Some(profile) = self.config.pacing.profile else { return };
        let (delay, burst) = pace_of(profile);
        let place = self.origins.place("politeness.profile").cloned();
        if self.origins.place("politeness.delay").is_none() {
            self.config.politeness.delay = delay;
            self.origins.keys.extend(place.clone().map(|place| ("politeness.delay", place)));
        }
        if self.origins.place("politeness.burst").is_none() {
            self.config.politeness.burst = burst;
            self.origins.keys.extend(place.map(|place| ("politeness.burst", place)));
        }
    }

    pub(super) fn finish(self, source: Option<&ConfigSource>) -> Result<Loaded, Problems> {
        let problems = Problems::new(self.problems);
        if problems.errors() > 0 {
            return Err(problems);
        }
        let warnings = problems.iter().filter(|problem| problem.severity == Severity::Warning).cloned().collect();
        let path = source.map(|source| source.path.clone());
        Ok(Loaded { config: self.config, warnings, path, origins: self.origins })
    }
}

/// A `[[host]]` rule that is being built.
pub(super) struct RuleDraft {
    number: usize,
    place: FilePosition,
    settings: HostRule,
    places: BTreeMap<&'static str, FilePosition>,
    problems: Vec<ConfigProblem>,
}

impl RuleDraft {
    pub(super) fn new(number: usize, place: FilePosition) -> Self {
        let settings = HostRule::default();
        RuleDraft { number, place, settings, places: BTreeMap::new(), problems: Vec::new() }
    }

    pub(super) fn put(&mut self, row: &'static KeyRow<HostRule>, raw: &Raw<'_>, placer: Placer<'_>) {
        if let Err(problems) = assign(row, &mut self.settings, raw, placer, &mut self.places) {
            self.problems.extend(problems);
        }
    }
}

/// Reads one value into `settings` and records its place.
fn assign<C>(
    row: &'static KeyRow<C>,
    settings: &mut C,
    raw: &Raw<'_>,
    placer: Placer<'_>,
    places: &mut BTreeMap<&'static str, FilePosition>,
) -> Result<FilePosition, Vec<ConfigProblem>> {
    let placer = |span: &Range<usize>| {
        let place = placer(span);
        if row.may_hide() { place.without_excerpt() } else { place }
    };
    let name = keys::name_of(row.path);
    let place = placer(&raw.span);
    let said = row.set(settings, raw).map_err(|complaints| {
        let problem = |complaint: &super::raw::Complaint| {
            let message = format!("`{name}` {}", complaint.bad.message);
            ConfigProblem::error(message, complaint.bad.advice.as_str(), Some(placer(&complaint.span)))
        };
        complaints.iter().map(problem).collect::<Vec<_>>()
    });
    let other = alternative(row.path).and_then(|other| places.remove(other));
    places.insert(row.path, place.clone());
    said?;
    match other {
        Some(other) if std::mem::discriminant(&other.origin) == std::mem::discriminant(&place.origin) => {
            let message = "`delay` and `rate` are two ways to say the same";
            Err(vec![ConfigProblem::error(message, "keep one of them", Some(place))])
        }
        _ => Ok(place),
    }
}

/// Returns the other key that sets the same field.
fn alternative(path: &str) -> Option<&'static str> {
    const PAIRS: [(&str, &str); 2] = [("politeness.delay", "politeness.rate"), ("delay", "rate")];
    PAIRS.iter().find_map(|(a, b)| if path == *a { Some(*b) } else { (path == *b).then_some(*a) })
}

/// Returns the delay and burst of a profile.
fn pace_of(profile: Profile) -> (Duration, u32) {
    match profile {
        Profile::Conservative => (Duration::from_secs(10), 1),
        Profile::Standard => (Duration::from_secs(1), 3),
        Profile::Aggressive => (Duration::from_millis(100), 20),
    }
}
