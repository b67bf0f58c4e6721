//! The state of the screen and the effect of keys, independent of drawing.

use std::collections::VecDeque;

use clap::ValueEnum;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;

use super::watch::{News, TopAction, TopLook, TopSeen};
use crate::admin::explain::Explanation;
use crate::admin::hosts::HostRow;
use crate::cli::hosts::SortArg;

#[derive(Debug)]
pub(super) struct TopScreen {
    look: TopLook,
    pub(super) page: TopPage,
    /// The page of hosts or of one host that Esc returns to.
    below: TopPage,
    pub(super) seen: TopSeen,
    /// Requests that have ended, the latest first.
    pub(super) requests: VecDeque<Value>,
    /// The last answer to a question.
    pub(super) explained: Option<Explanation>,
    /// Requests per second over the last [`RATE_SPAN`]; known after two answers.
    pub(super) rate: Option<f64>,
    /// The time and the number of requests of the answers within that span.
    samples: VecDeque<(f64, u64)>,
    /// Whether the user has chosen a host. Until then the first one with waiting requests is shown in full.
    has_chosen: bool,
    /// Why the data is not up to date.
    pub(super) trouble: Option<String>,
    /// Why the last action failed.
    pub(super) refused: Option<String>,
    typing: Option<Typing>,
    /// The first row on the screen; drawing moves it so that the chosen row is visible.
    pub(super) offset: usize,
}

/// What fills the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopPage {
    Hosts,
    /// The chosen host.
    Host,
    /// Requests of all hosts.
    Requests,
    Explained,
    Keys,
}

/// The text that the user is typing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Typing {
    Filter,
    /// The host and its new delay.
    Delay(String, String),
    Url(String),
}

/// How many rows a page key moves.
const PAGE: isize = 10;
/// How many requests are kept: more than fit on a screen, so that each host has some.
const MOST_REQUESTS: usize = 500;

/// In seconds: long enough to show one request in two seconds as such.
const RATE_SPAN: f64 = 10.0;

impl TopScreen {
    pub(super) fn new(mut look: TopLook, seen: TopSeen) -> Self {
        look.chosen = seen.hosts.hosts.first().map(|row| row.host.clone());
        let samples = VecDeque::from([(seen.status.uptime_s, seen.status.requests.total)]);
        TopScreen {
            look,
            page: TopPage::Hosts,
            below: TopPage::Hosts,
            seen,
            requests: VecDeque::new(),
            explained: None,
            rate: None,
            samples,
            has_chosen: false,
            trouble: None,
            refused: None,
            typing: None,
            offset: 0,
        }
    }

    pub(super) fn look(&self) -> TopAction {
        TopAction::Look(self.look.clone())
    }

    pub(super) fn rows(&self) -> &[HostRow] {
        &self.seen.hosts.hosts
    }

    /// Returns the row of the chosen host.
    pub(super) fn chosen(&self) -> Option<usize> {
        let chosen = self.look.chosen.as_ref()?;
        self.rows().iter().position(|row| row.host == *chosen)
    }

    /// Returns the requests to the chosen host, the latest first.
    pub(super) fn its_requests(&self) -> impl Iterator<Item = &Value> {
        let chosen = self.look.chosen.as_deref();
        self.requests.iter().filter(move |request| request["host"].as_str() == chosen)
    }

    /// Updates the board with news. Returns what to look at from now on, if that has changed.
    pub(super) fn learn(&mut self, news: News) -> Option<TopAction> {
        match news {
            News::Seen(Ok(seen)) => return self.see(*seen).then(|| self.look()),
            News::Seen(Err(trouble)) => self.trouble = Some(trouble),
            News::Request(request) => {
                self.requests.truncate(MOST_REQUESTS - 1);
                self.requests.push_front(request);
            }
            News::Explained(explained) => {
                self.explained = Some(*explained);
                self.open(TopPage::Explained);
            }
            News::Refused(why) => self.refused = Some(why),
        }
        None
    }

    /// Returns whether another host is shown in full from now on.
    fn see(&mut self, seen: TopSeen) -> bool {
        self.count((seen.status.uptime_s, seen.status.requests.total));
        self.seen = seen;
        self.trouble = None;
        // The selection must not jump while it is looked at, so it leaves only a host where no request waits.
        let is_kept = match self.chosen_row() {
            Some(row) => self.has_chosen || row.queued > 0 || self.rows()[0].queued == 0,
            None => self.has_chosen && self.look.chosen.is_some(),
        };
        if is_kept {
            return false;
        }
        let first = self.rows().first().map(|row| row.host.clone());
        let is_another = first != self.look.chosen;
        self.look.chosen = first;
        is_another
    }

