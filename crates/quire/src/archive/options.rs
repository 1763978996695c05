//! What an import changes on the way.

use super::progress::{LeftOut, LeftOutNames, Progress, Watch};
use crate::error::Result;
use crate::metadata::{Timestamp, check_owner};
use crate::shared::HostFile;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::Path;

/// How a tree is imported: a builder.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ImportOptions {
    owner: (Option<u32>, Option<u32>),
    users: HashMap<u32, u32>,
    groups: HashMap<u32, u32>,
    and_permissions: Option<u32>,
    pub(super) whiteouts: bool,
    latest: Option<Timestamp>,
    pub(super) reference: Option<String>,
    /// Files of the host that a directory may have, and that stay out.
    pub(super) left_out: Vec<HostFile>,
    pub(super) left_out_xattrs: LeftOutNames,
    pub(super) watch: Watch,
}

impl ImportOptions {
    pub fn new() -> Self {
        ImportOptions::default()
    }

    /// All objects get this owner, or group, instead of their own.
    pub fn owner(self, uid: Option<u32>, gid: Option<u32>) -> Self {
        ImportOptions { owner: (uid, gid), ..self }
    }

    /// Objects of user `from` become user `to`'s.
    pub fn map_user(mut self, from: u32, to: u32) -> Self {
        self.users.insert(from, to);
        self
    }

    /// Objects of group `from` become group `to`'s.
    pub fn map_group(mut self, from: u32, to: u32) -> Self {
        self.groups.insert(from, to);
        self
    }

    /// Permission bits that no object keeps, such as 0022 or 06000.
    pub fn remove_permissions(self, bits: u32) -> Self {
        ImportOptions { and_permissions: Some(!bits), ..self }
    }

    /// Names that begin with `.wh.` in a tar hide what is in the image, as in the layers of OCI images.
    pub fn whiteouts(self, yes: bool) -> Self {
        ImportOptions { whiteouts: yes, ..self }
    }

    /// Times after this become this: what was built in between does not change the result.
    pub fn latest_time(self, t: Timestamp) -> Self {
        ImportOptions { latest: Some(t), ..self }
    }

    /// The name of the image in an OCI layout (`org.opencontainers.image.ref.name` in its index). An image of another
    /// name, or of none, is not taken.
    pub fn reference(self, name: impl Into<String>) -> Self {
        ImportOptions { reference: Some(name.into()), ..self }
    }

    /// Leaves a file of the host out of a directory that is read: the image itself. A file that is not there is none.
    pub fn leave_out(mut self, path: impl AsRef<Path>) -> Self {
        self.left_out.extend(HostFile::at(path.as_ref()));
        self
    }

    pub(super) fn leave_out_image(mut self, image: Option<HostFile>) -> Self {
        self.left_out.extend(image);
        self
    }

    /// Calls `told` for each object and each MiB of data. If it breaks, the import fails with
    /// [`Cancelled`](crate::ErrorKind::Cancelled), and an image that was being built is not left.
    ///
    /// ```
    /// use quire::archive::{ImportOptions, Source};
    /// use quire::{CreateOptions, ErrorKind};
    /// use std::ops::ControlFlow;
    /// # let host = tempfile::tempdir().unwrap();
    /// let fs = CreateOptions::new().size(16 << 20).in_memory()?;
    /// let options = ImportOptions::new().on_progress(|_| ControlFlow::Break(()));
    /// let done = quire::archive::import(&fs, "/", Source::Dir(host.path().into()), &options);
    /// assert_eq!(done.unwrap_err().kind(), ErrorKind::Cancelled);
    /// # Ok::<(), quire::Error>(())
    /// ```
    pub fn on_progress(self, told: impl Fn(Progress) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        ImportOptions { watch: Watch::new(told), ..self }
    }

