//! What changes names and attributes: `mkdir`, `rm`, `mv`, `ln`, `chmod`, `chown`, `touch`, `truncate`, `setfattr`.

use super::action::{Action, Out, PathChange};
use super::failure::Failure;
use super::values::{self, ModeChange, set_owner};
use crate::text::printable_name;
use quire::{ErrorKind, FileSystem, FileType, Links, Metadata, NewNode, SetMetadata, Timestamp};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire mkdir -p -m 0700 rootfs.img:/var/lib/app")]
pub(crate) struct Mkdir {
    /// Make missing parents, too; what exists already is no error
    #[arg(short, long)]
    parents: bool,
    /// Permissions
    #[arg(short, long, value_parser = values::mode)]
    mode: Option<ModeChange>,
    /// Owner and group, as numbers
    #[arg(long, value_name = "UID:GID", value_parser = values::owner)]
    owner: Option<(Option<u32>, Option<u32>)>,
}

impl PathChange for Mkdir {
    fn run(&self, fs: &FileSystem, paths: &[OsString]) -> Result<(), Failure> {
        for path in paths {
            let exists = self.parents && fs.metadata(path).is_ok_and(|m| m.is_dir());
            if exists {
                continue;
            }
            if self.parents {
                fs.create_dir_all(path)?
            } else {
                fs.create_dir(path)?
            };
            let set = set_owner(SetMetadata::new(), self.owner);
            let set = self.mode.as_ref().map_or(set, |m| set.permissions(m.apply(0o755, true)));
            fs.set_metadata(path, Links::NoFollow, set)?;
        }
        Ok(())
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire rm -r rootfs.img:/var/cache/apt")]
pub(crate) struct Rm {
    /// Directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// Empty directories
    #[arg(short, long)]
    dir: bool,
    /// What does not exist is no error
    #[arg(short, long)]
    force: bool,
}

impl PathChange for Rm {
    fn may_take_steps(&self) -> bool {
        true
    }

    fn run(&self, fs: &FileSystem, paths: &[OsString]) -> Result<(), Failure> {
        for path in paths {
            let done = if self.recursive {
                fs.remove_all(path)
            } else if self.dir && fs.symlink_metadata(path).is_ok_and(|m| m.is_dir()) {
                fs.remove_dir(path)
            } else {
                fs.remove_file(path)
            };
            match done {
                Err(e) if self.force && e.kind() == ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// The path that a name gets: in `to`, if that is a directory.
fn into_dir(fs: &FileSystem, from: &OsStr, to: &OsStr) -> Result<PathBuf, Failure> {
    if !fs.metadata(to).is_ok_and(|m| m.is_dir()) {
        return Ok(to.into());
    }
    let none = || Failure::Usage(format!("{}: the path has no last name", printable_name(from)));
    let name = last_name(from).ok_or_else(none)?;
    Ok(Path::new(to).join(name))
}

/// The last name of a path. One that ends in `.` or `..` has none.
fn last_name(path: &OsStr) -> Option<&OsStr> {
    let mut names = path.as_bytes().rsplit(|b| *b == b'/').filter(|name| !name.is_empty());
    names.next().filter(|name| !matches!(*name, b"." | b"..")).map(OsStr::from_bytes)
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire mv rootfs.img:/etc/hosts.new rootfs.img:/etc/hosts")]
pub(crate) struct Mv {
    #[arg(value_name = "IMG:FROM")]
    from: OsString,
    /// The new name, or a directory
    #[arg(value_name = "IMG:TO")]
    to: OsString,
}

impl Action for Mv {
    fn names(&mut self) -> Vec<&mut OsString> {
        vec![&mut self.from, &mut self.to]
    }

    fn writes(&self) -> bool {
        true
    }

    fn run(&self, fs: &FileSystem, _: &mut Out<'_>) -> Result<(), Failure> {
        Ok(fs.rename(&self.from, into_dir(fs, &self.from, &self.to)?)?)
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire ln -s ../usr/bin/python3 rootfs.img:/usr/local/bin/python
  quire ln rootfs.img:/bin/gzip rootfs.img:/bin/gunzip")]
pub(crate) struct Ln {
    /// What the new name means: IMG:PATH; with -s, the text of the link
    #[arg(value_name = "TARGET")]
    target: OsString,
    #[arg(value_name = "IMG:PATH")]
    path: OsString,
    /// A symbolic link
    #[arg(short, long)]
    symbolic: bool,
    /// Replace what has the name
    #[arg(short, long)]
    force: bool,
}

impl Action for Ln {
    fn names(&mut self) -> Vec<&mut OsString> {
        if self.symbolic { vec![&mut self.path] } else { vec![&mut self.target, &mut self.path] }
    }

    fn writes(&self) -> bool {
        true
    }

    fn run(&self, fs: &FileSystem, _: &mut Out<'_>) -> Result<(), Failure> {
        let path = into_dir(fs, &self.target, &self.path)?;
        if self.force
            && let Ok(old) = fs.symlink_metadata(&path)
            && !old.is_dir()
        {
            self.check_not_itself(fs, &path, &old)?;
            fs.remove_file(&path)?;
        }
        let done = if self.symbolic { fs.symlink(&self.target, &path) } else { fs.hard_link(&self.target, &path) };
        Ok(done?)
    }
}

impl Ln {
    /// Refuses a link to the name that it would replace, as ln(1) does: the file would be gone. Another name of the
    /// same file is replaced.
    fn check_not_itself(&self, fs: &FileSystem, path: &Path, old: &Metadata) -> Result<(), Failure> {
        let target = if self.symbolic {
            path.parent().unwrap_or(Path::new("/")).join(&self.target)
        } else {
            PathBuf::from(&self.target)
        };
        let found = if self.symbolic { fs.metadata(&target) } else { fs.symlink_metadata(&target) };
        let found = match found {
            // A symbolic link may lead nowhere.
            Err(_) if self.symbolic => return Ok(()),
            other => other?,
        };
        let dir = |path: &Path| fs.metadata(path.parent().unwrap_or(Path::new("/"))).map(|m| m.ino).ok();
        let is_same_name = || path.file_name() == target.file_name() && dir(path) == dir(&target);
        if found.ino == old.ino && (found.links == 1 || is_same_name()) {
            let (target, path) = (printable_name(&self.target), printable_name(path));
            return Err(Failure::Failed(format!("{target} and {path} are the same file")));
        }
        Ok(())
    }
}

/// Calls `f` for each path, and with `recursive`, for everything below it.
fn each(
    fs: &FileSystem,
    paths: &[OsString],
    recursive: bool,
    mut f: impl FnMut(&Path, &Metadata) -> quire::Result<()>,
) -> Result<(), Failure> {
    for path in paths {
        if !recursive {
            f(Path::new(path), &fs.metadata(path)?)?;
            continue;
        }
        for e in fs.walk(path)? {
            let e = e?;
            f(&e.path, &e.metadata)?;
        }
    }
    Ok(())
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire chmod u+s,go-w rootfs.img:/usr/bin/sudo")]
pub(crate) struct Chmod {
    /// Octal, or as chmod(1) has it: u+x,go-w, g=u
    #[arg(value_parser = values::mode, allow_hyphen_values = true)]
    mode: ModeChange,
    /// Everything below, too
    #[arg(short = 'R', long)]
    recursive: bool,
}

impl PathChange for Chmod {
    fn may_take_steps(&self) -> bool {
        self.recursive
    }

    fn run(&self, fs: &FileSystem, paths: &[OsString]) -> Result<(), Failure> {
        each(fs, paths, self.recursive, |path, m| {
            if m.is_symlink() {
                return Ok(());
            }
            fs.chmod(path, self.mode.apply(m.permissions(), m.is_dir()))
        })
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire chown -R 1000:1000 rootfs.img:/home/user")]
pub(crate) struct Chown {
    /// As numbers: UID, UID:GID or :GID
    #[arg(value_name = "UID:GID", value_parser = values::owner)]
    owner: (Option<u32>, Option<u32>),
    /// Everything below, too; symbolic links themselves
    #[arg(short = 'R', long)]
    recursive: bool,
    /// A symbolic link itself
    #[arg(short = 'P', long)]
    no_dereference: bool,
}

impl PathChange for Chown {
    fn may_take_steps(&self) -> bool {
        self.recursive
    }

    fn run(&self, fs: &FileSystem, paths: &[OsString]) -> Result<(), Failure> {
        let set = set_owner(SetMetadata::new(), Some(self.owner));
        let links = if self.recursive || self.no_dereference { Links::NoFollow } else { Links::Follow };
        if !self.recursive {
            return paths.iter().try_for_each(|p| Ok(fs.set_metadata(p, links, set)?));
        }
        each(fs, paths, true, |path, _| fs.set_metadata(path, links, set))
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire touch --time 1700000000 rootfs.img:/etc/machine-id
  quire touch --node c,1,3 rootfs.img:/dev/null     # a device")]
pub(crate) struct Touch {
    /// Seconds since 1970, instead of now
    #[arg(short, long, value_name = "SECONDS", value_parser = values::time)]
    time: Option<Timestamp>,
    /// Do not make what does not exist
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Make a node instead of a file: c,MAJOR,MINOR, b,MAJOR,MINOR, p (fifo) or s (socket)
    #[arg(long, value_name = "NODE", value_parser = node)]
    node: Option<NewNode>,
}

fn node(text: &str) -> Result<NewNode, String> {
    let bad = || "c,MAJOR,MINOR, b,MAJOR,MINOR, p or s is expected".to_owned();
    let parts: Vec<&str> = text.split(',').collect();
    let number = |t: &str| t.parse::<u32>().map_err(|_| bad());
    Ok(match parts.as_slice() {
        ["p"] => NewNode::new(FileType::Fifo, 0o644),
        ["s"] => NewNode::new(FileType::Socket, 0o644),
        ["c", a, b] => NewNode::new(FileType::CharDevice, 0o644).device(number(a)?, number(b)?),
        ["b", a, b] => NewNode::new(FileType::BlockDevice, 0o644).device(number(a)?, number(b)?),
        _ => return Err(bad()),
    })
}

impl PathChange for Touch {
    fn run(&self, fs: &FileSystem, paths: &[OsString]) -> Result<(), Failure> {
        let now = self.time.unwrap_or_else(|| std::time::SystemTime::now().into());
        for path in paths {
            if let Some(node) = self.node {
                fs.create_node(path, node)?;
            } else if !fs.exists(path)? {
                if self.no_create {
                    continue;
                }
                fs.create_file(path)?;
            }
            fs.set_metadata(path, Links::Follow, SetMetadata::new().accessed(now).modified(now))?;
        }
        Ok(())
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire truncate -s 0 rootfs.img:/var/log/messages")]
pub(crate) struct Truncate {
    /// The new size: bytes, or with K, M, G, T
    #[arg(short, long, value_parser = values::size)]
    size: u64,
}

impl PathChange for Truncate {
    fn run(&self, fs: &FileSystem, paths: &[OsString]) -> Result<(), Failure> {
        for path in paths {
            if !fs.exists(path)? {
                fs.create_file(path)?;
            }
            fs.truncate(path, self.size)?;
        }
        Ok(())
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quire setfattr -n user.mime -v text/plain rootfs.img:/etc/motd
  quire setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 rootfs.img:/usr/bin/ping
  quire setfattr -x user.mime rootfs.img:/etc/motd")]
pub(crate) struct Setfattr {
    /// The attribute to set
    #[arg(short, long, required_unless_present = "remove")]
    name: Option<OsString>,
    /// Its value; 0x begins a hexadecimal one
    #[arg(short, long, default_value = "")]
    value: OsString,
    /// The attribute to remove
    #[arg(short = 'x', long, value_name = "NAME", conflicts_with = "name")]
    remove: Option<OsString>,
    /// Of a symbolic link itself
    #[arg(short = 'P', long)]
    no_dereference: bool,
}

impl PathChange for Setfattr {
    fn run(&self, fs: &FileSystem, paths: &[OsString]) -> Result<(), Failure> {
        let links = if self.no_dereference { Links::NoFollow } else { Links::Follow };
        let value = attribute_value(&self.value).map_err(Failure::Usage)?;
        for path in paths {
            match (&self.name, &self.remove) {
                (_, Some(name)) => fs.remove_xattr(path, links, name)?,
                (Some(name), None) => fs.set_xattr(path, links, name, &value)?,
                (None, None) => {}
            }
        }
        Ok(())
    }
}

fn attribute_value(text: &OsStr) -> Result<Vec<u8>, String> {
    let Some(hex) = text.as_bytes().strip_prefix(b"0x") else { return Ok(text.as_bytes().to_vec()) };
    let bad = || format!("{text:?} is no hexadecimal value");
    if !hex.len().is_multiple_of(2) || !hex.iter().all(u8::is_ascii_hexdigit) {
        return Err(bad());
    }
    let byte = |digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    hex.chunks_exact(2).map(|digits| byte(digits).ok_or_else(bad)).collect()
}
