//! The part of SQLite's C interface that a VFS needs: <https://sqlite.org/c3ref/vfs.html>,
//! <https://sqlite.org/c3ref/io_methods.html>. SQLite keeps these layouts and values for good.
//!
//! They stand here, and not in a crate of bindings, because such a crate brings a SQLite of its own along, or expects
//! one to link with. A loadable extension uses the SQLite that loads it.

use std::ffi::{c_char, c_int, c_void};

/// `sqlite3_file`: the head of what a VFS keeps of an open file.
#[repr(C)]
pub(crate) struct FileHead {
    /// Null: the file is not open, and SQLite calls no method.
    pub(crate) methods: *const IoMethods,
}

type OnFile<T> = Option<unsafe extern "C" fn(*mut FileHead, T) -> c_int>;

/// `sqlite3_io_methods`, version 2.
#[repr(C)]
pub(crate) struct IoMethods {
    pub(crate) version: c_int,
    pub(crate) close: Option<unsafe extern "C" fn(*mut FileHead) -> c_int>,
    pub(crate) read: Option<unsafe extern "C" fn(*mut FileHead, *mut c_void, c_int, i64) -> c_int>,
    pub(crate) write: Option<unsafe extern "C" fn(*mut FileHead, *const c_void, c_int, i64) -> c_int>,
    pub(crate) truncate: OnFile<i64>,
    pub(crate) sync: OnFile<c_int>,
    pub(crate) file_size: OnFile<*mut i64>,
    pub(crate) lock: OnFile<c_int>,
    pub(crate) unlock: OnFile<c_int>,
    pub(crate) check_reserved_lock: OnFile<*mut c_int>,
    pub(crate) file_control: Option<unsafe extern "C" fn(*mut FileHead, c_int, *mut c_void) -> c_int>,
    pub(crate) sector_size: Option<unsafe extern "C" fn(*mut FileHead) -> c_int>,
    pub(crate) device_characteristics: Option<unsafe extern "C" fn(*mut FileHead) -> c_int>,
    pub(crate) shm_map: Option<unsafe extern "C" fn(*mut FileHead, c_int, c_int, c_int, *mut *mut c_void) -> c_int>,
    pub(crate) shm_lock: Option<unsafe extern "C" fn(*mut FileHead, c_int, c_int, c_int) -> c_int>,
    pub(crate) shm_barrier: Option<unsafe extern "C" fn(*mut FileHead)>,
    pub(crate) shm_unmap: OnFile<c_int>,
}

/// `sqlite3_vfs`, version 2. Versions 1 and 3 differ in how many of the last fields they have.
#[repr(C)]
pub(crate) struct Vfs {
    pub(crate) version: c_int,
    pub(crate) file_size: c_int,
    pub(crate) max_path: c_int,
    pub(crate) next: *mut Vfs,
    pub(crate) name: *const c_char,
    pub(crate) app_data: *mut c_void,
    pub(crate) open: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, *mut FileHead, c_int, *mut c_int) -> c_int>,
    pub(crate) delete: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> c_int>,
    pub(crate) access: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_int) -> c_int>,
    pub(crate) full_pathname: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_char) -> c_int>,
    pub(crate) dl_open: Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *mut c_void>,
    pub(crate) dl_error: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char)>,
    pub(crate) dl_sym: Option<unsafe extern "C" fn(*mut Vfs, *mut c_void, *const c_char) -> Symbol>,
    pub(crate) dl_close: Option<unsafe extern "C" fn(*mut Vfs, *mut c_void)>,
    pub(crate) randomness: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int>,
    pub(crate) sleep: Option<unsafe extern "C" fn(*mut Vfs, c_int) -> c_int>,
    pub(crate) current_time: Option<unsafe extern "C" fn(*mut Vfs, *mut f64) -> c_int>,
    pub(crate) last_error: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int>,
    pub(crate) current_time_int64: Option<unsafe extern "C" fn(*mut Vfs, *mut i64) -> c_int>,
}

/// What `xDlSym` finds.
pub(crate) type Symbol = Option<unsafe extern "C" fn()>;

/// Result codes: <https://sqlite.org/rescode.html>.
pub(crate) mod code {
    use std::ffi::c_int;

