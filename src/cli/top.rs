//! `curtsy top`: shows the hosts of a running curtsy, live in the terminal.
//!
//! One thread asks once a second, one receives requests as they end, and one draws and reads keys, so that a curtsy
//! that does not answer cannot freeze the screen. If the output is not a terminal, prints the same as a table, once.

mod board;
mod draw;
mod host_page;
mod pages;
mod watch;

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use serde_json::json;

use self::board::TopScreen;
use self::watch::{News, TopAction, TopLook};
use super::admin::AskArgs;
use super::config::Streams;
use super::hosts::{self, SortArg};
use super::terminal::TextStyle;
use crate::config::Sources;

#[derive(Args, Clone, Debug)]
#[command(after_help = "Keys: q quits, arrows choose a host, Enter shows its details, d sets its delay, p pauses or
resumes it, t shows requests as they end, e explains a URL, s changes the sort order, r reverses
it, / filters by name, ? shows all keys.

Exit codes: 0 ok, 4 no curtsy runs. If curtsy stops later, top waits for it.

Examples:
  curtsy top
  curtsy top --sort wait --filter example
  curtsy top | head
  curtsy top --json | jq .status.waiting")]
pub(super) struct TopArgs {
    /// Sort by name, or by the largest value first
    #[arg(long, value_enum, default_value_t = SortArg::Queued)]
    sort: SortArg,
    /// Only hosts with this in their name
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    #[command(flatten)]
    ask: AskArgs,
}

/// How long a key press may wait until it is handled.
const TICK: Duration = Duration::from_millis(100);

pub(super) fn run(args: &TopArgs, sources: &Sources, terminal: bool, streams: &mut Streams<'_>) -> io::Result<u8> {
    let look = TopLook { sort: args.sort, reverse: false, filter: args.filter.clone(), chosen: None };
    let seen = match watch::see(&args.ask, sources, &look) {
        Ok(seen) => seen,
        Err(trouble) => return trouble.tell(streams),
    };
    if args.ask.json {
        writeln!(streams.out, "{:#}", json!({ "status": seen.status, "hosts": seen.hosts }))?;
        return Ok(0);
    }
    if !terminal {
        write!(streams.out, "{}\n\n{}", draw::figures(&seen, None), hosts::page(&seen.hosts, TextStyle(false), None))?;
        return Ok(0);
    }
    show(args, sources, TopScreen::new(look, seen))?;
    Ok(0)
}

/// Draws until the user quits. Restores the terminal afterwards, even after a panic.
fn show(args: &TopArgs, sources: &Sources, board: TopScreen) -> io::Result<()> {
    let (deeds, wishes) = mpsc::channel();
    let (news, seen) = mpsc::channel();
    let (ask, sources) = (args.ask.clone(), sources.clone());
    // The watcher thread ends when the sender of `wishes` is dropped, the listener thread when the receiver of `news`
    // is dropped. Neither is joined: it may be asking a curtsy that does not answer.
    thread::spawn({
        let (ask, sources, news) = (ask.clone(), sources.clone(), news.clone());
        move || watch::listen(&ask, &sources, &news)
    });
    thread::spawn(move || watch::watch(&ask, &sources, &wishes, &news));
    let mut terminal = ratatui::try_init()?;
    let ended = draw_until_left(&mut terminal, board, &deeds, &seen);
    ratatui::restore();
    ended
}

fn draw_until_left(
    terminal: &mut DefaultTerminal,
    mut board: TopScreen,
    deeds: &mpsc::Sender<TopAction>,
    news: &mpsc::Receiver<News>,
) -> io::Result<()> {
    // The first message tells the watcher what to look for.
    let mut wish = Some(board.look());
    loop {
        terminal.draw(|frame| draw::draw(frame, &mut board))?;
        if let Some(deed) = wish.take() {
            if deed == TopAction::Leave {
                return Ok(());
            }
            // Fails only if the watcher has ended, which only a panic can cause; then there is no news either.
            let _ = deeds.send(deed);
        }
        if event::poll(TICK)?
            && let Event::Key(key) = event::read()?
        {
            wish = board.press(key);
        }
        while let Ok(told) = news.try_recv() {
            if let Some(look) = board.learn(told) {
                let _ = deeds.send(look);
            }
        }
    }
}
