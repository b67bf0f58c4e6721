//! The state file: every SQL statement of curtsy, and nothing about threads.
//!
//! A write is one transaction: it happens as a whole or not at all, also when the process is killed in the middle of it
//! (write-ahead log). Loss of power may cost the last seconds, never the file (`synchronous = NORMAL`). Operations that
//! may find much to do work in slices, so that a write never waits long.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rusqlite::{CachedStatement, Connection, OpenFlags, OptionalExtension, Row, Transaction, params};

use super::pending::Batch;
use super::record::{HostRecord, JobRecord, RobotsRecord, StoredOverrides};
use super::schema::{self, Version};

#[derive(Debug)]
pub(super) struct Database {
    connection: Connection,
}

impl Database {
    /// Opens or creates the file and migrates it to the present schema.
    pub(super) fn open(path: &Path) -> rusqlite::Result<(Database, Version)> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = connect(path, flags)?;
        let version = schema::version(&connection, schema::STEPS)?;
        if version == Version::New {
            // Only a file without tables accepts this; it lets pruning return space in slices.
            connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;")?;
        }
        schema::migrate(&mut connection, version, schema::STEPS)?;
        Ok((Database { connection }, version))
    }

    /// Opens a second connection to a file that [`Database::open`] has opened. It sees what was committed, and waits
    /// for no writer.
    pub(super) fn reader(path: &Path) -> rusqlite::Result<Database> {
        // Not SQLITE_OPEN_READ_ONLY: readers of a write-ahead log record in shared memory what they read.
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.execute_batch("PRAGMA query_only = ON")?;
        Ok(Database { connection })
    }

    /// Opens a file that no process writes, on a disk that cannot be written.
    pub(super) fn read_only(path: &Path) -> rusqlite::Result<Database> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let open = |how: &str| {
            let database = Database { connection: connect(Path::new(&uri(path, how)), flags)? };
            schema::version(&database.connection, schema::STEPS).map(|_| database)
        };
        // A write-ahead log can be read only with the index that belongs to it. If that index cannot be created, there
        // is no log, or it is lost.
        open("mode=ro").or_else(|_| open("immutable=1"))
    }

    pub(super) fn version(&self) -> rusqlite::Result<Version> {
        schema::version(&self.connection, schema::STEPS)
    }

    /// Reads every page. An error or a complaint means damage.
    pub(super) fn check(&self) -> rusqlite::Result<Option<String>> {
        let complaint: String = self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        Ok((complaint != "ok").then_some(complaint))
    }

    /// Writes a value that changes nothing, to find out whether writing works.
    pub(super) fn try_writing(&self) -> rusqlite::Result<()> {
        self.connection.pragma_update(None, "user_version", schema::STEPS.len() as u32)
    }

    /// Reads every host, without what people set. That is a third of the columns, and of the time.
    pub(super) fn learned_hosts(&self, mut each: impl FnMut(&str, HostRecord)) -> rusqlite::Result<()> {
        let sql = format!("SELECT {LEARNED_COLUMNS} FROM host WHERE key > '' ORDER BY key");
        let mut last = String::new();
        self.each_host(&sql, learned_host, |key, record| {
            if *last >= *key {
                return Err(out_of_order());
            }
            each(key, record);
            last.clear();
            last.push_str(key);
            Ok(())
        })
    }

    /// Reads the hosts for which people set something.
    pub(super) fn steered_hosts(
        &self,
        each: impl FnMut(&str, HostRecord) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let sql = format!(
            "SELECT {LEARNED_COLUMNS}, {STEERED_COLUMNS} FROM host INDEXED BY host_steered WHERE paused <> 0
             OR paused_until_us <> 0 OR coalesce(delay_override_ms, burst_override, concurrency_override) IS NOT NULL"
        );
        self.each_host(&sql, steered_host, each)
    }

    fn each_host(
        &self,
        sql: &str,
        record: impl Fn(&Row<'_>) -> rusqlite::Result<HostRecord>,
        mut each: impl FnMut(&str, HostRecord) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            each(row.get_ref(0)?.as_str()?, record(row)?)?;
        }
        Ok(())
    }

    /// Returns some hosts after `key`, in order.
    pub(super) fn hosts_after(&self, key: &str, count: usize) -> rusqlite::Result<Vec<(String, HostRecord)>> {
        let sql = format!("SELECT {LEARNED_COLUMNS}, {STEERED_COLUMNS} FROM host WHERE key > ?1 ORDER BY key LIMIT ?2");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let hosts = statement.query_map(params![key, count as i64], |row| Ok((row.get(0)?, steered_host(row)?)))?;
        hosts.collect()
    }

    /// Returns some host names after `key`, in order.
    pub(super) fn host_keys(&self, after: &str, count: usize) -> rusqlite::Result<Vec<Box<str>>> {
        let mut statement =
            self.connection.prepare_cached("SELECT key FROM host WHERE key > ?1 ORDER BY key LIMIT ?2")?;
        let keys = statement.query_map(params![after, count as i64], |row| row.get(0))?;
        keys.collect()
    }

    pub(super) fn robots(&self, origin: &str) -> rusqlite::Result<Option<RobotsRecord>> {
        let sql = format!("SELECT {ROBOTS_COLUMNS} FROM robots WHERE origin = ?1");
        self.connection.prepare_cached(&sql)?.query_row([origin], robots).optional()
    }

    /// Returns some origins after this one, in order.
    pub(super) fn robots_after(&self, origin: &str, count: usize) -> rusqlite::Result<Vec<(String, RobotsRecord)>> {
        let sql = format!("SELECT {ROBOTS_COLUMNS} FROM robots WHERE origin > ?1 ORDER BY origin LIMIT ?2");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let copies = statement.query_map(params![origin, count as i64], |row| Ok((row.get(0)?, robots(row)?)))?;
        copies.collect()
    }

    /// Returns the stopped jobs, the latest first.
    pub(super) fn jobs(&self, most: usize) -> rusqlite::Result<Vec<(String, JobRecord)>> {
        let sql = "SELECT client, reason, since_us, until_us, failures FROM job ORDER BY since_us DESC LIMIT ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let jobs = statement.query_map([most as i64], |row| Ok((row.get(0)?, job(row)?)))?;
        jobs.collect()
    }

    pub(super) fn write(&mut self, batch: &Batch) -> rusqlite::Result<()> {
        self.transaction(|writer| {
            for (key, record) in &batch.hosts {
                writer.host(key, record.as_ref())?;
            }
            for (origin, record) in &batch.robots {
                writer.robots(origin, record.as_ref())?;
            }
            for (client, record) in &batch.jobs {
                writer.job(client, record.as_ref())?;
            }
            Ok(())
        })
    }

    /// Runs `work` in a transaction: everything it writes is committed as a whole, or not at all if it fails.
    pub(super) fn transaction<T, E: From<rusqlite::Error>>(
        &mut self,
        work: impl FnOnce(&mut DatabaseWriter<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let transaction = self.connection.transaction()?;
        let result = work(&mut DatabaseWriter::new(&transaction)?)?;
        transaction.commit()?;
        Ok(result)
    }

    /// Moves every time in the file by this many microseconds; 0 stays "never".
    pub(super) fn move_times(&mut self, by_us: i64) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        for (table, columns) in TIMES {
            // Far times are cut, so that the sum fits into 64 bits.
            let moved = |column: &&str| {
                format!("{column} = CASE WHEN {column} > 0 THEN max(1, min({column}, {FAR}) + ?1) ELSE {column} END")
            };
            let columns: Vec<String> = columns.iter().map(moved).collect();
            transaction.execute(&format!("UPDATE {table} SET {}", columns.join(", ")), [by_us])?;
        }
        transaction.commit()
    }

    /// Deletes robots.txt copies that are of no more use. Reads through all of them. Returns true if there is more to
    /// do.
    pub(super) fn prune_stale_robots(&mut self, now_us: u64, slice: usize) -> rusqlite::Result<bool> {
        let stale = "DELETE FROM robots WHERE rowid IN (SELECT rowid FROM robots WHERE stale_until_us <= ?1 LIMIT ?2)";
        let gone = self.connection.prepare_cached(stale)?.execute(params![stored(now_us), slice as i64])?;
        Ok(gone == slice)
    }

    /// Deletes the oldest robots.txt copies until they fit into `most` bytes. Returns true if there is more to do.
    pub(super) fn prune_oldest_robots(&mut self, most: u64, slice: usize) -> rusqlite::Result<bool> {
        let bytes: f64 =
            self.connection.prepare_cached("SELECT total(size) FROM robots")?.query_row([], |row| row.get(0))?;
        let mut excess = bytes as i64 - stored(most);
        if excess <= 0 {
            return Ok(false);
        }
        // Deletes a little more than needed, so that the next copy does not require pruning again.
        excess += stored(most) / 16;
        let transaction = self.connection.transaction()?;
        {
            let mut oldest =
                transaction.prepare_cached("SELECT rowid, size FROM robots ORDER BY fetched_us LIMIT ?1")?;
            let mut delete = transaction.prepare_cached("DELETE FROM robots WHERE rowid = ?1")?;
            let oldest: Vec<(i64, i64)> =
                oldest.query_map([slice as i64], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
            for (rowid, size) in oldest {
                if excess <= 0 {
                    break;
                }
                delete.execute([rowid])?;
                excess -= size;
            }
        }
        transaction.commit()?;
        Ok(excess > 0)
    }

    /// Deletes jobs whose time is over, and the oldest beyond `most`.
    pub(super) fn prune_jobs(&mut self, most: usize, now_us: u64) -> rusqlite::Result<()> {
        let over = "DELETE FROM job WHERE until_us BETWEEN 1 AND ?1";
        self.connection.prepare_cached(over)?.execute([stored(now_us)])?;
        let oldest =
            "DELETE FROM job WHERE client IN (SELECT client FROM job ORDER BY since_us DESC LIMIT -1 OFFSET ?1)";
        self.connection.prepare_cached(oldest)?.execute([most as i64])?;
        Ok(())
    }

    /// Returns some unused pages to the file system. Returns true if there are more.
    pub(super) fn shrink(&self, pages: u32) -> rusqlite::Result<bool> {
        let free: u32 = self.connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
        if free < FREE_PAGES_KEPT {
            return Ok(false);
        }
        // Each step frees one page, so the statement must be stepped until it returns no more rows.
        let mut vacuum = self.connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
        let mut rows = vacuum.query([])?;
        while rows.next()?.is_some() {}
        Ok(free > pages.max(FREE_PAGES_KEPT))
    }

    /// Moves the write-ahead log into the file, so that the file alone is the whole state.
    pub(super) fn settle(&self) -> rusqlite::Result<()> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    }
}

