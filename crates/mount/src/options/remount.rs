//! What of a mount's options a remount can change: what the kernel keeps for every mount, what the engine reads anew
//! each time, and the tuning of the host. The rest decides how the image is opened, and stays.

use super::{MountOptions, OptionError, bad};

const STAYS: &str = "it cannot change while the image is mounted: unmount, and mount again";

impl MountOptions {
    /// These options, changed by those of a remount.
    ///
    /// # Errors
    /// The first option that is unknown, or that would change what stays.
    pub fn remounted(&self, list: &str) -> Result<MountOptions, OptionError> {
        let mut changed = self.clone();
        changed.ignored.clear();
        changed.add(list)?;
        if changed.fixed() == self.fixed() {
            changed.check_fake_root()?;
            return Ok(changed);
        }
        let stays = |option: &&str| {
            let mut one = self.clone();
            one.add(option).is_ok() && one.fixed() != self.fixed()
        };
        Err(bad(list.split(',').find(stays).unwrap_or(list), STAYS))
    }

    /// The options that stay, with all others as they are by default.
    fn fixed(&self) -> MountOptions {
        let none = MountOptions::default();
        MountOptions {
            remount: none.remount,
            read_only: none.read_only,
            on_error: none.on_error,
            data_error_aborts: none.data_error_aborts,
            atime: none.atime,
            no_dir_atime: none.no_dir_atime,
            commit: none.commit,
            grpid: none.grpid,
            discard: none.discard,
            no_dev: none.no_dev,
            no_suid: none.no_suid,
            no_exec: none.no_exec,
            no_symfollow: none.no_symfollow,
            sync: none.sync,
            dir_sync: none.dir_sync,
            tune_host: none.tune_host,
            ignored: Vec::new(),
            // The kernel tells the default as if it had been asked for.
            allow_other: Some(self.allow_other.unwrap_or_else(|| rustix::process::geteuid().is_root())),
            ..self.clone()
        }
    }
}
