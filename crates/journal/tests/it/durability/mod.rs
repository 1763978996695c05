//! What the journal promises while things go wrong: devices that fail, loads that take long, a power cut at every step.

mod beside;
mod failures;
mod fast_commits;
mod ledger;
mod merged;
mod nvram;
mod overlap;
mod power;
mod quire;
mod quire_cases;
mod reads;
mod room;
mod setup;
mod suspended;