/// Every column that is a time.
const TIMES: [(&str, &[&str]); 3] = [
    ("host", &["floor_until_us", "updated_us", "last_sent_us", "held_until_us", "paused_until_us"]),
    ("robots", &["fetched_us", "fresh_until_us", "stale_until_us"]),
    ("job", &["since_us", "until_us"]),
];
/// Half of what a column can hold.
const FAR: i64 = i64::MAX / 2;

/// A search for one of these hosts would not find it.
fn out_of_order() -> rusqlite::Error {
    let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(corrupt, Some("hosts are out of order".to_owned()))
}

/// The statements of one transaction, prepared once.
pub(super) struct DatabaseWriter<'a> {
    put_host: CachedStatement<'a>,
    delete_host: CachedStatement<'a>,
    put_robots: CachedStatement<'a>,
    delete_robots: CachedStatement<'a>,
    put_job: CachedStatement<'a>,
    delete_job: CachedStatement<'a>,
}

impl<'a> DatabaseWriter<'a> {
    fn new(transaction: &'a Transaction<'_>) -> rusqlite::Result<Self> {
        let marks = |count: usize| vec!["?"; count].join(", ");
        let put_host = format!("REPLACE INTO host ({LEARNED_COLUMNS}, {STEERED_COLUMNS}) VALUES ({})", marks(13));
        let put_robots = format!("REPLACE INTO robots ({ROBOTS_COLUMNS}, size) VALUES ({})", marks(9));
        Ok(DatabaseWriter {
            put_host: transaction.prepare_cached(&put_host)?,
            delete_host: transaction.prepare_cached("DELETE FROM host WHERE key = ?")?,
            put_robots: transaction.prepare_cached(&put_robots)?,
            delete_robots: transaction.prepare_cached("DELETE FROM robots WHERE origin = ?")?,
            put_job: transaction.prepare_cached(
                "REPLACE INTO job (client, reason, since_us, until_us, failures) VALUES (?, ?, ?, ?, ?)",
            )?,
            delete_job: transaction.prepare_cached("DELETE FROM job WHERE client = ?")?,
        })
    }

