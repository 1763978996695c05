//! What a mount chooses: options, the four choices of the engine, and rules by name.

mod choices;
mod journaling_mode;
mod options;
mod without;

pub use choices::{Choices, Illegal, Profile, Route};
pub(crate) use journaling_mode::by_rule;
pub use journaling_mode::{JournalingMode, ModeRule, name_matches};
pub use options::{Atime, Options, RuntimeOptions};
pub use quire_journal::{BatchTime, Checkpoint, CommitMode, Record, UnknownValue};
pub use without::Without;
