//! What the crate does with a kernel, without the command.

#[macro_use(test)]
extern crate quire_testkit;

mod exposed;

fn main() -> std::process::ExitCode {
    quire_testkit::harness::main()
}
