//! Inodes: made, described, changed.

mod acl;
mod attr;
pub(crate) mod fileattr;
pub(crate) mod flags;
pub(crate) mod journaling_mode;
mod live;
mod make;
mod setattr;
mod symlink;
mod types;
pub(crate) mod xattrs;

pub use attr::Attr;
pub(crate) use live::{check_usable, live};
pub(crate) use make::make;
pub(crate) use setattr::{check_setattr, drop_privileges, is_atime_due, setattr, touch_atime};
pub(crate) use symlink::{is_fast_symlink, read_target};
pub(crate) use types::Inherit;
pub use types::{Cred, New, NewKind, Privileges, SetAttr, SetTime};
