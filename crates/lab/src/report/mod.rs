//! The report: one HTML page without scripts and without a network, made of studies' results alone
//! ([`crate::results`]), and the table of all that the papers have ([`papers`]) with what became of each.

pub mod chart;
mod escape;
mod html;
mod items;
pub mod papers;
mod printed;

pub use html::page;
