//! Devices, and the wrappers that count, measure and share flushes.
#![cfg(not(feature = "shuttle"))]

mod agree;
mod counted;
mod file;
mod gate;
mod host;
mod pace;
