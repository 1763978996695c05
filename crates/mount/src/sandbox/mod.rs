//! The sandbox of a daemon: what it gives up once it has opened what it needs, so that a fault that a hostile image
//! finds in it reaches no other file and starts no program.
//!
//! ```text
//! start ─> broker splits off ─> image, mount, control socket ─> [ Landlock, all threads ─> seccomp, all threads ] ─> serve
//!             │                                                                                  │
//!             └ unmounts this mount, tells of callers <───── three sockets, narrow questions ────┘
//! ```
//! *Guarantees*: P4: a daemon in the sandbox opens no file, runs no program and mounts nothing, save what `files` and
//! `calls` list.
//!
//! *Relies on*: the kernel's Landlock (5.13) and seccomp. The `broker` does what no confined process may: Landlock
//! forbids unmounting, and looking at the namespaces and the memory of callers.

pub(crate) mod apply;
pub(crate) mod broker;
pub mod broker_process;
mod calls;
mod files;
#[cfg(test)]
mod tests;
mod threads;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::OnceLock;

/// What `sandbox=` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SandboxChoice {
    /// As much of it as the kernel can do.
    #[default]
    Auto,
    /// All of it, or no mount.
    On,
    Off,
}

/// Why a mount with `sandbox=on` cannot be had, or what another one lacks.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("sandbox=on: {0}")]
    Incomplete(String),
    #[error("no broker could be started")]
    NoBroker,
    #[error("landlock: {0}")]
    Landlock(String),
    #[error("seccomp: {0}")]
    Seccomp(String),
}

/// What `quire stats` shows of the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStats {
    /// The kernel's version of Landlock, where it holds.
    pub landlock_abi: Option<i32>,
    pub seccomp: bool,
    /// What was wanted and does not hold, with the reason.
    pub missing: Vec<String>,
}

impl fmt::Display for SandboxStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let landlock = self.landlock_abi.map(|abi| format!("landlock ABI {abi}"));
        let holds: Vec<String> = landlock.into_iter().chain(self.seccomp.then(|| "seccomp".to_owned())).collect();
        f.write_str(if holds.is_empty() { "none" } else { "" })?;
        f.write_str(&holds.join(", "))?;
        if self.missing.is_empty() { Ok(()) } else { write!(f, " (missing: {})", self.missing.join("; ")) }
    }
}

/// What holds of this process. It has one sandbox, as it has one system call filter.
static HELD: OnceLock<SandboxStats> = OnceLock::new();

/// What holds of this process now.
pub(crate) fn held() -> SandboxStats {
    HELD.get().cloned().unwrap_or_default()
}
