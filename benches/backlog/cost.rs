//! Processor time of processes, from Linux' `/proc`.

use std::fs;
use std::io;
use std::time::Duration;

/// Processor time of all threads of a process so far; `self` is this process.
pub(crate) fn processor_time(process: &str) -> io::Result<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end while it is read.
        if let Ok(schedstat) = fs::read_to_string(task?.path().join("schedstat")) {
            nanos += schedstat.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(Duration::from_nanos(nanos))
}

/// The time of all processors so far, in kernel ticks.
#[derive(Debug)]
pub(crate) struct Machine {
    processors: f64,
    idle: u64,
    ticks: u64,
}

impl Machine {
    pub(crate) fn until_now() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        let processors = text.lines().skip(1).take_while(|line| line.starts_with("cpu")).count() as f64;
        let all = text.lines().next().unwrap_or_default().split_ascii_whitespace().skip(1);
        // user, nice, system, idle, iowait, irq, softirq, steal; guest times follow and are already included in user.
        let ticks: Vec<u64> = all.take(8).filter_map(|field| field.parse().ok()).collect();
        let &[_, _, _, idle, iowait, ..] = ticks.as_slice() else { return Err(io::Error::other("odd /proc/stat")) };
        Ok(Machine { processors, idle: idle + iowait, ticks: ticks.iter().sum() })
    }

    /// Cores that were busy in between, with anything.
    pub(crate) fn cores_since(&self, begun: &Machine) -> f64 {
        let (idle, ticks) = (self.idle - begun.idle, self.ticks - begun.ticks);
        self.processors * (1.0 - idle as f64 / ticks as f64)
    }
}