    /// Writes the host. Without a record, deletes it.
    pub(super) fn host(&mut self, key: &str, record: Option<&HostRecord>) -> rusqlite::Result<()> {
        let Some(record) = record else { return self.delete_host.execute([key]).map(drop) };
        let overrides = &record.overrides;
        let written = self.put_host.execute(params![
            key,
            record.learned_ms,
            record.floor_ms,
            record.floor_ttl_ms,
            stored(record.floor_until_us),
            stored(record.updated_us),
            stored(record.last_sent_us),
            stored(record.held_until_us),
            record.paused,
            stored(record.paused_until_us),
            overrides.delay_ms,
            overrides.burst,
            overrides.concurrency,
        ]);
        written.map(drop)
    }

    pub(super) fn robots(&mut self, origin: &str, record: Option<&RobotsRecord>) -> rusqlite::Result<()> {
        let Some(record) = record else { return self.delete_robots.execute([origin]).map(drop) };
        let written = self.put_robots.execute(params![
            origin,
            record.state,
            record.body,
            record.etag,
            record.last_modified,
            stored(record.fetched_us),
            stored(record.fresh_until_us),
            stored(record.stale_until_us),
            record.size() as i64,
        ]);
        written.map(drop)
    }

    pub(super) fn job(&mut self, client: &str, record: Option<&JobRecord>) -> rusqlite::Result<()> {
        let Some(record) = record else { return self.delete_job.execute([client]).map(drop) };
        let (since, until) = (stored(record.since_us), stored(record.until_us));
        self.put_job.execute(params![client, record.reason, since, until, record.failures]).map(drop)
    }
}

