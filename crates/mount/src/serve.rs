//! A mount from its beginning to its end.
//!
//! ```text
//! image, superblock, options ─> devices ─> Volume::open (recovery) ─> attach ─> INIT ─> ready ─> ... ─> unmounted ─> Volume::close
//! fuseblk:  the kernel claims the device when it is attached, so that comes before our own opening of it
//! ```
//! Guarantees: [`run`] returns `Ok` only when the image is clean, or was shut down. How a mount is served and stopped
//! is in `live`.

use crate::caller::Keeper;
use crate::control::{About, FileIdentity};
use crate::daemon;
use crate::error::MountError;
use crate::found;
use crate::given;
use crate::handshake::Requested;
use crate::live::{Live, Stops};
use crate::lock_file::LockFile;
use crate::meter::Meter;
use crate::mountinfo::{MountEntry, Mounts};
use crate::mounting::{self, Attach, AttachError};
use crate::options::{MountOptions, WritePath};
use crate::sandbox;
use crate::server::{ServeOptions, Server};
use crate::session::Session;
use crate::stats_source::{Disk, StatsSource};
use crate::transport::{Channel, Rings};
use crate::transport_choice::{self, TransportChoice, TransportCounters, TransportError};
use crate::wire::ShownOwner;
use crate::wire::abi::init;
use quire_device::nvram::{Nvram, NvramMap, NvramOptions};
use quire_device::sync::{Arc, Mutex, lock};
use quire_device::{BlockDevice, Clock, Counted, FileDevice, OpenError, OpenOptions, SystemClock, TickClock};
use quire_fs::{Atime, Choices, Devices, Volume};
use quire_journal::recover::Progress;
use quire_layout::Ino;
use quire_layout::features::{Access, compat, incompat};
use quire_layout::inode::GOOD_OLD_SIZE;
use quire_layout::superblock::Superblock;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// What `nvram_simulated` means.
pub const SIMULATED_NVRAM: &str = "simulated NVRAM: what fsync has made durable since the last checkpoint survives the end of the daemon, \
    but not a loss of power or a crash of the host, and the image may then need e2fsck";

/// What to mount where, and how.
#[derive(Clone, Debug)]
pub struct Mount {
    pub image: PathBuf,
    pub dir: PathBuf,
    pub options: MountOptions,
}

fn counted(device: impl BlockDevice + 'static) -> Arc<Disk> {
    Arc::new(Counted::new(Arc::new(device)))
}

/// Mounts (telling the progress of recovery), calls `ready` once the mount answers, serves until it is unmounted, and
/// leaves a clean image.
///
/// # Errors
/// See [`MountError`]. Without `ready` having been called, nothing is mounted.
pub fn run(mount: &Mount, progress: &mut dyn FnMut(Progress), ready: impl FnOnce()) -> Result<(), MountError> {
    let dir = mount_point(mount)?;
    let (image, path) = match given::descriptor(&mount.image) {
        Some(_) => (given::shown(&mount.image), mount.image.clone()),
        None => canonical(&mount.image).map(|p| (p.clone(), p))?,
    };
    let lock_file = mount.options.lock_file.as_deref().map(LockFile::make).transpose()?;
    let stops = prepare(&mount.options, lock_file.as_ref())?;
    let place = Place { image, path, dir, options: &mount.options, stops: stops.clone() };
    place.check_transport()?;
    sandbox::apply::check(mount.options.sandbox)?;
    let live = if place.is_fuseblk()? { place.on_block_device(progress) } else { place.on_file(progress) };
    let ended = live.and_then(|live| live.serve(ready));
    stops.detach_unless_served();
    ended
}

/// As [`run`], on a device that the caller brings (one that records, fails or loses power): `mount.image` is only its
/// name.
///
/// # Errors
/// As [`run`].
pub fn run_on(mount: &Mount, device: Arc<dyn BlockDevice>, ready: impl FnOnce()) -> Result<(), MountError> {
    let dir = mount_point(mount)?;
    let stops = prepare(&mount.options, None)?;
    let place = Place { image: mount.image.clone(), path: mount.image.clone(), dir, options: &mount.options, stops };
    place.check_transport()?;
    place.on_device(Arc::new(Counted::new(device)), &mut |_| {})?.serve(ready)
}