    /// Calls `told` with the name of an extended attribute that the image cannot have, and with the path in the source
    /// of the first object that has it. Those of other systems are left out (`com.apple.*`, `system.nfs4_acl`,
    /// `btrfs.compression`), and those that ext4 has for other objects only, such as `user.*` of a symbolic link. An
    /// import tells of each name once, and of 100 names at most. Without this call a warning goes to the log.
    ///
    /// ```
    /// use quire::CreateOptions;
    /// use quire::archive::{ImportOptions, Source};
    /// use std::{ffi::OsStr, path::Path, sync::mpsc::channel};
    /// # let mut pax = tar::Builder::new(Vec::new());
    /// # pax.append_pax_extensions([("SCHILY.xattr.com.apple.provenance", &b"1"[..])]).unwrap();
    /// # let mut header = tar::Header::new_ustar();
    /// # header.set_size(0);
    /// # pax.append_data(&mut header, "Info.plist", std::io::empty()).unwrap();
    /// # let archive = std::io::Cursor::new(pax.into_inner().unwrap());
    /// let fs = CreateOptions::new().size(16 << 20).in_memory()?;
    /// let (told, left_out) = channel();
    /// let tell = move |name: &OsStr, path: &Path| told.send((name.to_owned(), path.to_owned())).unwrap();
    /// let options = ImportOptions::new().on_left_out(tell);
    /// quire::archive::import(&fs, "/", Source::Stream(Box::new(archive)), &options)?;
    /// let (name, path) = left_out.try_iter().next().unwrap();
    /// assert_eq!((name.as_os_str(), &*path), (OsStr::new("com.apple.provenance"), Path::new("Info.plist")));
    /// # Ok::<(), quire::Error>(())
    /// ```
    pub fn on_left_out(self, told: impl Fn(&OsStr, &Path) + Send + Sync + 'static) -> Self {
        ImportOptions { left_out_xattrs: LeftOutNames::new(told), ..self }
    }

    /// For an import that tells of what it leaves out, whatever an earlier one has told.
    pub(super) fn telling_anew(&self) -> Self {
        ImportOptions { left_out_xattrs: self.left_out_xattrs.anew(), ..self.clone() }
    }

    /// # Errors
    /// Invalid: objects would get an owner that none can have.
    pub(super) fn check(&self) -> Result<()> {
        check_owner(self.owner.0, self.owner.1)?;
        self.users.values().try_for_each(|to| check_owner(Some(*to), None))?;
        self.groups.values().try_for_each(|to| check_owner(None, Some(*to)))
    }

    pub(super) fn owner_of(&self, uid: u32, gid: u32) -> (u32, u32) {
        let user = self.owner.0.or_else(|| self.users.get(&uid).copied()).unwrap_or(uid);
        (user, self.owner.1.or_else(|| self.groups.get(&gid).copied()).unwrap_or(gid))
    }

    pub(super) fn permissions_of(&self, permissions: u32) -> u32 {
        permissions & self.and_permissions.unwrap_or(0o7777)
    }

    pub(super) fn clamped(&self, t: Timestamp) -> Timestamp {
        self.latest.map_or(t, |latest| t.min(latest))
    }
}

/// How a tree is exported: a builder.
///
/// ```
/// use quire::archive::{ExportOptions, export_dir_with};
/// use quire::{CreateOptions, ErrorKind};
/// use std::ops::ControlFlow;
/// # let host = tempfile::tempdir().unwrap();
/// let fs = CreateOptions::new().size(16 << 20).in_memory()?;
/// let options = ExportOptions::new().on_progress(|_| ControlFlow::Break(()));
/// let done = export_dir_with(&fs, "/", host.path(), &options);
/// assert_eq!(done.unwrap_err().kind(), ErrorKind::Cancelled);
/// # Ok::<(), quire::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ExportOptions {
    pub(super) watch: Watch,
    pub(super) left_out: LeftOut,
}

impl ExportOptions {
    pub fn new() -> Self {
        ExportOptions::default()
    }

    /// Calls `told` for each object and each MiB of data. If it breaks, the export fails with
    /// [`Cancelled`](crate::ErrorKind::Cancelled), and what was written until then stays.
    pub fn on_progress(self, told: impl Fn(Progress) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        ExportOptions { watch: Watch::new(told), ..self }
    }

    /// Calls `told` with the path in the image of each object that the archive cannot have: a socket, in a tar.
    ///
    /// ```
    /// use quire::archive::{ExportOptions, export_tar_with};
    /// use quire::{CreateOptions, FileType, NewNode};
    /// use std::sync::mpsc::channel;
    /// let fs = CreateOptions::new().size(16 << 20).in_memory()?;
    /// fs.create_node("/log", NewNode::new(FileType::Socket, 0o666))?;
    /// let (told, left_out) = channel();
    /// let options = ExportOptions::new().on_left_out(move |path| told.send(path.to_owned()).unwrap());
    /// export_tar_with(&fs, "/", &mut Vec::new(), &options)?;
    /// drop(options);
    /// assert_eq!(left_out.iter().collect::<Vec<_>>(), [std::path::Path::new("/log")]);
    /// # Ok::<(), quire::Error>(())
    /// ```
    pub fn on_left_out(self, told: impl Fn(&Path) + Send + Sync + 'static) -> Self {
        ExportOptions { left_out: LeftOut::new(told), ..self }
    }
}
