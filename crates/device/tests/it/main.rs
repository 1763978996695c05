//! Devices, and the wrappers that count, measure and share flushes.

#[macro_use(test)]
extern crate quire_testkit;

#[cfg(not(feature = "shuttle"))]
mod agree;
#[cfg(not(feature = "shuttle"))]
mod counted;
#[cfg(not(feature = "shuttle"))]
mod file;
#[cfg(not(feature = "shuttle"))]
mod gate;
#[cfg(not(feature = "shuttle"))]
mod host;
#[cfg(not(feature = "shuttle"))]
mod pace;

fn main() -> std::process::ExitCode {
    quire_testkit::harness::main()
}