fn prepare(options: &MountOptions, lock_file: Option<&LockFile>) -> Result<Stops, MountError> {
    let cache_bytes = options.cache_bytes.unwrap_or(quire_fs::Options::default().cache_bytes);
    if let Some((limit, need)) = daemon::short_address_space(cache_bytes) {
        return Err(MountError::AddressSpace { limit: limit >> 20, need: need >> 20 });
    }
    daemon::raise_descriptor_limit();
    daemon::hold_stops();
    daemon::ignore_size_limit_signal();
    daemon::become_io_flusher();
    daemon::hold_back_little();
    Ok(Stops::watch(lock_file.map(|l| l.path().to_owned()))?)
}

/// The directory to mount on, or the path of a connection that is mounted already.
fn mount_point(mount: &Mount) -> Result<PathBuf, MountError> {
    if given::descriptor(&mount.dir).is_some() {
        return Ok(mount.dir.clone());
    }
    let dir = canonical(&mount.dir)?;
    match rustix::fs::stat(&dir) {
        Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() => {}
        Ok(_) => return Err(MountError::NotDirectory(dir)),
        Err(source) if mounting::is_dead(source) => return Err(MountError::DeadMount(dir)),
        Err(source) => return Err(MountError::Path { path: dir, source }),
    }
    // Attributes may be remembered from when it was alive. statfs(2) of the path would begin an automount there, and so
    // would an open with O_DIRECTORY.
    let place = rustix::fs::open(&dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    match place.and_then(rustix::fs::fstatfs) {
        Err(source) if mounting::is_dead(source) => Err(MountError::DeadMount(dir)),
        _ => Ok(dir),
    }
}

fn canonical(path: &Path) -> Result<PathBuf, MountError> {
    path.canonicalize()
        .map_err(|e| MountError::Path { path: path.to_owned(), source: Errno::from_io_error(&e).unwrap_or(Errno::IO) })
}

struct Place<'a> {
    /// The image, as users are told of it.
    image: PathBuf,
    /// What is opened.
    path: PathBuf,
    dir: PathBuf,
    options: &'a MountOptions,
    stops: Stops,
}

