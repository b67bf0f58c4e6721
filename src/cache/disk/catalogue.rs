//! The catalogue: which response is where, in SQLite.
//!
//! Rows are in the order in which responses were written, and there is no index besides: a key that is a hash would
//! make every insertion change another page. So requests never ask the catalogue. It is read as a whole at start, and
//! in slices for people. A row is written after the bytes that it points to.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};

use super::files::SegmentName;

#[derive(Debug)]
pub(super) struct Catalogue {
    connection: Connection,
}

/// A stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CatalogueRow {
    pub(super) id: u64,
    pub(super) segment: SegmentName,
    pub(super) offset: u32,
    pub(super) length: u64,
    pub(super) head_length: u32,
    pub(super) variant: u32,
    pub(super) url: String,
    pub(super) partition: String,
    pub(super) received_us: u64,
    pub(super) is_revised: bool,
    /// The wall clock was set since it was stored, so its age is unknown.
    pub(super) is_suspect: bool,
}

/// What a validation changed: it replaces the note and the HTTP head of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Revision {
    pub(super) note: Vec<u8>,
    pub(super) head: Vec<u8>,
}

/// Changes that are written in one transaction.
#[derive(Debug, Default)]
pub(super) struct CatalogueBatch {
    pub(super) added: Vec<CatalogueRow>,
    pub(super) revised: Vec<(u64, Revision)>,
    pub(super) deleted: Vec<u64>,
}

impl CatalogueBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.revised.is_empty() && self.deleted.is_empty()
    }
}

/// Whether this curtsy can use a catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CatalogueVersion {
    New,
    Current,
    /// A newer curtsy wrote it.
    Newer,
}

