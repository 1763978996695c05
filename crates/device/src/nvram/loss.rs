//! Memory that goes away while it is mapped: its file is truncated, its host is full, or a cell is bad.
//!
//! The kernel raises SIGBUS at the access, which would end the process. The handler here puts an empty page into the
//! place of the one that is gone, and marks the mapping as lost; the access goes on (V10). Whoever relies on the memory
//! asks [`Watched::is_lost`] after a fence. A SIGBUS at any other address does what it did before.
//!
//! *Relies on*: handlers of SIGBUS that others install later pass on what is not theirs.

use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings that are watched at once, at most; one that finds no place is not watched.
const PLACES: usize = 64;
const PAGE: usize = 4096;

/// A mapping, as the handler finds it; empty when `len` is 0.
struct Place {
    taken: AtomicBool,
    base: AtomicUsize,
    len: AtomicUsize,
    lost: AtomicBool,
}

impl Place {
    const fn empty() -> Self {
        Place {
            taken: AtomicBool::new(false),
            base: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
        }
    }

    fn holds(&self, at: usize) -> bool {
        let (base, len) = (self.base.load(Ordering::SeqCst), self.len.load(Ordering::SeqCst));
        at >= base && at - base < len
    }
}

static WATCHED: [Place; PLACES] = [const { Place::empty() }; PLACES];

/// A mapping that the handler knows, until this is dropped.
pub(super) struct Watched(Option<&'static Place>);

impl Watched {
    /// Watches a mapping of `len` bytes at `base`.
    pub(super) fn new(base: usize, len: usize) -> Self {
        install();
        let free = WATCHED.iter().find(|p| !p.taken.swap(true, Ordering::SeqCst));
        if let Some(place) = free {
            place.lost.store(false, Ordering::SeqCst);
            place.base.store(base, Ordering::SeqCst);
            place.len.store(len, Ordering::SeqCst);
        }
        Watched(free)
    }

    /// Watches nothing.
    pub(super) fn none() -> Self {
        Watched(None)
    }

    /// True if a page of the mapping was gone when it was accessed.
    pub(super) fn is_lost(&self) -> bool {
        self.0.is_some_and(|p| p.lost.load(Ordering::SeqCst))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.len.store(0, Ordering::SeqCst);
            place.taken.store(false, Ordering::SeqCst);
        }
    }
}

/// What SIGBUS did before. Written once, before the handler is installed.
static mut BEFORE: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

fn install() {
    static ONCE: Once = Once::new();
    // SAFETY: `BEFORE` is written here alone, once, and read by the handler only, which the second call installs; both
    // calls get valid memory.
    ONCE.call_once(|| unsafe {
        let before = (&raw mut BEFORE).cast::<libc::sigaction>();
        libc::sigaction(libc::SIGBUS, std::ptr::null(), before);
        let mut ours: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
        ours.sa_sigaction = handler as libc::sighandler_t;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut ours.sa_mask);
        libc::sigaction(libc::SIGBUS, &ours, std::ptr::null_mut());
    });
}

/// Does system calls and atomic loads and stores only, as a handler must.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid description of the signal.
    let at = unsafe { (*info).si_addr() }.addr();
    if WATCHED.iter().any(|p| p.holds(at) && replace_page(p, at)) {
        return;
    }
    // SAFETY: `install` has written it before this handler was there. What is called is a handler of the kind that its
    // flags name; a default or ignored signal is left to the kernel, which raises it again at the same access.
    unsafe {
        let before = &*(&raw const BEFORE).cast::<libc::sigaction>();
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::signal(signal, libc::SIG_DFL);
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                std::mem::transmute::<libc::sighandler_t, Handler>(handler)(signal, info, context);
            }
            handler => std::mem::transmute::<libc::sighandler_t, extern "C" fn(libc::c_int)>(handler)(signal),
        }
    }
}

/// Marks a mapping as lost, and puts an empty page where the access was.
fn replace_page(place: &Place, at: usize) -> bool {
    place.lost.store(true, Ordering::SeqCst);
    let page = std::ptr::without_provenance_mut(at - at % PAGE);
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    // SAFETY: the page lies in a mapping of ours, which is watched until it is unmapped; its own contents are gone.
    unsafe { libc::mmap(page, PAGE, access, kind, -1, 0) != libc::MAP_FAILED }
}
