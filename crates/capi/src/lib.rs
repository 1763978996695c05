//! libquire: the C interface of the library `quire`. `include/quire.h` is made from this crate by cbindgen; a test
//! compares the two, and rewrites the header with `QUIRE_BLESS=1`.
//!
//! *Guarantees*: a function returns 0 or a count, or a negative errno; [`quire_last_error`]
//! tells the calling thread more. No panic leaves the library: it becomes `-EIO`. A null pointer where an argument is
//! needed, text that is not terminated within the limits of its type, and an unknown flag are `-EINVAL`.
//!
//! *Relies on* what the header asks of callers: pointers are valid for the call, a handle is not used after it was
//! closed, and a handle of a file or a directory is used by one thread at a time.

mod archive;
mod args;
mod attrs;
mod batch;
mod dir;
mod error;
mod file;
mod fs;
mod names;

pub use archive::*;
pub use attrs::*;
pub use batch::*;
pub use dir::*;
pub use error::*;
pub use file::*;
pub use fs::*;
pub use names::*;
