//! What the screen shows and what keys do to it, without a screen.

use clap::ValueEnum;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::watch::{Look, Seen};
use crate::admin::hosts::Row;
use crate::cli::hosts::Sort;

#[derive(Debug)]
pub(super) struct Board {
    look: Look,
    pub(super) seen: Seen,
    /// Requests a second, once two answers tell.
    pub(super) rate: Option<f64>,
    /// Why there is nothing newer.
    pub(super) trouble: Option<String>,
    /// Whether keys are letters of the filter.
    typing: bool,
    /// The first row on the screen; drawing moves it so that the chosen one is seen.
    pub(super) offset: usize,
}

/// What is to be done about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Leave,
    Look(Look),
    Pause { host: String, paused: bool },
}

/// Rows that a page key goes.
const PAGE: isize = 10;

impl Board {
    pub(super) fn new(mut look: Look, seen: Seen) -> Self {
        look.chosen = seen.hosts.hosts.first().map(|row| row.host.clone());
        Board { look, seen, rate: None, trouble: None, typing: false, offset: 0 }
    }

    pub(super) fn look(&self) -> Deed {
        Deed::Look(self.look.clone())
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.seen.hosts.hosts
    }

    /// Where the chosen host stands.
    pub(super) fn chosen(&self) -> Option<usize> {
        let chosen = self.look.chosen.as_ref()?;
        self.rows().iter().position(|row| row.host == *chosen)
    }

    /// Takes in what was seen, or why nothing was.
    pub(super) fn learn(&mut self, seen: Result<Seen, String>) {
        match seen {
            Ok(seen) => {
                let (before, now) = (&self.seen.status, &seen.status);
                let (time, requests) =
                    (now.uptime_s - before.uptime_s, now.requests.total.checked_sub(before.requests.total));
                if time > 0.2 {
                    self.rate = requests.map(|requests| requests as f64 / time);
                } else if time < 0.0 {
                    self.rate = None;
                }
                self.seen = seen;
                self.trouble = None;
                if self.look.chosen.is_none() {
                    self.look.chosen = self.rows().first().map(|row| row.host.clone());
                }
            }
            Err(trouble) => self.trouble = Some(trouble),
        }
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Option<Deed> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Some(Deed::Leave);
        }
        if self.typing {
            return self.typed(key.code);
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Some(Deed::Leave),
            KeyCode::Char('p') => return self.pause(),
            KeyCode::Char('/') => {
                self.typing = true;
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

    fn typed(&mut self, key: KeyCode) -> Option<Deed> {
        match key {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.look.filter.clear();
            }
            KeyCode::Backspace => drop(self.look.filter.pop()),
            KeyCode::Char(letter) => self.look.filter.push(letter),
            _ => return None,
        }
        Some(self.look())
    }

    fn go(&mut self, by: isize) {
        let last = self.rows().len().saturating_sub(1);
        let place = self.chosen().unwrap_or(0).saturating_add_signed(by).min(last);
        self.look.chosen = self.rows().get(place).map(|row| row.host.clone());
    }

    fn pause(&self) -> Option<Deed> {
        let row = &self.rows()[self.chosen()?];
        Some(Deed::Pause { host: row.host.clone(), paused: row.state != "paused" })
    }

    /// What keys do now.
    pub(super) fn keys(&self) -> String {
        if self.typing {
            return format!("filter: {}_   Enter keeps it, Esc clears it", self.look.filter);
        }
        let order = if self.look.reverse { ", reversed" } else { "" };
        let filter = if self.look.filter.is_empty() { String::new() } else { format!(" ({})", self.look.filter) };
        format!("q end  s sort: {}{order}  r turn  p pause  / filter{filter}", self.look.sort.word())
    }
}

/// The next in the round.
fn after(sort: Sort) -> Sort {
    let all = Sort::value_variants();
    let place = all.iter().position(|other| *other == sort).unwrap_or(0);
    all[(place + 1) % all.len()]
}
