//! What a confined daemon may still open by name, as Landlock rules. What is open already stays open: the image, its
//! journal, NVRAM, `/dev/fuse`, the log. Attributes (stat, chmod) and connecting to `/dev/log` are not Landlock's.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope,
};
use std::path::{Path, PathBuf};

/// Later versions know rights that would need rules for what the daemon does: connecting to `/dev/log`.
const FILE_RIGHTS: ABI = ABI::V5;
const NET_RIGHTS: ABI = ABI::V4;

/// What differs from mount to mount.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// The directory of the control socket, which is made and removed.
    pub(crate) control_dir: Option<PathBuf>,
    /// The directory of `lockfile=`, which is removed.
    pub(crate) lock_dir: Option<PathBuf>,
    /// The mount's device number, as mountinfo has it.
    pub(crate) device: Option<String>,
    /// `tune=host` may be asked for, now or by a remount.
    pub(crate) may_tune: bool,
}

type Rule = (PathBuf, BitFlags<AccessFs>);

impl Files {
    /// Each with its reason.
    fn rules(&self) -> Vec<Rule> {
        let read: BitFlags<AccessFs> = AccessFs::ReadFile.into();
        let write = AccessFs::WriteFile | AccessFs::Truncate;
        let mut rules = vec![
            // mountinfo: where this mount is. maps: a panic's backtrace. task: its threads.
            ("/proc/self".into(), read | AccessFs::ReadDir),
            // How many requests wait in the kernel (quire stats).
            ("/sys/fs/fuse/connections".into(), read),
            // A daemon that lets go of the terminal.
            ("/dev/null".into(), read | AccessFs::WriteFile),
        ];
        // The names of functions in a panic's backtrace.
        rules.extend(std::env::current_exe().ok().map(|exe| (exe, read)));
        rules.extend(self.control_dir.iter().map(|d| (d.clone(), AccessFs::MakeSock | AccessFs::RemoveFile)));
        rules.extend(self.lock_dir.iter().map(|d| (d.clone(), AccessFs::RemoveFile.into())));
        if self.may_tune {
            // Whether idle CPUs poll, and the kernel's share of dirty pages for this mount.
            rules.push(("/sys/devices/system/cpu/cpuidle/current_governor".into(), read));
            rules.push(("/sys/module/haltpoll/parameters/guest_halt_poll_ns".into(), read));
            rules.push(("/dev/cpu_dma_latency".into(), write));
            let bdi = |device: &String| {
                let entry = format!("/sys/class/bdi/{device}");
                [format!("{entry}-fuseblk").into(), entry.into()].map(|dir: PathBuf| (dir, read | write))
            };
            rules.extend(self.device.iter().flat_map(bdi));
        }
        rules
    }

    /// The rules as the kernel has them; what is not there needs no rule.
    ///
    /// # Errors
    /// The kernel refuses a rule.
    pub(super) fn ruleset(&self) -> Result<RulesetCreated, RulesetError> {
        let mut ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(FILE_RIGHTS))?
            .handle_access(AccessNet::from_all(NET_RIGHTS))?
            .scope(Scope::AbstractUnixSocket)?
            .create()?;
        for (path, rights) in self.rules() {
            let Ok(opened) = PathFd::new(&path) else { continue };
            let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(FILE_RIGHTS) };
            ruleset = ruleset.add_rule(PathBeneath::new(opened, rights))?;
        }
        Ok(ruleset)
    }
}

/// The directory that a file lies in.
pub(crate) fn directory_of(path: &Path) -> Option<PathBuf> {
    std::path::absolute(path).ok()?.parent().map(Path::to_owned)
}
