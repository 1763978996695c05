//! The built command: its subcommands, and what programs see on its mounts.

mod bytes_logged;
mod chattr;
mod clients;
mod common;
mod control;
mod devices;
mod features;
mod fuse2fs;
mod host;
mod images;
mod kernel_cache;
mod lifecycle;
mod mount;
mod nvram;
mod options;
mod permissions;
mod quire_log;
mod recipes;
mod remount;
mod routes;
mod setid;
mod shutdown;
mod signals;
mod toolbox;
mod trees;
mod write_requests;