impl Place<'_> {
    /// A transport that cannot be had is refused before anything is touched.
    fn check_transport(&self) -> Result<(), TransportError> {
        match self.options.transport {
            TransportChoice::Uring => transport_choice::offered(),
            TransportChoice::Auto | TransportChoice::Dev => Ok(()),
        }
    }

    /// The rings by which requests are to come, if they are.
    fn rings(&self, channel: &Channel, counters: &TransportCounters) -> Result<Option<Rings>, TransportError> {
        match self.options.transport {
            TransportChoice::Auto | TransportChoice::Dev => Ok(None),
            TransportChoice::Uring => {
                transport_choice::offered()?;
                let cpus = transport_choice::possible_cpus().unwrap_or(usize::MAX);
                Rings::new(channel, cpus, counters.entries.clone()).map(Some).map_err(TransportError::NoRings)
            }
        }
    }

    /// Block devices are mounted as such by root, if the kernel lets it.
    fn is_fuseblk(&self) -> Result<bool, MountError> {
        use rustix::fs::FileType;
        let stat =
            rustix::fs::stat(&self.path).map_err(|source| MountError::Path { path: self.image.clone(), source })?;
        Ok(FileType::from_raw_mode(stat.st_mode).is_block_device()
            && given::descriptor(&self.dir).is_none()
            && rustix::process::geteuid().is_root()
            && self.options.offset == 0
            && self.options.size_limit.is_none())
    }

    /// Opens the image. With `ro` it is opened for reading only, unless its journal must be replayed first, as the
    /// kernel does it.
    fn open(&self, lock: bool) -> Result<FileDevice, MountError> {
        let device = self.open_as(lock, self.options.only_reads())?;
        if !self.options.read_only || self.options.no_load {
            return Ok(device);
        }
        let device = Arc::new(device);
        let dirty = self.superblock(&device)?.features().has_incompat(incompat::RECOVER);
        let device = Arc::into_inner(device).expect("nobody else has it");
        if !dirty {
            return Ok(device);
        }
        drop(device);
        self.open_as(lock, false)
    }

    /// Opens the image; one that may only be read is mounted read-only, as mount(8) does.
    fn open_as(&self, lock: bool, read_only: bool) -> Result<FileDevice, MountError> {
        let how = OpenOptions {
            read_only: read_only || found::is_write_protected(&self.path),
            offset: self.options.offset,
            size: self.options.size_limit,
            lock,
            ..OpenOptions::default()
        };
        match FileDevice::open(&self.path, how) {
            Err(OpenError::ReadOnly(_) | OpenError::Permission(_)) if !how.read_only => {
                Ok(FileDevice::open(&self.path, OpenOptions { read_only: true, ..how })?)
            }
            Err(busy @ OpenError::Busy { .. }) => Err(match found::mounted_on(&self.image) {
                Some(dir) => MountError::MountedAlready { image: self.image.clone(), dir },
                None => busy.into(),
            }),
            opened => Ok(opened?),
        }
    }

    fn superblock(&self, device: &Arc<impl BlockDevice + 'static>) -> Result<Superblock, MountError> {
        let failed = |source: quire_fs::Error| MountError::Volume { image: self.image.clone(), source };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let sb = quire_fs::first_superblock(&Devices::one(device.clone()), &clock).map_err(failed)?;
        sb.features().access().map_err(|e| failed(e.into()))?;
        Ok(sb)
    }

    /// The journal's device, if it has one of its own.
    fn journal(&self, sb: &Superblock, read_only: bool) -> Result<Option<Arc<Disk>>, MountError> {
        let external = sb.features().has_compat(compat::HAS_JOURNAL) && sb.journal_ino() == Ino(0);
        if !external || self.options.no_load {
            return Ok(None);
        }
        let path = match &self.options.journal_path {
            Some(path) => path.clone(),
            None => device_of_journal(sb).ok_or_else(|| MountError::Image {
                image: self.image.clone(),
                what: "the journal is on another device, which was not found; name it with -o journal_path=".into(),
            })?,
        };
        let device = FileDevice::open(&path, OpenOptions { read_only, ..OpenOptions::default() })?;
        Ok(Some(counted(device)))
    }

    fn volume(&self, fs: Arc<Disk>, sb: &Superblock, progress: &mut dyn FnMut(Progress)) -> Result<Opened, MountError> {
        let journal = self.journal(sb, fs.info().read_only)?;
        let options = self.options.for_volume(sb, &mounting::printable(&self.dir))?;
        let nvram = match &self.options.nvram {
            Some(path) if !self.options.no_load => {
                let how = NvramOptions { read_only: fs.info().read_only, ..self.options.nvram_options() };
                if how.simulated {
                    tracing::warn!("{}: {SIMULATED_NVRAM}", path.display());
                }
                Some(Arc::new(NvramMap::open(path, how)?) as Arc<dyn Nvram>)
            }
            _ => None,
        };
        let journal_device = journal.clone().map(|j| j as Arc<dyn BlockDevice>);
        let devices = Devices { fs: fs.clone(), journal: journal_device, nvram };
        let volume = Volume::open_with(devices, Arc::new(TickClock), options.clone(), progress)
            .map_err(|source| MountError::Volume { image: self.image.clone(), source })?;
        if let Some(why) = volume.status().read_only
            && !self.options.read_only
        {
            tracing::warn!("{} is mounted read-only: {why}", self.image.display());
        }
        Ok(Opened { volume, fs, journal, options })
    }

    /// An image file, or a device that the kernel does not know to be mounted.
    fn on_file(self, progress: &mut dyn FnMut(Progress)) -> Result<Live, MountError> {
        let file = self.open(true)?;
        let lease = file.lease().map_err(std::io::Error::from)?.map(Arc::new);
        let live = self.on_device(counted(file), progress)?;
        Ok(Live { lease, ..live })
    }

    fn on_device(self, fs: Arc<Disk>, progress: &mut dyn FnMut(Progress)) -> Result<Live, MountError> {
        let sb = self.superblock(&fs)?;
        let opened = self.volume(fs, &sb, progress)?;
        let read_only = opened.volume.status().read_only.is_some();
        let attached = self.attach(opened.options.choices(), read_only, None);
        let channel = match attached {
            Ok(channel) => channel,
            Err(e) => {
                // Nobody has used it: it is left as it was found, but recovered.
                opened.volume.close().ok();
                return Err(e);
            }
        };
        self.start(channel, opened)
    }

    /// A block device: looked at and tested for being free, then claimed by the kernel, then opened. Root of a user
    /// namespace or of a container may not have the kernel claim it: the device is then served as an image file is.
    fn on_block_device(self, progress: &mut dyn FnMut(Progress)) -> Result<Live, MountError> {
        let (sb, read_only) = {
            let device = counted(self.open(true)?);
            let sb = self.superblock(&device)?;
            let features = matches!(sb.features().access(), Ok(Access::ReadOnly(_)));
            let read_only = device.info().read_only || self.options.only_reads() || features;
            (sb, read_only)
        };
        let choices = self.options.for_volume(&sb, "")?.choices();
        let channel = match self.attach(choices, read_only, Some(sb.block_size().bytes())) {
            Err(MountError::Attach { source: AttachError::Mount(Errno::PERM), .. }) => return self.on_file(progress),
            attached => attached?,
        };
        let opened = self.open(false).and_then(|device| self.volume(counted(device), &sb, progress));
        match opened {
            Ok(opened) => self.start(channel, opened),
            Err(e) => {
                // The connection goes first: no unmount waits for us then.
                drop(channel);
                mounting::detach(&self.dir, true).ok();
                Err(e)
            }
        }
    }

    fn attach(&self, choices: Choices, read_only: bool, fuseblk: Option<usize>) -> Result<Channel, MountError> {
        if let Some(fd) = given::descriptor(&self.dir) {
            let given = given::connection(fd).map_err(|source| MountError::Path { path: self.dir.clone(), source })?;
            return Ok(Channel::new(given));
        }
        let label = self.options.label(choices);
        let attach =
            Attach { source: &self.image, dir: &self.dir, options: self.options, label: &label, read_only, fuseblk };
        self.stops
            .attach(&self.dir, || attach.attach())
            .map_err(|source| MountError::Attach { dir: self.dir.clone(), source })
    }

    /// This mount among all others.
    fn entry(&self, channel: &Channel) -> Result<Option<MountEntry>, MountError> {
        let given = given::descriptor(&self.dir).is_some();
        let device = if given { given::device_of(&rustix::fd::AsFd::as_fd(channel)) } else { None };
        let mounts = Mounts::read()?;
        let entry = match device {
            Some(device) => mounts.of_device(&device),
            None => mounts.quire_on(&self.dir),
        };
        Ok(entry.cloned())
    }

    /// How requests are to be answered.
    fn serving(&self, read_only: bool) -> ServeOptions {
        ServeOptions {
            atomic_writes: self.options.bypass(),
            keeper: Keeper::of_this_process(),
            fake_root: self.options.fake_root,
            owner: ShownOwner { uid: self.options.shown_uid, gid: self.options.shown_gid },
            about: About {
                pid: std::process::id(),
                image: self.image.clone(),
                file: rustix::fs::stat(&self.path).ok().map(|stat| FileIdentity::of(&stat)),
                offset: self.options.offset,
                read_only,
                shut_down: false,
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            without: self.options.without,
            slow: self.options.slow,
            readers: self.options.readers,
        }
    }

    /// Shakes hands with the kernel, by rings where they are wanted and offered.
    fn session(
        &self,
        channel: Channel,
        server: &Arc<Server>,
        requested: Requested,
        transport: &TransportCounters,
    ) -> Result<Session, MountError> {
        let rings = self.rings(&channel, transport)?;
        let requested = Requested { uring: rings.is_some(), ..requested };
        let session =
            Session::start(channel, server.clone(), requested, rings, transport).map_err(MountError::Session)?;
        let refused = self.options.transport == TransportChoice::Uring && !session.has_rings();
        if refused { Err(TransportError::NotOffered.into()) } else { Ok(session) }
    }

    /// Begins to serve what was opened.
    fn start(self, channel: Channel, opened: Opened) -> Result<Live, MountError> {
        let Opened { volume, fs, journal, options } = opened;
        let read_only = volume.status().read_only.is_some();
        let whole_seconds = volume.superblock().inode_size() <= GOOD_OLD_SIZE;
        if whole_seconds && !read_only {
            tracing::info!("{}: inodes of 128 bytes keep times in whole seconds until 2038", self.image.display());
        }
        let serving = self.serving(read_only);
        let write_path = Arc::new(Mutex::new(self.options.write_path(options.choices())));
        let given = given::descriptor(&self.dir).is_some();
        let entry = self.entry(&channel)?;
        let transport = Arc::new(TransportCounters::default());
        let source = StatsSource {
            volume: volume.clone(),
            fs,
            journal,
            choices: options.choices(),
            profile: self.options.label(options.choices()),
            write_path: write_path.clone(),
            transport: transport.clone(),
            connection: entry.as_ref().map(|e| e.device.clone()),
        };
        let stats = Box::new(move |meter: &Meter, awaiting_thaw| source.json(meter, awaiting_thaw));
        let server = Arc::new(Server::new(volume, serving, stats));
        server.changing.set(self.options.no_dir_atime, read_only || options.atime == Atime::No);
        server.changing.set_sync(self.options.dir_sync, self.options.sync);
        // Where the kernel checks ACLs it checks modes as well. The options with which the caller has mounted a given
        // connection are unknown.
        let acl = (options.acl || given) && !self.options.fake_root;
        let writeback_cache = *lock(&write_path) == WritePath::Back && !read_only;
        let requested = Requested { writeback_cache, acl, uring: false, whole_seconds };
        let session = self.session(channel, &server, requested, &transport).inspect_err(|_| {
            if !given {
                mounting::detach(&self.dir, true).ok();
            }
            server.close().ok();
        })?;
        settle(&mut lock(&write_path), &server);
        let (lease, stops) = (None, self.stops);
        Ok(Live {
            image: self.image,
            dir: self.dir,
            entry,
            server,
            session,
            stops,
            options: self.options.clone(),
            lease,
        })
    }
}

/// The device that the superblock names as the journal's: by its UUID, else by its number.
fn device_of_journal(sb: &Superblock) -> Option<PathBuf> {
    let hex: String = sb.journal_uuid().iter().map(|b| format!("{b:02x}")).collect();
    let uuid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    let (major, minor) = crate::wire::reply::decode_device(sb.journal_dev());
    [format!("/dev/disk/by-uuid/{uuid}"), format!("/dev/block/{major}:{minor}")]
        .into_iter()
        .map(PathBuf::from)
        .find(|p| p.exists())
}

/// Before Linux 6.6 the kernel could not map files that bypass its page cache, so there they stay in it.
fn settle(write_path: &mut WritePath, server: &Server) {
    if *write_path == WritePath::Direct && !server.has(init::DIRECT_IO_ALLOW_MMAP) {
        tracing::warn!("this kernel may split a write(2) from memory that is not aligned; Linux 6.6 or later does not");
        *write_path = WritePath::Through;
    }
}

/// A volume with what it stands on.
struct Opened {
    volume: Volume,
    fs: Arc<Disk>,
    journal: Option<Arc<Disk>>,
    options: quire_fs::Options,
}
