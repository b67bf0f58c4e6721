//! The running command: waits for it, and forwards signals to it.
//!
//! The command stays in our process group and keeps the terminal. So it receives signals from the keyboard (Ctrl-C,
//! Ctrl-\, Ctrl-Z) and terminal size changes directly, and job control works as usual. The kernel sends those signals.
//! Signals that a process sends to us are meant for the command, so they are forwarded.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::{Handle, SignalsInfo};
use signal_hook::low_level::siginfo::Cause;

const PASSED: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];

/// Shells add this to the number of a signal to get the exit code.
const BY_SIGNAL: i32 = 128;

/// How long a command has after SIGTERM before it is killed.
const TO_FINISH: Duration = Duration::from_secs(3);

pub(in crate::cli) struct ChildProcess {
    child: Child,
    /// `None` after the command has ended: another process may have the same number by then.
    pid: Arc<Mutex<Option<Pid>>>,
    signals: Handle,
}

impl ChildProcess {
    pub(in crate::cli) fn begin(command: &mut Command) -> io::Result<Self> {
        // This comes first, so that no signal ends us while the command continues to run.
        let mut signals = SignalsInfo::<WithOrigin>::new(PASSED)?;
        let handle = signals.handle();
        let child = command.spawn()?;
        let pid = Arc::new(Mutex::new(Pid::from_raw(i32::try_from(child.id()).unwrap_or_default())));
        let alive = pid.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for origin in &mut signals {
                let signal = Signal::from_named_raw(origin.signal);
                // The lock is held while the signal is sent: the process must not be reaped meanwhile.
                let pid = alive.lock();
                if let (Some(pid), Some(signal)) = (*pid, signal.filter(|_| origin.cause != Cause::Kernel)) {
                    // The process may have just ended.
                    let _ = kill_process(pid, signal);
                }
            }
        })?;
        Ok(ChildProcess { child, pid, signals: handle })
    }

    /// Waits for the command, but not for processes that it started. Returns its exit code, as a shell would.
    pub(in crate::cli) fn end(mut self) -> io::Result<u8> {
        let pid = *self.pid.lock();
        if let Some(pid) = pid {
            // With `NOWAIT` the process is not reaped yet, so its number is not reused.
            while let Err(rustix::io::Errno::INTR) =
                waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            {}
        }
        *self.pid.lock() = None;
        let status = self.child.wait()?;
        Ok(code_of(status))
    }

    /// Waits for the command as [`end`](Self::end) does, but ends it after `limit`: with SIGTERM, and if it does not
    /// react, with SIGKILL. Returns its exit code, and whether it had to be ended.
    pub(in crate::cli) fn end_within(self, limit: Duration) -> io::Result<(u8, bool)> {
        let (done, ends) = mpsc::channel::<()>();
        let alive = self.pid.clone();
        let timer = thread::Builder::new().name("limit".to_owned()).spawn(move || {
            let mut signalled = false;
            for (time, signal) in [(limit, Signal::TERM), (TO_FINISH, Signal::KILL)] {
                if ends.recv_timeout(time) != Err(mpsc::RecvTimeoutError::Timeout) {
                    break;
                }
                if let Some(pid) = *alive.lock() {
                    signalled = kill_process(pid, signal).is_ok() || signalled;
                }
            }
            signalled
        })?;
        let code = self.end();
        drop(done);
        Ok((code?, timer.join().unwrap_or(false)))
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.signals.close();
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| BY_SIGNAL + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_is_what_a_shell_makes_of_it() {
        assert_eq!(code_of(ExitStatus::from_raw(0)), 0);
        assert_eq!(code_of(ExitStatus::from_raw(42 << 8)), 42);
        assert_eq!(code_of(ExitStatus::from_raw(SIGTERM)), 143);
    }
}
