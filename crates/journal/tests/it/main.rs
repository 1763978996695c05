//! A log without a file system around it: what it promises while things go wrong, and its recovery beside other
//! programs.

#[macro_use(test)]
extern crate quire_testkit;

mod durability;
mod recovery;
mod writes_jbd2;

fn main() -> std::process::ExitCode {
    quire_testkit::harness::main()
}
