//! One line on the terminal that says why the command waits, while it waits.
//!
//! The command uses the same terminal. So the line appears only if a request has waited for a while, and only if the
//! terminal is in the usual mode and in our hands: an editor, a pager or an interactive shell takes it over. The line
//! is below the one that the command writes, and the cursor goes back to where the command left it.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::getpgrp;
use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp, tcgetwinsize};

use crate::app::WaitingHost;
use crate::cli::terminal::{DIM, TextStyle, about, cut, printable};

/// How long a request waits before the line appears.
const AFTER: Duration = Duration::from_secs(3);
/// How often the line is updated.
const PERIOD: Duration = Duration::from_secs(1);
/// For terminals that do not report their width.
const USUAL_WIDTH: usize = 80;

/// Makes room for a line below the cursor (`ESC D` scrolls at the bottom and keeps the column), and goes there.
const BELOW: &str = "\x1bD\x1b[A\x1b7\x1b[B\r\x1b[K";
/// Goes back to where the cursor was.
const BACK: &str = "\x1b8";
/// Erases what is right of the cursor and below it.
const ERASE: &str = "\x1b[J";

/// Keeps the line up to date until it is dropped, which erases the line.
pub(super) struct StatusLine {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StatusLine {
    /// Starts the line, if standard error is a terminal. `look` returns the host with the longest wait.
    pub(super) fn start(paint: bool, look: impl FnMut() -> Option<WaitingHost> + Send + 'static) -> io::Result<Self> {
        if !io::stderr().is_terminal() {
            return Ok(StatusLine { stop: None, thread: None });
        }
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name("status-line".to_owned());
        let thread = thread.spawn(move || keep(TextStyle(paint), look, &stopped))?;
        Ok(StatusLine { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep(style: TextStyle, mut look: impl FnMut() -> Option<WaitingHost>, stopped: &mpsc::Receiver<()>) {
    let mut shown = false;
    // A terminal that cannot be written to is no reason to disturb the command.
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(PERIOD) {
        let waiting = look().filter(is_worth_a_line);
        match waiting.filter(|_| is_ours()) {
            Some(waiting) => {
                let line = style.stroke(DIM, &text(&waiting, width()));
                let _ = write!(io::stderr(), "{ERASE}{BELOW}{line}{BACK}");
                shown = true;
            }
            None if std::mem::take(&mut shown) => erase(),
            None => {}
        }
    }
    if shown {
        erase();
    }
}

fn erase() {
    if is_ours() {
        let _ = write!(io::stderr(), "{ERASE}");
    }
}

/// Whether the first request has waited for a while. If its turn is due after a long wait, the line makes room for what
/// the command prints then.
fn is_worth_a_line(waiting: &WaitingHost) -> bool {
    let is_due = waiting.next.is_some_and(|next| next <= PERIOD);
    waiting.waited >= AFTER && !(is_due && waiting.delay > 2 * PERIOD)
}

/// Whether we are in the foreground, and the terminal shows what is typed line by line.
fn is_ours() -> bool {
    let terminal = io::stderr();
    let usual = LocalModes::ICANON | LocalModes::ECHO;
    tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp())
        && tcgetattr(&terminal).is_ok_and(|modes| modes.local_modes.contains(usual))
}

fn width() -> usize {
    let columns = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { USUAL_WIDTH } else { columns }
}

/// Returns the line, which leaves the last column free: some terminals wrap there.
fn text(waiting: &WaitingHost, columns: usize) -> String {
    let WaitingHost { host, waiting: count, next, delay, why, .. } = waiting;
    let delay = about(delay.as_secs_f64());
    let because = match why.as_str() {
        "configured" => format!("because the delay is {delay}"),
        "robots" => format!("because robots.txt asks for {delay}"),
        "learned" => format!("because the learned delay is {delay}"),
        "response-time" => format!("because the host is slow: {delay}"),
        "concurrency" => "because earlier requests are under way".to_owned(),
        "paused" => "because the host is paused".to_owned(),
        "retry-after" => "because the host said Retry-After".to_owned(),
        "quota" => "because the host's quota is used up".to_owned(),
        "backoff" => "because the host said \"too fast\"".to_owned(),
        other => format!("because of {}", printable(other)),
    };
    // The end of a request cannot be predicted.
    let next = next.filter(|next| !next.is_zero() && why != "concurrency");
    let next = next.map_or_else(String::new, |next| format!(", next in {}", whole(next)));
    cut(&format!("curtsy: {}: {count} waiting{next}, {because}", printable(host)), columns.saturating_sub(1))
}

/// Formats a time in whole seconds, because the line changes once a second.
fn whole(time: Duration) -> String {
    about(time.as_secs_f64().ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(why: &str) -> WaitingHost {
        WaitingHost {
            host: "news.test".to_owned(),
            waiting: 3,
            waited: AFTER,
            next: Some(Duration::from_millis(11_200)),
            delay: Duration::from_secs(20),
            why: why.to_owned(),
        }
    }

    #[test]
    fn the_line_says_which_host_and_why() {
        let told = text(&waiting("robots"), 80);
        assert_eq!(told, "curtsy: news.test: 3 waiting, next in 12 s, because robots.txt asks for 20 s");
        let told = text(&WaitingHost { next: None, ..waiting("paused") }, 80);
        assert_eq!(told, "curtsy: news.test: 3 waiting, because the host is paused");
        let told = text(&WaitingHost { delay: Duration::from_millis(1_500), ..waiting("learned") }, 80);
        assert!(told.ends_with("because the learned delay is 1.5 s"), "{told}");
        assert!(text(&waiting("\x1b[31m"), 200).ends_with("because of \\u{1b}[31m"));
    }

    #[test]
    fn the_line_appears_late_and_goes_before_the_turn() {
        let second = Duration::from_secs(1);
        assert!(is_worth_a_line(&waiting("robots")));
        assert!(!is_worth_a_line(&WaitingHost { waited: 2 * second, ..waiting("robots") }));
        assert!(!is_worth_a_line(&WaitingHost { next: Some(second), ..waiting("robots") }), "output is due");
        let busy = WaitingHost { next: Some(second), delay: second, ..waiting("configured") };
        assert!(is_worth_a_line(&busy), "with short delays a turn is always due");
    }

    #[test]
    fn the_line_fits_into_the_terminal() {
        let long = WaitingHost { host: "x".repeat(200), ..waiting("robots") };
        assert_eq!(text(&long, 80).chars().count(), 79);
        assert_eq!(text(&waiting("robots"), 30).chars().count(), 29);
    }
}