    /// Computes the rate from this sample and the first one of the last [`RATE_SPAN`].
    fn count(&mut self, (time, requests): (f64, u64)) {
        if self.samples.back().is_some_and(|last| time < last.0 || requests < last.1) {
            // It was started anew.
            self.samples.clear();
        }
        self.samples.push_back((time, requests));
        while self.samples.len() > 2 && self.samples[1].0 <= time - RATE_SPAN {
            self.samples.pop_front();
        }
        let (first_time, first_requests) = self.samples[0];
        let passed = time - first_time;
        self.rate = (passed > 0.2).then(|| (requests - first_requests) as f64 / passed);
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Option<TopAction> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.refused = None;
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Some(TopAction::Leave);
        }
        if let Some(typing) = self.typing.take() {
            return self.typed(typing, key.code);
        }
        match key.code {
            KeyCode::Char('q') => return Some(TopAction::Leave),
            KeyCode::Esc if self.page == TopPage::Hosts => return Some(TopAction::Leave),
            KeyCode::Esc | KeyCode::Backspace => self.go_back(),
            KeyCode::Char('?') => self.turn_to(TopPage::Keys),
            KeyCode::Char('t') => self.turn_to(TopPage::Requests),
            KeyCode::Char('e') => self.typing = Some(Typing::Url(self.likely_url())),
            _ if matches!(self.page, TopPage::Hosts | TopPage::Host) => return self.press_at_hosts(key.code),
            _ => {}
        }
        None
    }

    /// Handles keys on the pages that show hosts.
    fn press_at_hosts(&mut self, key: KeyCode) -> Option<TopAction> {
        match key {
            KeyCode::Char('p') => {
                self.has_chosen = true;
                return self.pause();
            }
            KeyCode::Char('d') => {
                self.typing = self.chosen_row().map(|row| Typing::Delay(row.host.clone(), String::new()));
                return None;
            }
            KeyCode::Enter if self.chosen().is_some() => {
                self.has_chosen = true;
                self.turn_to(TopPage::Host);
                return None;
            }
            KeyCode::Char('/') => {
                self.page = TopPage::Hosts;
                self.typing = Some(Typing::Filter);
                return None;
            }
            KeyCode::Char('s') => self.look.sort = after(self.look.sort),
            KeyCode::Char('r') => self.look.reverse = !self.look.reverse,
            KeyCode::Up | KeyCode::Char('k') => self.go(-1),
            KeyCode::Down | KeyCode::Char('j') => self.go(1),
            KeyCode::PageUp => self.go(-PAGE),
            KeyCode::PageDown => self.go(PAGE),
            KeyCode::Home => self.go(isize::MIN),
            KeyCode::End => self.go(isize::MAX),
            _ => return None,
        }
        Some(self.look())
    }

    /// Opens a page, or goes back if it is already open.
    fn turn_to(&mut self, page: TopPage) {
        if self.page == page { self.go_back() } else { self.open(page) }
    }

    fn open(&mut self, page: TopPage) {
        if matches!(self.page, TopPage::Hosts | TopPage::Host) {
            self.below = self.page;
        }
        self.page = page;
    }

    fn go_back(&mut self) {
        self.page = if self.page == TopPage::Host { TopPage::Hosts } else { self.below };
    }

    /// Handles a key while the user is typing.
    fn typed(&mut self, mut typing: Typing, key: KeyCode) -> Option<TopAction> {
        if key == KeyCode::Enter {
            return self.ended(typing);
        }
        let is_filter = typing == Typing::Filter;
        let text = match &mut typing {
            Typing::Filter => &mut self.look.filter,
            Typing::Delay(_, text) | Typing::Url(text) => text,
        };
        match key {
            KeyCode::Esc => text.clear(),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(letter) => text.push(letter),
            _ => {}
        }
        if key != KeyCode::Esc {
            self.typing = Some(typing);
        }
        is_filter.then(|| self.look())
    }

    fn ended(&mut self, typing: Typing) -> Option<TopAction> {
        match typing {
            Typing::Filter => Some(self.look()),
            Typing::Delay(host, text) => {
                let delay = text.trim();
                Some(TopAction::Delay { host, delay: (!delay.is_empty()).then(|| delay.to_owned()) })
            }
            Typing::Url(url) => (!url.trim().is_empty()).then(|| TopAction::Explain(url.trim().to_owned())),
        }
    }

    fn go(&mut self, by: isize) {
        self.has_chosen = true;
        let last = self.rows().len().saturating_sub(1);
        let place = self.chosen().unwrap_or(0).saturating_add_signed(by).min(last);
        self.look.chosen = self.rows().get(place).map(|row| row.host.clone());
    }

    fn chosen_row(&self) -> Option<&HostRow> {
        self.rows().get(self.chosen()?)
    }

    fn pause(&self) -> Option<TopAction> {
        let row = self.chosen_row()?;
        Some(TopAction::Pause { host: row.host.clone(), paused: row.state != "paused" })
    }

    /// Returns a URL of the chosen host that the user probably wants to ask about.
    fn likely_url(&self) -> String {
        let last = self.its_requests().find_map(|request| request["url"].as_str().filter(|url| url.contains("://")));
        let host = || self.look.chosen.as_ref().map(|host| format!("http://{host}/"));
        last.map(str::to_owned).or_else(host).unwrap_or_default()
    }

    /// Describes what keys do now.
    pub(super) fn keys(&self) -> String {
        match &self.typing {
            Some(Typing::Filter) => {
                return format!("filter: {}_   Enter keeps it, Esc clears it", self.look.filter);
            }
            Some(Typing::Delay(host, text)) => {
                return format!("delay of {host}: {text}_   such as 2s; empty is as configured; Esc changes nothing");
            }
            Some(Typing::Url(text)) => return format!("explain: {text}_   Enter asks, Esc cancels"),
            None => {}
        }
        match self.page {
            TopPage::Hosts => {
                let order = if self.look.reverse { ", reversed" } else { "" };
                let filter =
                    if self.look.filter.is_empty() { String::new() } else { format!(" ({})", self.look.filter) };
                let sort = self.look.sort.word();
                format!("q end  ? keys  Enter host  t requests  s sort: {sort}{order}  / filter{filter}")
            }
            TopPage::Host => "Esc back  ↑↓ another host  d delay  p pause  e explain  q end".to_owned(),
            TopPage::Requests | TopPage::Explained | TopPage::Keys => "Esc back  e explain  q end".to_owned(),
        }
    }
}

/// Returns the next sort order, cyclically.
fn after(sort: SortArg) -> SortArg {
    let all = SortArg::value_variants();
    let place = all.iter().position(|other| *other == sort).unwrap_or(0);
    all[(place + 1) % all.len()]
}