impl Catalogue {
    /// Opens or creates the file, which must exist already, with the right permissions.
    pub(super) fn open(path: &Path) -> rusqlite::Result<(Catalogue, CatalogueVersion)> {
        let connection = connect(path)?;
        let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let version = match version {
            0 => CatalogueVersion::New,
            VERSION => CatalogueVersion::Current,
            _ => return Ok((Catalogue { connection }, CatalogueVersion::Newer)),
        };
        // Deleted rows are at the beginning of the table, so their pages are soon used again.
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 1048576;
             PRAGMA wal_autocheckpoint = 256;",
        )?;
        if version == CatalogueVersion::New {
            connection.execute_batch(&format!("BEGIN; {TABLE}; PRAGMA user_version = {VERSION}; COMMIT;"))?;
        }
        Ok((Catalogue { connection }, version))
    }

    /// Opens a second connection, which waits for no writer.
    pub(super) fn reader(path: &Path) -> rusqlite::Result<Catalogue> {
        let connection = connect(path)?;
        connection.execute_batch("PRAGMA query_only = ON")?;
        Ok(Catalogue { connection })
    }

    /// Reads every page. An error or a complaint means damage.
    pub(super) fn check(&self) -> rusqlite::Result<Option<String>> {
        let complaint: String = self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        Ok((complaint != "ok").then_some(complaint))
    }

    /// Calls `each` for every row, the oldest first.
    pub(super) fn each(&self, mut each: impl FnMut(CatalogueRow)) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare(&format!("SELECT {COLUMNS} FROM entry ORDER BY id"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            each(read(row)?);
        }
        Ok(())
    }

    /// Returns the smallest and the largest time at which a response was received.
    pub(super) fn received(&self) -> rusqlite::Result<Option<(u64, u64)>> {
        let sql = "SELECT min(received_us), max(received_us) FROM entry";
        let times = |row: &Row<'_>| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?));
        let (oldest, newest) = self.connection.query_row(sql, [], times)?;
        Ok(oldest.zip(newest).map(|(oldest, newest)| (oldest.cast_unsigned(), newest.cast_unsigned())))
    }

    /// Returns the rows of a segment that has rows from `first` to `last`.
    pub(super) fn rows_of(&self, segment: SegmentName, first: u64, last: u64) -> rusqlite::Result<Vec<CatalogueRow>> {
        let sql = format!("SELECT {COLUMNS} FROM entry WHERE id BETWEEN ?1 AND ?2 AND segment = ?3 ORDER BY id");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let rows = statement.query_map(params![stored(first), stored(last), segment.number], read)?;
        rows.collect()
    }

    /// Returns what a validation changed, if one did.
    pub(super) fn revision(&self, id: u64) -> rusqlite::Result<Option<Revision>> {
        let mut statement = self.connection.prepare_cached("SELECT note, head FROM entry WHERE id = ?1")?;
        let revision = |row: &Row<'_>| Ok(row.get::<_, Option<_>>(0)?.zip(row.get(1)?));
        let found = statement.query_row([stored(id)], revision).optional()?.flatten();
        Ok(found.map(|(note, head)| Revision { note, head }))
    }

    pub(super) fn write(&mut self, batch: &CatalogueBatch) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut add = transaction.prepare_cached(
                "INSERT INTO entry (id, segment, large, offset, length, head_length, variant, url, partition, received_us)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, nullif(?9, ''), ?10)",
            )?;
            for row in &batch.added {
                let (number, is_large) = (row.segment.number, row.segment.is_large);
                let (length, received) = (stored(row.length), stored(row.received_us));
                let head = row.head_length;
                let (url, partition) = (&row.url, &row.partition);
                add.execute(params![
                    stored(row.id),
                    number,
                    is_large,
                    row.offset,
                    length,
                    head,
                    row.variant,
                    url,
                    partition,
                    received
                ])?;
            }
            let mut revise =
                transaction.prepare_cached("UPDATE entry SET note = ?2, head = ?3, suspect = 0 WHERE id = ?1")?;
            for (id, revision) in &batch.revised {
                revise.execute(params![stored(*id), revision.note, revision.head])?;
            }
            let mut delete = transaction.prepare_cached("DELETE FROM entry WHERE id = ?1")?;
            for id in &batch.deleted {
                delete.execute([stored(*id)])?;
            }
        }
        transaction.commit()
    }

    /// Deletes the rows of a segment that has rows from `first` to `last`.
    pub(super) fn delete_segment(&self, segment: SegmentName, first: u64, last: u64) -> rusqlite::Result<()> {
        let sql = "DELETE FROM entry WHERE id BETWEEN ?1 AND ?2 AND segment = ?3";
        self.connection.prepare_cached(sql)?.execute(params![stored(first), stored(last), segment.number]).map(drop)
    }

    /// Marks every row: the wall clock was set.
    pub(super) fn suspect_all(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch("UPDATE entry SET suspect = 1")
    }

    /// Moves the write-ahead log into the file.
    pub(super) fn settle(&self) -> rusqlite::Result<()> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(std::time::Duration::from_secs(1))?;
    Ok(connection)
}

/// `note` and `head` are set when a validation changed the stored fields. `user_version` is the format.
const TABLE: &str = "CREATE TABLE entry (
    id INTEGER PRIMARY KEY, segment INTEGER NOT NULL, large INTEGER NOT NULL, offset INTEGER NOT NULL,
    length INTEGER NOT NULL, head_length INTEGER NOT NULL, variant INTEGER NOT NULL, url TEXT NOT NULL,
    partition TEXT, received_us INTEGER NOT NULL, suspect INTEGER NOT NULL DEFAULT 0, note BLOB, head BLOB
)";
const VERSION: u32 = 1;
const COLUMNS: &str = "id, segment, large, offset, length, head_length, variant, url, partition, received_us, suspect, \
     note IS NOT NULL";

fn read(row: &Row<'_>) -> rusqlite::Result<CatalogueRow> {
    let unsigned = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
    Ok(CatalogueRow {
        id: unsigned(0)?,
        segment: SegmentName { number: row.get(1)?, is_large: row.get(2)? },
        offset: row.get(3)?,
        length: unsigned(4)?,
        head_length: row.get(5)?,
        variant: row.get(6)?,
        url: row.get(7)?,
        partition: row.get::<_, Option<String>>(8)?.unwrap_or_default(),
        received_us: unsigned(9)?,
        is_suspect: row.get(10)?,
        is_revised: row.get(11)?,
    })
}

fn stored(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
