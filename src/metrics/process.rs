//! `process_*`: what the system reports about curtsy's own process, under the names that every Prometheus client uses.
//!
//! Read from Linux' `/proc` for each scrape. If there is no `/proc`, or its format is another, the numbers stay 0.

use std::fs;
use std::sync::OnceLock;

use prometheus::core::{AtomicF64, GenericCounter};
use prometheus::{Gauge, IntGauge, Opts, Registry};

use super::register::{gauge, put};

#[derive(Debug)]
pub(super) struct Process {
    cpu: GenericCounter<AtomicF64>,
    open_fds: IntGauge,
    max_fds: IntGauge,
    resident: IntGauge,
    virtual_memory: IntGauge,
    threads: IntGauge,
    started: Gauge,
    /// Does not change, so it is read once.
    start: OnceLock<()>,
}

/// Processor clock ticks per second, as Linux shows them on every platform curtsy is built for.
const TICKS: f64 = 100.0;
const KIBI: u64 = 1024;

impl Process {
    pub(super) fn new(registry: &Registry) -> Self {
        let cpu = Opts::new("process_cpu_seconds_total", "Processor time used, in user and system mode.");
        let cpu = GenericCounter::with_opts(cpu).expect("a valid name");
        let started = Opts::new("process_start_time_seconds", "When the process was started, in Unix time.");
        let started = Gauge::with_opts(started).expect("a valid name");
        registry.register(Box::new(cpu.clone())).expect("a new name");
        registry.register(Box::new(started.clone())).expect("a new name");
        let gauge = |name, help| gauge(registry, name, help);
        Process {
            cpu,
            open_fds: gauge("process_open_fds", "Open file descriptors."),
            max_fds: gauge("process_max_fds", "File descriptors that may be open."),
            resident: gauge("process_resident_memory_bytes", "Memory held."),
            virtual_memory: gauge("process_virtual_memory_bytes", "Address space taken."),
            threads: gauge("process_threads", "Threads."),
            started,
            start: OnceLock::new(),
        }
    }

    pub(super) fn measure(&self) {
        if let Some(stat) = read("stat").as_deref().and_then(Stat::read) {
            self.cpu.inc_by((stat.cpu_seconds - self.cpu.get()).max(0.0));
            put(&self.virtual_memory, stat.virtual_bytes);
            put(&self.threads, stat.threads);
            self.start.get_or_init(|| self.started.set(booted().unwrap_or_default() + stat.started_after));
        }
        if let Some(resident) = read("status").and_then(|status| number_after(&status, "VmRSS:")) {
            put(&self.resident, resident * KIBI);
        }
        if let Some(most) = read("limits").and_then(|limits| number_after(&limits, "Max open files")) {
            put(&self.max_fds, most);
        }
        put(&self.open_fds, open_fds());
    }
}

fn read(file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/self/{file}")).ok()
}

/// Newer kernels report the number as the folder's size; on older ones the entries are counted.
fn open_fds() -> u64 {
    const FOLDER: &str = "/proc/self/fd";
    match fs::metadata(FOLDER).map_or(0, |folder| folder.len()) {
        0 => fs::read_dir(FOLDER).map_or(0, |entries| entries.count() as u64),
        count => count,
    }
}

/// Returns when the machine was started, in Unix time.
fn booted() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    number_after(&stat, "btime ").map(|seconds| seconds as f64)
}

/// Returns the first number after a label at the beginning of a line.
fn number_after(text: &str, label: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    threads: u64,
    /// In seconds after the machine started.
    started_after: f64,
    virtual_bytes: u64,
}

impl Stat {
    /// Parses `/proc/self/stat`: fields by position (proc(5)), after a name in brackets that may contain anything.
    fn read(text: &str) -> Option<Stat> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        // The third field is the first after the name.
        let field = |place: usize| fields.get(place - 3)?.parse::<u64>().ok();
        Some(Stat {
            cpu_seconds: (field(14)? + field(15)?) as f64 / TICKS,
            threads: field(20)?,
            started_after: field(22)? as f64 / TICKS,
            virtual_bytes: field(23)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_brackets_and_spaces() {
        let text =
            "7 (a ) (b) S 1 7 7 0 -1 4194560 900 0 0 0 150 50 0 0 20 0 9 0 1234 2000000 300 18446744073709551615";
        let stat = Stat { cpu_seconds: 2.0, threads: 9, started_after: 12.34, virtual_bytes: 2_000_000 };
        assert_eq!(Stat::read(text), Some(stat));
        assert_eq!(Stat::read("7 (a) S 1"), None);
    }

    #[test]
    fn this_very_process_has_numbers() {
        let registry = Registry::new();
        let process = Process::new(&registry);
        process.measure();
        assert!(process.open_fds.get() >= 3 && process.max_fds.get() >= process.open_fds.get(), "{process:?}");
        assert!(process.resident.get() > 100_000 && process.virtual_memory.get() > process.resident.get());
        assert!(process.threads.get() >= 1 && process.started.get() > 1.7e9, "{process:?}");
    }
}
