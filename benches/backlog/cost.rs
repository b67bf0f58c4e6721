//! What processes cost, from Linux' `/proc`.

use std::fs;
use std::io;
use std::time::Duration;

/// How long the threads of a process have run so far; `self` is this one.
pub(crate) fn processor_time(process: &str) -> io::Result<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end while we look.
        if let Ok(schedstat) = fs::read_to_string(task?.path().join("schedstat")) {
            nanos += schedstat.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(Duration::from_nanos(nanos))
}

/// Of the last minute: what others do here shows in the figures.
pub(crate) fn load_average() -> io::Result<String> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().unwrap_or_default().to_owned())
}
