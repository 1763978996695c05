//! The subcommands, one to a file.

pub(crate) mod at;
pub(crate) mod control;
pub(crate) mod dump;
pub(crate) mod generate;
pub(crate) mod info;
pub(crate) mod journal;
pub(crate) mod mount;
pub(crate) mod recover;
pub(crate) mod stats;
pub(crate) mod tool;
pub(crate) mod top;
pub(crate) mod umount;
pub(crate) mod wait;
