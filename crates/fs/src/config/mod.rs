//! What a mount chooses: options, the four choices of the engine, and rules by name.

mod choices;
mod journaling_mode;
mod options;

pub use choices::{Checkpoint, Choices, CommitMode, Illegal, LogKind, Profile, Record, Route, UnknownValue};
pub(crate) use journaling_mode::by_rule;
pub use journaling_mode::{JournalingMode, ModeRule, name_matches};
pub use options::{Atime, Options};
