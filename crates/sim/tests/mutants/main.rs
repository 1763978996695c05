//! Tests of the tests: each deliberately broken engine must be found.

mod block;
mod faults;
mod nvram;

/// True unless `QUIRE_SIM_MUTANT` picks another.
fn wants(mutant: quire_device::Mutant) -> bool {
    std::env::var("QUIRE_SIM_MUTANT").map_or(true, |only| only == format!("{mutant:?}"))
}