const LEARNED_COLUMNS: &str =
    "key, learned_ms, floor_ms, floor_ttl_ms, floor_until_us, updated_us, last_sent_us, held_until_us";
const STEERED_COLUMNS: &str = "paused, paused_until_us, delay_override_ms, burst_override, concurrency_override";
const ROBOTS_COLUMNS: &str = "origin, state, body, etag, last_modified, fetched_us, fresh_until_us, stale_until_us";

/// 1 MiB of unused pages will soon be used again.
const FREE_PAGES_KEPT: u32 = 256;

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_prepared_statement_cache_capacity(32);
    // A person may have opened the file with `sqlite3`.
    connection.busy_timeout(std::time::Duration::from_millis(500))?;
    // `cell_size_check` finds damage early; `journal_size_limit` shrinks the journal again after a large write.
    connection.execute_batch(
        "PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 4194304; PRAGMA cell_size_check = ON;
         PRAGMA trusted_schema = OFF;",
    )?;
    Ok(connection)
}

fn uri(path: &Path, how: &str) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' => uri.push(char::from(*byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    format!("{uri}?{how}")
}

fn learned_host(row: &Row<'_>) -> rusqlite::Result<HostRecord> {
    Ok(HostRecord {
        learned_ms: row.get(1)?,
        floor_ms: row.get(2)?,
        floor_ttl_ms: row.get(3)?,
        floor_until_us: time(row, 4)?,
        updated_us: time(row, 5)?,
        last_sent_us: time(row, 6)?,
        held_until_us: time(row, 7)?,
        ..HostRecord::default()
    })
}

fn steered_host(row: &Row<'_>) -> rusqlite::Result<HostRecord> {
    let overrides = StoredOverrides { delay_ms: row.get(10)?, burst: row.get(11)?, concurrency: row.get(12)? };
    Ok(HostRecord { paused: row.get(8)?, paused_until_us: time(row, 9)?, overrides, ..learned_host(row)? })
}

fn robots(row: &Row<'_>) -> rusqlite::Result<RobotsRecord> {
    Ok(RobotsRecord {
        state: row.get(1)?,
        body: row.get(2)?,
        etag: row.get(3)?,
        last_modified: row.get(4)?,
        fetched_us: time(row, 5)?,
        fresh_until_us: time(row, 6)?,
        stale_until_us: time(row, 7)?,
    })
}

fn job(row: &Row<'_>) -> rusqlite::Result<JobRecord> {
    Ok(JobRecord { reason: row.get(1)?, since_us: time(row, 2)?, until_us: time(row, 3)?, failures: row.get(4)? })
}

/// SQLite's integers are signed. Times beyond the year 290 000 become that year.
fn stored(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}
