//! The C interface as C sees it: the header, programs that use it, and bad arguments.

#[macro_use(test)]
extern crate quire_testkit;

mod arguments;
mod header;
mod listing;
mod program;

fn main() -> std::process::ExitCode {
    quire_testkit::harness::main()
}
