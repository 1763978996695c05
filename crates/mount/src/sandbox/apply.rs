//! Closing the sandbox: Landlock first, because the filter of system calls then forbids Landlock's own.

pub(crate) use super::files::{Files, directory_of};
use super::{HELD, SandboxChoice, SandboxError, SandboxStats, broker, calls, threads};
use crate::mountinfo::MountEntry;
use landlock::{LandlockStatus, RulesetCreated, RulesetStatus};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::sync::OnceLock;

/// Whether a sandbox that must hold can hold: looked at before anything is touched.
///
/// # Errors
/// `sandbox=on`, and the kernel lacks a part of it.
pub(crate) fn check(choice: SandboxChoice) -> Result<(), SandboxError> {
    match choice {
        SandboxChoice::On => possible().map_err(|e| SandboxError::Incomplete(e.to_string())),
        SandboxChoice::Auto | SandboxChoice::Off => Ok(()),
    }
}

fn possible() -> Result<(), SandboxError> {
    if !broker::is_there() {
        return Err(SandboxError::NoBroker);
    }
    rules(&Files::default())?;
    calls::check()
}

/// Confines this process, for ever; what of it holds is in [`super::held`].
///
/// # Errors
/// `sandbox=on`, and a part of it does not hold.
pub(crate) fn confine(choice: SandboxChoice, files: &Files, mount: Option<&MountEntry>) -> Result<(), SandboxError> {
    if choice == SandboxChoice::Off {
        return Ok(());
    }
    let stats = confined(files, mount);
    let missing = stats.missing.clone();
    let held = HELD.get_or_init(|| stats);
    match missing.first() {
        Some(_) if choice == SandboxChoice::On => Err(SandboxError::Incomplete(missing.join("; "))),
        Some(_) => {
            tracing::info!("sandbox: {held}");
            Ok(())
        }
        None => {
            tracing::debug!("sandbox: {held}");
            Ok(())
        }
    }
}

fn confined(files: &Files, mount: Option<&MountEntry>) -> SandboxStats {
    let mut stats = SandboxStats::default();
    if !broker::is_there() {
        stats.missing.push(SandboxError::NoBroker.to_string());
        return stats;
    }
    if let Some(mount) = mount {
        broker::adopt(mount.id, &mount.device);
    }
    // From the first restriction on: a part may hold where the whole does not.
    broker::rely_on_it();
    match landlock(files) {
        Ok(abi) => stats.landlock_abi = Some(abi),
        Err(e) => stats.missing.push(e.to_string()),
    }
    match calls::restrict() {
        Ok(()) => stats.seccomp = true,
        Err(e) => stats.missing.push(e.to_string()),
    }
    stats
}

fn failed(e: impl std::fmt::Display) -> SandboxError {
    SandboxError::Landlock(e.to_string())
}

/// The rules, and their descriptor.
fn rules(files: &Files) -> Result<(RulesetCreated, OwnedFd), SandboxError> {
    let ruleset = files.ruleset().map_err(failed)?;
    let copy: Option<OwnedFd> = ruleset.try_clone().map_err(failed)?.into();
    copy.map(|fd| (ruleset, fd)).ok_or_else(|| failed("this kernel has none, or does not use it"))
}

/// `/proc/self`, open. A rule is for an inode, and the kernel makes a new one for a process's directory after it has
/// dropped the old one from its cache. It keeps what is open.
static OWN_PROC: OnceLock<OwnedFd> = OnceLock::new();

fn keep_own_proc() -> Result<(), SandboxError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open("/proc/self", flags, Mode::empty()) {
        Ok(dir) => drop(OWN_PROC.set(dir)),
        // Without it there is nothing to read, and no rule.
        Err(rustix::io::Errno::NOENT) => {}
        Err(e) => return Err(failed(e)),
    }
    Ok(())
}

/// Confines all threads; the kernel's version of Landlock.
pub(super) fn landlock(files: &Files) -> Result<i32, SandboxError> {
    keep_own_proc()?;
    let (ruleset, descriptor) = rules(files)?;
    threads::restrict_others(&descriptor).map_err(failed)?;
    let status = ruleset.restrict_self().map_err(failed)?;
    match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => Err(failed("not enforced")),
        (_, LandlockStatus::Available { effective_abi, kernel_abi }) => Ok(kernel_abi.unwrap_or(effective_abi as i32)),
        (_, _) => Err(failed("not enforced")),
    }
}