    pub(crate) const OK: c_int = 0;
    pub(crate) const ERROR: c_int = 1;
    pub(crate) const BUSY: c_int = 5;
    pub(crate) const READONLY: c_int = 8;
    pub(crate) const IOERR: c_int = 10;
    pub(crate) const NOTFOUND: c_int = 12;
    pub(crate) const FULL: c_int = 13;
    pub(crate) const CANTOPEN: c_int = 14;
    /// Of an entry point: the library stays loaded.
    pub(crate) const OK_LOAD_PERMANENTLY: c_int = 256;

    const fn io_error(n: c_int) -> c_int {
        IOERR | (n << 8)
    }

    pub(crate) const IOERR_READ: c_int = io_error(1);
    pub(crate) const IOERR_SHORT_READ: c_int = io_error(2);
    pub(crate) const IOERR_WRITE: c_int = io_error(3);
    pub(crate) const IOERR_FSYNC: c_int = io_error(4);
    pub(crate) const IOERR_DIR_FSYNC: c_int = io_error(5);
    pub(crate) const IOERR_TRUNCATE: c_int = io_error(6);
    pub(crate) const IOERR_FSTAT: c_int = io_error(7);
    pub(crate) const IOERR_DELETE: c_int = io_error(10);
    pub(crate) const IOERR_ACCESS: c_int = io_error(13);
    pub(crate) const IOERR_CLOSE: c_int = io_error(16);
    pub(crate) const IOERR_SHMLOCK: c_int = io_error(20);
    pub(crate) const IOERR_SHMMAP: c_int = io_error(21);
    pub(crate) const IOERR_DELETE_NOENT: c_int = io_error(23);
    pub(crate) const IOERR_BEGIN_ATOMIC: c_int = io_error(29);
    pub(crate) const IOERR_COMMIT_ATOMIC: c_int = io_error(30);
    pub(crate) const IOERR_ROLLBACK_ATOMIC: c_int = io_error(31);
    pub(crate) const IOERR_CORRUPTFS: c_int = io_error(33);
}

/// Flags of `xOpen`.
pub(crate) mod open {
    use std::ffi::c_int;

    pub(crate) const READONLY: c_int = 0x1;
    pub(crate) const READWRITE: c_int = 0x2;
    pub(crate) const CREATE: c_int = 0x4;
    pub(crate) const DELETE_ON_CLOSE: c_int = 0x8;
    pub(crate) const EXCLUSIVE: c_int = 0x10;
    pub(crate) const MAIN_DB: c_int = 0x100;
    pub(crate) const MAIN_JOURNAL: c_int = 0x800;
    pub(crate) const WAL: c_int = 0x8_0000;
}

/// Bits of `xDeviceCharacteristics`.
pub(crate) mod iocap {
    use std::ffi::c_int;

    /// Writes of 512 bytes are atomic; the next seven bits are of twice the size each.
    pub(crate) const ATOMIC512: c_int = 0x2;
    pub(crate) const SAFE_APPEND: c_int = 0x200;
    pub(crate) const POWERSAFE_OVERWRITE: c_int = 0x1000;
    pub(crate) const BATCH_ATOMIC: c_int = 0x4000;
    pub(crate) const SUBPAGE_READ: c_int = 0x8000;
}

/// Codes of `xFileControl`.
pub(crate) mod fcntl {
    use std::ffi::c_int;

    pub(crate) const LOCKSTATE: c_int = 1;
    pub(crate) const LAST_ERRNO: c_int = 4;
    pub(crate) const PERSIST_WAL: c_int = 10;
    pub(crate) const VFSNAME: c_int = 12;
    pub(crate) const POWERSAFE_OVERWRITE: c_int = 13;
    pub(crate) const HAS_MOVED: c_int = 20;
    pub(crate) const BEGIN_ATOMIC_WRITE: c_int = 31;
    pub(crate) const COMMIT_ATOMIC_WRITE: c_int = 32;
    pub(crate) const ROLLBACK_ATOMIC_WRITE: c_int = 33;
}

/// Flags of `xShmLock`.
pub(crate) mod shm_flag {
    use std::ffi::c_int;

    pub(crate) const UNLOCK: c_int = 1;
    pub(crate) const SHARED: c_int = 4;
}

/// `xAccess`: may the file be written?
pub(crate) const ACCESS_READWRITE: c_int = 1;
