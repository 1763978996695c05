//! SQL over the VFS: in this process with the bundled SQLite, in other processes with the sqlite3 shell.

#[macro_use(test)]
extern crate quire_testkit;

mod bad_images;
mod common;
mod control;
mod cuts;
mod defects;
mod forks;
mod kill;
mod power;
mod shell;
mod sql;

fn main() -> std::process::ExitCode {
    quire_testkit::harness::main()
}
