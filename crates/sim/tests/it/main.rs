//! Campaigns of the simulator: crash states, failing devices, damaged images.

mod ace;
mod crash;
mod faults;
mod hostile;
mod nvram;
