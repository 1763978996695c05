//! What a process may ask of a mount: capabilities as capabilities(7) has them, in the mount's user namespace.
//!
//! *Guarantees*: P1: a capability counts only if the process has it in the user namespace in which the daemon runs, so
//! that root of a container has no say in a mount of the host. Where the daemon itself lacks the capability (a user's
//! mount, or root of a container that mounts through fusermount3), its user may instead: it is his mount.
//!
//! *Relies on*: the process waits for the answer, so that its number is not given to another meanwhile. The
//! caller of a FUSE request that the daemon has read does; for a peer of the control socket see its listener.

use crate::sandbox::broker;
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The capabilities that matter here, with their numbers in the kernel's `linux/capability.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Capability {
    /// Act as the owner of any file.
    Fowner = 3,
    /// Make files immutable or append-only, and end that.
    LinuxImmutable = 9,
    /// Freeze, thaw, trim, unmount.
    SysAdmin = 21,
    /// Take more of what all share: a file whose data is journaled, a larger file system.
    SysResource = 24,
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    /// In the daemon's user namespace.
    pub uid: u32,
    /// In the daemon's process namespace; 0: not visible there.
    pub pid: u32,
}

/// What the daemon itself is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keeper {
    uid: u32,
    capabilities: u64,
    namespace: Option<(u64, u64)>,
}

impl Keeper {
    /// This process.
    pub(crate) fn of_this_process() -> Self {
        Keeper {
            uid: rustix::process::geteuid().as_raw(),
            capabilities: effective("self").unwrap_or(0),
            namespace: namespace("self"),
        }
    }

    /// The daemon's user.
    pub(crate) fn user(&self) -> u32 {
        self.uid
    }

    /// True if the caller may what the capability allows.
    pub(crate) fn allows(&self, caller: Caller, capability: Capability) -> bool {
        let bit = 1 << capability as u64;
        let own = self.capabilities & bit != 0;
        if !own && caller.uid == self.uid {
            return true;
        }
        let Some(has) = (caller.pid != 0).then(|| effective(&caller.pid.to_string())).flatten() else { return false };
        let same_namespace = match namespace(&caller.pid.to_string()) {
            Some(theirs) => Some(theirs) == self.namespace,
            // A daemon without rights may not look at the namespaces of others. Number 0 is then root of its own.
            None => !own && caller.uid == 0,
        };
        has & bit != 0 && same_namespace
    }
}

/// The effective capabilities of a process.
fn effective(process: &str) -> Option<u64> {
    u64::from_str_radix(status(process, "CapEff:")?.trim(), 16).ok()
}

/// The user in whose name a process acts.
pub(crate) fn effective_user(pid: u32) -> Option<u32> {
    // Real, effective, saved, for files.
    status(&pid.to_string(), "Uid:")?.split_whitespace().nth(1)?.parse().ok()
}

/// A number in a process's memory: the argument of FS_IOC_SHUTDOWN, an ioctl that the kernel does not copy, because its
/// command says that it only reads. The process waits for the answer.
///
/// # Errors
/// There is no memory at this address; or the daemon may not look at this process (`EPERM`, `ESRCH`).
pub(crate) fn argument(pid: u32, address: u64) -> Result<u32, Errno> {
    broker::shutdown_flag(pid, address).unwrap_or_else(|| read_argument(pid, address))
}

/// The same by this process itself.
pub(crate) fn read_argument(pid: u32, address: u64) -> Result<u32, Errno> {
    let pid = i32::try_from(pid).map_err(|_| Errno::SRCH)?;
    let mut bytes = [0u8; 4];
    let base = usize::try_from(address).map_err(|_| Errno::FAULT)?;
    let ours = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let theirs = libc::iovec { iov_base: std::ptr::without_provenance_mut(base), iov_len: bytes.len() };
    // SAFETY: the call writes to `bytes` alone, which lives until it returns; the other address is of another process
    // and is only passed on.
    let n = unsafe { libc::process_vm_readv(pid, &raw const ours, 1, &raw const theirs, 1, 0) };
    match usize::try_from(n) {
        Ok(n) if n == bytes.len() => Ok(u32::from_ne_bytes(bytes)),
        Ok(_) => Err(Errno::FAULT),
        Err(_) => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::FAULT)),
    }
}

/// A line of what `/proc` tells anybody of a process.
fn status(process: &str, name: &str) -> Option<String> {
    let asked = process.parse().ok().and_then(broker::status);
    let status = asked.unwrap_or_else(|| read_status(process))?;
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
}

pub(crate) fn read_status(process: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{process}/status")).ok()
}

/// True if a process is in a group, its first one apart.
pub(crate) fn is_in_group(pid: u32, gid: u32) -> bool {
    let groups = status(&pid.to_string(), "Groups:").unwrap_or_default();
    groups.split_whitespace().any(|g| g.parse() == Ok(gid))
}

/// The user namespace of a process.
fn namespace(process: &str) -> Option<(u64, u64)> {
    let asked = process.parse().ok().and_then(broker::user_namespace);
    asked.unwrap_or_else(|| read_namespace(process))
}

pub(crate) fn read_namespace(process: &str) -> Option<(u64, u64)> {
    let file = fs::metadata(format!("/proc/{process}/ns/user")).ok()?;
    Some((file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Caller {
        Caller { uid: rustix::process::geteuid().as_raw(), pid: std::process::id() }
    }

    #[test]
    fn a_keeper_without_the_capability_is_asked_by_its_user_alone() {
        let keeper = Keeper { uid: 1000, capabilities: 0, ..Keeper::of_this_process() };
        assert!(keeper.allows(Caller { uid: 1000, pid: 0 }, Capability::SysAdmin));
        assert!(!keeper.allows(Caller { uid: 1001, pid: 0 }, Capability::SysAdmin));
    }

    #[test]
    fn a_keeper_with_the_capability_demands_it_also_of_its_user() {
        let keeper = Keeper { uid: me().uid, capabilities: u64::MAX, ..Keeper::of_this_process() };
        assert!(
            !keeper.allows(Caller { uid: me().uid, pid: 0 }, Capability::SysAdmin),
            "a process that is not visible"
        );
        let has = effective("self").unwrap() >> Capability::Fowner as u64 & 1 != 0;
        assert_eq!(keeper.allows(me(), Capability::Fowner), has);
    }

    #[test]
    fn a_capability_of_another_user_namespace_does_not_count() {
        let keeper = Keeper { uid: 77, capabilities: u64::MAX, namespace: Some((0, 0)) };
        assert!(!keeper.allows(me(), Capability::Fowner));
    }
}
