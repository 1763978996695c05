//! The built command: its subcommands, and what programs see on its mounts.

#[macro_use(test)]
extern crate quire_testkit;

mod atomic_writes;
mod automount;
mod bytes_logged;
mod chattr;
mod clients;
mod commits;
mod common;
mod control;
mod devices;
mod failing_device;
mod features;
mod full_host;
mod fuse2fs;
mod grow;
mod handed_over;
mod host;
mod host_files;
mod hostile_trees;
mod images;
mod interrupts;
mod kernel_cache;
mod lifecycle;
mod monitoring;
mod mount;
mod names;
mod nvram;
mod options;
mod permissions;
mod printed;
mod quire_log;
mod readers;
mod recipes;
mod remount;
mod routes;
mod sandbox;
mod served;
mod setid;
mod shell;
mod shutdown;
mod signals;
mod sources;
mod start;
mod tool_errors;
mod toolbox;
mod transport;
mod trees;
mod write_requests;

fn main() -> std::process::ExitCode {
    quire_testkit::harness::main()
}
