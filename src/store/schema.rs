//! The tables, and the migration of a file of an older version.
//!
//! Version n is the result of the first n steps. So a new file is an old one that starts at nothing, and every first
//! start runs the whole chain. To change the tables, add a step; never change a step that was released. All steps of a
//! start are one transaction: a migration that fails leaves the file as it was.

use rusqlite::Connection;

/// "crty", so that `file` and curtsy can distinguish this file from other SQLite files.
pub(super) const APPLICATION_ID: i32 = 0x6372_7479;

pub(super) const STEPS: &[&str] = &[FIRST, ENDS];

const FIRST: &str = "CREATE TABLE host (
         key TEXT PRIMARY KEY NOT NULL,
         learned_ms INTEGER NOT NULL,
         floor_ms INTEGER NOT NULL,
         floor_ttl_ms INTEGER NOT NULL,
         floor_until_us INTEGER NOT NULL,
         updated_us INTEGER NOT NULL,
         last_sent_us INTEGER NOT NULL,
         held_until_us INTEGER NOT NULL,
         paused INTEGER NOT NULL,
         delay_override_ms INTEGER,
         burst_override INTEGER,
         concurrency_override INTEGER
     ) STRICT, WITHOUT ROWID;
     -- The few hosts that people steer, so that a start need not look for them in every row.
     CREATE INDEX host_steered ON host (paused) WHERE paused <> 0
         OR coalesce(delay_override_ms, burst_override, concurrency_override) IS NOT NULL;
     CREATE TABLE robots (
         origin TEXT PRIMARY KEY NOT NULL,
         state TEXT NOT NULL,
         size INTEGER NOT NULL,
         etag TEXT,
         last_modified TEXT,
         fetched_us INTEGER NOT NULL,
         fresh_until_us INTEGER NOT NULL,
         stale_until_us INTEGER NOT NULL,
         body BLOB NOT NULL
     ) STRICT;
     -- With the size in it, adding all sizes up does not read the bodies.
     CREATE INDEX robots_age ON robots (fetched_us, size);
     CREATE TABLE job (
         client TEXT PRIMARY KEY NOT NULL,
         reason TEXT NOT NULL,
         since_us INTEGER NOT NULL,
         until_us INTEGER NOT NULL
     ) STRICT, WITHOUT ROWID;";

/// Adds an end to pauses, and a number of failures to stopped jobs.
const ENDS: &str = "ALTER TABLE host ADD COLUMN paused_until_us INTEGER NOT NULL DEFAULT 0;
     DROP INDEX host_steered;
     CREATE INDEX host_steered ON host (paused) WHERE paused <> 0 OR paused_until_us <> 0
         OR coalesce(delay_override_ms, burst_override, concurrency_override) IS NOT NULL;
     ALTER TABLE job ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;";

/// The state of a file before it was migrated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// The file was empty.
    New,
    Current,
    Older(u32),
    /// Written by a newer curtsy. Left alone.
    Newer(u32),
    /// A file of another program. Left alone.
    Foreign,
}

pub(super) fn version(connection: &Connection, steps: &[&str]) -> rusqlite::Result<Version> {
    let known = steps.len() as u32;
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: u32 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (application, found) {
        (0, 0) if tables == 0 => Version::New,
        (APPLICATION_ID, found) if found > known => Version::Newer(found),
        (APPLICATION_ID, found) if found == known => Version::Current,
        (APPLICATION_ID, found) if found > 0 => Version::Older(found),
        _ => Version::Foreign,
    })
}

pub(super) fn migrate(connection: &mut Connection, version: Version, steps: &[&str]) -> rusqlite::Result<()> {
    let from = match version {
        Version::New => 0,
        Version::Older(from) => from as usize,
        Version::Current | Version::Newer(_) | Version::Foreign => return Ok(()),
    };
    let transaction = connection.transaction()?;
    for step in &steps[from..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", steps.len() as u32)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[&str] = &["CREATE TABLE a (x INTEGER) STRICT;", "ALTER TABLE a ADD COLUMN y INTEGER DEFAULT 7;"];

    fn upgrade(connection: &mut Connection, steps: &[&str]) -> rusqlite::Result<Version> {
        let version = version(connection, steps)?;
        migrate(connection, version, steps)?;
        Ok(version)
    }

    fn y(connection: &Connection) -> rusqlite::Result<i64> {
        connection.query_row("SELECT y FROM a", [], |row| row.get(0))
    }

    #[test]
    fn an_older_file_goes_through_the_steps_it_misses() {
        let mut connection = Connection::open_in_memory().unwrap();
        assert_eq!(upgrade(&mut connection, &TWO[..1]).unwrap(), Version::New);
        connection.execute("INSERT INTO a (x) VALUES (1)", []).unwrap();
        assert_eq!(upgrade(&mut connection, TWO).unwrap(), Version::Older(1));
        assert_eq!(y(&connection).unwrap(), 7);
        assert_eq!(upgrade(&mut connection, TWO).unwrap(), Version::Current);
    }

    #[test]
    fn a_new_file_goes_through_all_of_them() {
        let mut connection = Connection::open_in_memory().unwrap();
        assert_eq!(upgrade(&mut connection, TWO).unwrap(), Version::New);
        connection.execute("INSERT INTO a (x) VALUES (1)", []).unwrap();
        assert_eq!(y(&connection).unwrap(), 7);
    }

    #[test]
    fn a_migration_that_fails_changes_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        upgrade(&mut connection, &TWO[..1]).unwrap();
        connection.execute("INSERT INTO a (x) VALUES (1)", []).unwrap();
        let bad = [TWO[0], TWO[1], "ALTER TABLE nowhere ADD COLUMN z INTEGER;"];
        upgrade(&mut connection, &bad).unwrap_err();
        y(&connection).unwrap_err();
        assert_eq!(upgrade(&mut connection, TWO).unwrap(), Version::Older(1));
    }

    #[test]
    fn newer_and_foreign_files_are_left_alone() {
        let mut connection = Connection::open_in_memory().unwrap();
        upgrade(&mut connection, TWO).unwrap();
        assert_eq!(upgrade(&mut connection, &TWO[..1]).unwrap(), Version::Newer(2));
        let mut foreign = Connection::open_in_memory().unwrap();
        foreign.execute_batch("CREATE TABLE letters (text TEXT)").unwrap();
        assert_eq!(upgrade(&mut foreign, TWO).unwrap(), Version::Foreign);
    }
}
