//! A SQLite that knows the VFS, images, and the work that crash tests check.

use quire_testkit::{Rng, mke2fs};
use quire_vfs::{Adopted, FileSystem, adopt};
use rusqlite::{Connection, ErrorCode, ffi};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Longer than any wait that is not a failure.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(120);

/// Registers the VFS with the bundled SQLite.
pub(crate) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        unsafe extern "C" fn entry(
            db: *mut ffi::sqlite3,
            error: *mut *mut std::ffi::c_char,
            routines: *const ffi::sqlite3_api_routines,
        ) -> std::ffi::c_int {
            // SAFETY: these are SQLite's own arguments.
            unsafe { quire_vfs::auto_extension(db.cast(), error, routines.cast()) }
        }
        // SAFETY: the entry point stays valid.
        assert_eq!(unsafe { ffi::sqlite3_auto_extension(Some(entry)) }, ffi::SQLITE_OK);
        Connection::open_in_memory().unwrap();
    });
}

/// An image file of so many MiB, in a directory of its own.
pub(crate) fn image_file(mib: u64) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("image.ext4");
    std::fs::write(&path, image_bytes(mib)).unwrap();
    (dir, path)
}

pub(crate) fn image_bytes(mib: u64) -> Vec<u8> {
    mke2fs(&format!("{mib}M"), &["-q", "-F", "-t", "ext4", "-b", "4096", "-J", "size=4"])
}

/// A file system under a name of its own.
pub(crate) struct Named {
    pub(crate) name: String,
    _adopted: Adopted,
}

impl Named {
    pub(crate) fn new(fs: FileSystem) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let adopted = adopt(&name, fs).unwrap();
        Named { name, _adopted: adopted }
    }

    /// A file system in memory.
    pub(crate) fn in_memory(mib: u64) -> Self {
        Self::new(FileSystem::options().quire_log(true).open_bytes(image_bytes(mib)).unwrap())
    }

    pub(crate) fn path(&self, path: &str) -> String {
        format!("file:@{}{path}?vfs=quire", self.name)
    }

    pub(crate) fn open(&self, path: &str) -> Connection {
        open(&self.path(path))
    }

    pub(crate) fn open_in(&self, mode: Mode, path: &str) -> Connection {
        open(&mode.uri(&self.path(path)))
    }
}

pub(crate) fn in_image(image: &Path, path: &str) -> String {
    format!("file:{}{path}?vfs=quire", image.display())
}

pub(crate) fn try_open(uri: &str) -> rusqlite::Result<Connection> {
    register();
    let db = Connection::open(uri)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    Ok(db)
}

pub(crate) fn open(uri: &str) -> Connection {
    try_open(uri).unwrap_or_else(|e| panic!("{uri}: {e}"))
}

/// How SQLite keeps transactions whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Wal,
    /// A write-ahead log without shared memory.
    WalExclusive,
    /// Of a SQLite that has atomic updates: without a journal.
    Delete,
    /// With a rollback journal, as a SQLite without atomic updates.
    DeleteJournal,
    Persist,
    Truncate,
}

pub(crate) const MODES: [Mode; 6] =
    [Mode::Wal, Mode::WalExclusive, Mode::Delete, Mode::DeleteJournal, Mode::Persist, Mode::Truncate];

impl Mode {
    /// The URI of a database that is to work so.
    pub(crate) fn uri(self, uri: &str) -> String {
        let journal = matches!(self, Mode::DeleteJournal | Mode::Persist | Mode::Truncate);
        format!("{uri}{}", if journal { "&atomic_writes=off" } else { "" })
    }

    /// With `EXTRA`, what was acknowledged is durable in every mode.
    pub(crate) fn set(self, db: &Connection) -> rusqlite::Result<()> {
        if self == Mode::WalExclusive {
            db.pragma_update(None, "locking_mode", "exclusive")?;
        }
        let name = match self {
            Mode::Wal | Mode::WalExclusive => "wal",
            Mode::Delete | Mode::DeleteJournal => "delete",
            Mode::Persist => "persist",
            Mode::Truncate => "truncate",
        };
        let got: String = db.query_row(&format!("pragma journal_mode={name}"), [], |r| r.get(0))?;
        assert_eq!(got, name);
        db.pragma_update(None, "synchronous", "extra")
    }
}

/// Accounts of the bank, and what each has at first.
pub(crate) const ACCOUNTS: i64 = 20;
const BALANCE: i64 = 1000;

pub(crate) fn make_bank(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(
        "create table account(id integer primary key, balance integer not null);
         create table transfer(n integer primary key, source integer, target integer, amount integer, note blob);",
    )?;
    let all = db.unchecked_transaction()?;
    for id in 0..ACCOUNTS {
        db.execute("insert into account values (?, ?)", [id, BALANCE])?;
    }
    all.commit()
}

/// Transfer number `n`: three rows of two tables in one transaction.
pub(crate) fn transfer(db: &Connection, n: i64, rng: &mut Rng) -> rusqlite::Result<()> {
    let account = |rng: &mut Rng| i64::try_from(rng.below(20)).unwrap();
    let (source, target, amount) = (account(rng), account(rng), account(rng));
    let mut note = vec![0; rng.index(6000)];
    rng.fill(&mut note);
    let all = rusqlite::Transaction::new_unchecked(db, rusqlite::TransactionBehavior::Immediate)?;
    db.execute("insert into transfer values (?, ?, ?, ?, ?)", (n, source, target, amount, note))?;
    db.execute("update account set balance = balance - ? where id = ?", [amount, source])?;
    db.execute("update account set balance = balance + ? where id = ?", [amount, target])?;
    all.commit()
}

/// The database is whole, the balances are those of its transfers, and none of the acknowledged ones is missing.
/// Returns the number of transfers.
pub(crate) fn check_bank(db: &Connection, acknowledged: i64) -> Result<i64, String> {
    let told = |e: rusqlite::Error| e.to_string();
    let check: String = db.query_row("pragma integrity_check", [], |r| r.get(0)).map_err(told)?;
    if check != "ok" {
        return Err(format!("integrity_check: {check}"));
    }
    let one = |sql: &str| db.query_row(sql, [], |r| r.get::<_, i64>(0)).map_err(told);
    let (count, last) = (one("select count(*) from transfer")?, one("select coalesce(max(n), 0) from transfer")?);
    if count != last || count < acknowledged {
        return Err(format!("{count} transfers up to number {last}, and {acknowledged} were acknowledged"));
    }
    let wrong = one("select count(*) from account a where balance !=
            1000 - (select coalesce(sum(amount), 0) from transfer where source = a.id)
                 + (select coalesce(sum(amount), 0) from transfer where target = a.id)")?;
    if wrong > 0 { Err(format!("{wrong} balances are not those of the transfers")) } else { Ok(count) }
}

/// The result code of an error.
pub(crate) fn code(e: &rusqlite::Error) -> ErrorCode {
    e.sqlite_error_code().unwrap_or_else(|| panic!("not SQLite's: {e}"))
}
