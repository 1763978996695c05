//! Notes in a database inside an image: `notes IMAGE TEXT` adds one and prints all.
//!
//! The program is linked with a SQLite (rusqlite's), which learns of the VFS by `sqlite3_auto_extension`.

use rusqlite::{Connection, ffi};
use std::ffi::{c_char, c_int};

unsafe extern "C" fn entry(
    db: *mut ffi::sqlite3,
    error: *mut *mut c_char,
    routines: *const ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: these are SQLite's own arguments.
    unsafe { quire_vfs::auto_extension(db.cast(), error, routines.cast()) }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(image), Some(note)) = (args.next(), args.next()) else { return Err("usage: notes IMAGE TEXT".into()) };
    // SAFETY: the entry point stays valid.
    unsafe { ffi::sqlite3_auto_extension(Some(entry)) };
    // The first connection of the process brings the VFS.
    Connection::open_in_memory()?;
    let db = Connection::open(format!("file:{image}/notes.db?vfs=quire"))?;
    db.pragma_update(None, "journal_mode", "wal")?;
    db.execute("create table if not exists note(at text default current_timestamp, text text)", [])?;
    db.execute("insert into note(text) values (?)", [note])?;
    let mut all = db.prepare("select at, text from note")?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        println!("{}  {}", row.get::<_, String>(0)?, row.get::<_, String>(1)?);
    }
    Ok(())
}
