//! The life of a mounted volume: which phase it is in, and which calls are under way.
//!
//! ```text
//!                 freeze             settled                thaw              marked in use
//!      Running ─────────> Freezing ──────────> Frozen ──────────────> Thawing ──────────────> Running
//!         │                  │ failed             │                      │ failed
//!         │                  └──> Running         │                      └──> Frozen
//!         └── close ──> Closing <────── close ────┘
//!                          └── done, or failed ──> Closed
//! ```
//! Opening and recovery come before: nobody has a handle on the volume then.
//!
//! | phase    | a call that changes something | fsync, sync           | freeze        | thaw          | close      |
//! |----------|-------------------------------|-----------------------|---------------|---------------|------------|
//! | Running  | admitted                      | admitted              | begins        | refused       | begins     |
//! | Freezing | waits                         | waits                 | busy          | waits         | waits      |
//! | Frozen   | waits                         | nothing to do         | busy          | begins        | begins     |
//! | Thawing  | waits                         | waits                 | busy          | waits         | waits      |
//! | Closing  | read-only                     | read-only             | read-only     | read-only     | waits      |
//! | Closed   | read-only                     | read-only             | read-only     | read-only     | done       |
//!
//! Calls that only read are admitted in every phase. A call that waits does so in its thread, or, an fsync without a
//! thread, as a closure that is called when the phase has ended ([`Lifecycle::after_phase`]).
//!
//! *Guarantees* L1 (docs/invariants.md): the phases in which the volume is marked clean (Freezing, Closing) begin their
//! work when no admitted call is under way, and no call is admitted before they end. [`Quiescent`] is the proof: the
//! phase cannot end while it exists.

use crate::error::{Error, Result};
use quire_device::Mutant;
use quire_device::sync::atomic::{AtomicU64, Ordering};
use quire_device::sync::{Condvar, Mutex, lock, wait};
use std::marker::PhantomData;

/// The phase of a mounted volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Running,
    Freezing,
    Frozen,
    Thawing,
    Closing,
    Closed,
}

/// What moves a volume from phase to phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Freeze,
    Thaw,
    Close,
    /// The work of the phase has ended well.
    Done,
    /// The work of the phase has failed.
    Failed,
}

/// What an event does in a phase.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    /// The phase changes.
    Go(Phase),
    /// The caller waits for the next phase and asks again.
    Wait,
    /// The caller has nothing to do.
    Nothing,
    Refuse(Refusal),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    FrozenAlready,
    NotFrozen,
    Unmounted,
}

impl From<Refusal> for Error {
    fn from(why: Refusal) -> Self {
        match why {
            Refusal::FrozenAlready => Error::Busy("the volume is frozen already".into()),
            Refusal::NotFrozen => Error::Invalid("the volume is not frozen"),
            Refusal::Unmounted => Error::ReadOnly("unmounted".into()),
        }
    }
}

/// The table of phases and events.
fn outcome(phase: Phase, event: Event) -> Outcome {
    use Outcome::{Go, Nothing, Refuse, Wait};
    match (phase, event) {
        (Phase::Running, Event::Freeze) => Go(Phase::Freezing),
        (Phase::Running, Event::Thaw) => Refuse(Refusal::NotFrozen),
        (Phase::Running | Phase::Frozen, Event::Close) => Go(Phase::Closing),
        (Phase::Freezing | Phase::Frozen | Phase::Thawing, Event::Freeze) => Refuse(Refusal::FrozenAlready),
        (Phase::Freezing | Phase::Thawing, Event::Thaw | Event::Close) | (Phase::Closing, Event::Close) => Wait,
        (Phase::Frozen, Event::Thaw) => Go(Phase::Thawing),
        (Phase::Closed, Event::Close) => Nothing,
        (Phase::Closing | Phase::Closed, Event::Freeze | Event::Thaw) => Refuse(Refusal::Unmounted),
        (Phase::Freezing, Event::Done) | (Phase::Thawing, Event::Failed) => Go(Phase::Frozen),
        (Phase::Freezing, Event::Failed) | (Phase::Thawing, Event::Done) => Go(Phase::Running),
        (Phase::Closing, Event::Done | Event::Failed) => Go(Phase::Closed),
        (Phase::Running | Phase::Frozen | Phase::Closed, Event::Done | Event::Failed) => {
            unreachable!("{phase:?} has no work that could end")
        }
    }
}

/// The phase in the upper bits, the calls under way in the lower: one word, so that a call is either counted before a
/// phase begins or sees the phase.
const PHASE_SHIFT: u32 = 56;
const CALLS: u64 = (1 << PHASE_SHIFT) - 1;

const PHASES: [Phase; 6] =
    [Phase::Running, Phase::Freezing, Phase::Frozen, Phase::Thawing, Phase::Closing, Phase::Closed];

fn phase_of(word: u64) -> Phase {
    PHASES[usize::try_from(word >> PHASE_SHIFT).expect("8 bits")]
}

fn word_of(phase: Phase) -> u64 {
    let n = PHASES.iter().position(|p| *p == phase).expect("listed");
    u64::try_from(n).expect("small") << PHASE_SHIFT
}

/// The phase of a volume, and the calls under way.
pub(crate) struct Lifecycle {
    /// Phase and calls. The phase changes only under `turn`.
    word: AtomicU64,
    /// With what is to be called when the phase ends, while one is under way that ends by itself.
    turn: Mutex<Vec<AfterPhase>>,
    /// The phase has changed, or the last call has left while a phase waits for it.
    changed: Condvar,
}

/// What a caller without a thread does when a phase has ended.
pub(crate) type AfterPhase = Box<dyn FnOnce() + Send>;

/// Proof that no admitted call is under way, and that none is admitted before [`Lifecycle::end`] takes it back.
pub(crate) struct Quiescent<'l>(PhantomData<&'l Lifecycle>);

impl Lifecycle {
    pub(crate) fn new() -> Self {
        Lifecycle { word: AtomicU64::new(word_of(Phase::Running)), turn: Mutex::default(), changed: Condvar::new() }
    }

    pub(crate) fn phase(&self) -> Phase {
        phase_of(self.word.load(Ordering::SeqCst))
    }

    /// Admits a call that may change something, if the phase allows that at once. [`Lifecycle::leave`] ends it.
    ///
    /// # Errors
    /// Frozen: the call would have to wait. Read-only: the volume is being unmounted.
    pub(crate) fn try_enter(&self) -> Result<()> {
        let before = self.word.fetch_add(1, Ordering::SeqCst);
        match phase_of(before) {
            Phase::Running => Ok(()),
            Phase::Frozen if Mutant::FrozenAdmits.is_on() => Ok(()),
            phase => {
                self.leave();
                Err(match phase {
                    Phase::Closing | Phase::Closed => Refusal::Unmounted.into(),
                    _ => Error::Frozen,
                })
            }
        }
    }

    /// Admits a call that may change something; it waits while the volume is frozen.
    ///
    /// # Errors
    /// Read-only: the volume is being unmounted.
    pub(crate) fn enter(&self) -> Result<()> {
        loop {
            match self.try_enter() {
                Err(Error::Frozen) => {
                    self.wait_while(|p| !matches!(p, Phase::Running | Phase::Closing | Phase::Closed))
                }
                result => return result,
            }
        }
    }

    /// As [`Lifecycle::enter`], for a call that makes things durable. Returns false on a frozen volume, where
    /// everything is durable.
    ///
    /// # Errors
    /// Read-only: the volume is being unmounted.
    pub(crate) fn enter_unless_frozen(&self) -> Result<bool> {
        loop {
            match self.try_enter() {
                Err(Error::Frozen) if self.phase() == Phase::Frozen => return Ok(false),
                Err(Error::Frozen) => self.wait_while(|p| matches!(p, Phase::Freezing | Phase::Thawing)),
                result => return result.map(|()| true),
            }
        }
    }

    /// Counts a call once more that is admitted already, in whatever phase.
    pub(crate) fn enter_again(&self) {
        let before = self.word.fetch_add(1, Ordering::SeqCst);
        assert!(before & CALLS > 0, "an admitted call is counted");
    }

    /// Ends an admitted call.
    pub(crate) fn leave(&self) {
        let before = self.word.fetch_sub(1, Ordering::SeqCst);
        assert!(before & CALLS > 0, "a call leaves once");
        if before & CALLS == 1 && phase_of(before) != Phase::Running {
            // The lock orders this after the check of whoever is about to wait.
            drop(lock(&self.turn));
            self.changed.notify_all();
        }
    }

    fn wait_while(&self, waits: impl Fn(Phase) -> bool) {
        let mut turn = lock(&self.turn);
        while waits(self.phase()) {
            turn = wait(&self.changed, turn);
        }
    }

    /// Calls `then` when the phase has ended that is under way: at once if the volume is not being frozen or thawed,
    /// else on the thread that ends the phase. `then` asks for admission again.
    pub(crate) fn after_phase(&self, then: AfterPhase) {
        let is_under_way = || matches!(self.phase(), Phase::Freezing | Phase::Thawing);
        let seen_early = Mutant::PhaseEndMissed.is_on() && is_under_way();
        let mut turn = lock(&self.turn);
        if seen_early || is_under_way() {
            return turn.push(then);
        }
        drop(turn);
        then();
    }

    /// Begins a phase: after this no call is admitted. Returns the phase before; `None`: there is nothing to do.
    ///
    /// # Errors
    /// Busy, invalid, or read-only, as the table says.
    pub(crate) fn begin(&self, event: Event) -> Result<Option<Phase>> {
        let mut turn = lock(&self.turn);
        loop {
            let phase = self.phase();
            match outcome(phase, event) {
                Outcome::Go(next) => {
                    self.set(next);
                    return Ok(Some(phase));
                }
                Outcome::Wait => turn = wait(&self.changed, turn),
                Outcome::Nothing => return Ok(None),
                Outcome::Refuse(why) => return Err(why.into()),
            }
        }
    }

    /// Ends the work of a phase.
    pub(crate) fn end(&self, _: Quiescent<'_>, done: bool) {
        let mut turn = lock(&self.turn);
        match outcome(self.phase(), if done { Event::Done } else { Event::Failed }) {
            Outcome::Go(next) => self.set(next),
            other => unreachable!("the end of a phase is {other:?}"),
        }
        let waiting = std::mem::take(&mut *turn);
        drop(turn);
        waiting.into_iter().for_each(|then| then());
    }

    /// Waits until the calls that were admitted before this phase have ended. The caller has begun the phase.
    pub(crate) fn drain(&self) -> Quiescent<'_> {
        let mut turn = lock(&self.turn);
        while self.word.load(Ordering::SeqCst) & CALLS > 0 && !Mutant::CloseWithoutDrain.is_on() {
            turn = wait(&self.changed, turn);
        }
        assert_ne!(self.phase(), Phase::Running, "calls are admitted");
        Quiescent(PhantomData)
    }

    /// Sets the phase and keeps the count of calls. The caller holds `turn`.
    fn set(&self, phase: Phase) {
        let old = word_of(self.phase());
        self.word.fetch_add(word_of(phase).wrapping_sub(old), Ordering::SeqCst);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::sync::Arc;

    const EVENTS: [Event; 3] = [Event::Freeze, Event::Thaw, Event::Close];

    /// The table at the head, cell by cell.
    #[test]
    fn each_event_in_each_phase_does_what_the_table_says() {
        use Outcome::{Go, Nothing, Refuse, Wait};
        use Refusal::{FrozenAlready, NotFrozen, Unmounted};
        let table = [
            (Phase::Running, [Go(Phase::Freezing), Refuse(NotFrozen), Go(Phase::Closing)]),
            (Phase::Freezing, [Refuse(FrozenAlready), Wait, Wait]),
            (Phase::Frozen, [Refuse(FrozenAlready), Go(Phase::Thawing), Go(Phase::Closing)]),
            (Phase::Thawing, [Refuse(FrozenAlready), Wait, Wait]),
            (Phase::Closing, [Refuse(Unmounted), Refuse(Unmounted), Wait]),
            (Phase::Closed, [Refuse(Unmounted), Refuse(Unmounted), Nothing]),
        ];
        for (phase, outcomes) in table {
            for (event, expected) in EVENTS.into_iter().zip(outcomes) {
                assert_eq!(outcome(phase, event), expected, "{event:?} in {phase:?}");
            }
        }
        for (phase, done, failed) in [
            (Phase::Freezing, Phase::Frozen, Phase::Running),
            (Phase::Thawing, Phase::Running, Phase::Frozen),
            (Phase::Closing, Phase::Closed, Phase::Closed),
        ] {
            assert_eq!(outcome(phase, Event::Done), Go(done));
            assert_eq!(outcome(phase, Event::Failed), Go(failed));
        }
    }

    fn in_phase(phase: Phase) -> Lifecycle {
        let l = Lifecycle::new();
        l.word.store(word_of(phase), Ordering::SeqCst);
        l
    }

    #[test]
    fn calls_are_admitted_only_while_running() {
        for phase in PHASES {
            let l = in_phase(phase);
            match (phase, l.try_enter()) {
                (Phase::Running, Ok(())) => l.leave(),
                (Phase::Closing | Phase::Closed, Err(Error::ReadOnly(_))) | (_, Err(Error::Frozen)) => {}
                (phase, result) => panic!("{phase:?}: {result:?}"),
            }
            assert_eq!(l.word.load(Ordering::SeqCst), word_of(phase), "the count is back at 0");
        }
        assert!(matches!(in_phase(Phase::Frozen).enter_unless_frozen(), Ok(false)));
    }

    #[test]
    fn a_phase_waits_for_the_calls_under_way_and_calls_wait_for_its_end() {
        let l = Arc::new(Lifecycle::new());
        l.enter().unwrap();
        assert_eq!(l.begin(Event::Freeze).unwrap(), Some(Phase::Running));
        let (drained, theirs) = (Arc::new(AtomicU64::new(0)), l.clone());
        let seen = drained.clone();
        let freezer = std::thread::spawn(move || {
            let quiescent = theirs.drain();
            seen.store(1, Ordering::SeqCst);
            theirs.end(quiescent, true);
        });
        assert_eq!(drained.load(Ordering::SeqCst), 0);
        l.leave();
        freezer.join().unwrap();
        assert_eq!((drained.load(Ordering::SeqCst), l.phase()), (1, Phase::Frozen));
        let theirs = l.clone();
        let caller = std::thread::spawn(move || theirs.enter());
        l.begin(Event::Thaw).unwrap();
        l.end(l.drain(), true);
        caller.join().unwrap().unwrap();
        l.leave();
    }

    #[test]
    fn what_waits_without_a_thread_is_called_when_the_phase_ends() {
        for (phase, done) in [(Phase::Freezing, true), (Phase::Freezing, false), (Phase::Thawing, true)] {
            let l = in_phase(phase);
            let seen = Arc::new(AtomicU64::new(0));
            for _ in 0..3 {
                let theirs = seen.clone();
                l.after_phase(Box::new(move || {
                    theirs.fetch_add(1, Ordering::SeqCst);
                }));
            }
            assert_eq!(seen.load(Ordering::SeqCst), 0, "{phase:?} is under way");
            l.end(l.drain(), done);
            assert_eq!(seen.load(Ordering::SeqCst), 3, "{phase:?} has ended");
        }
        for phase in [Phase::Running, Phase::Frozen, Phase::Closing, Phase::Closed] {
            let seen = Arc::new(AtomicU64::new(0));
            let theirs = seen.clone();
            in_phase(phase).after_phase(Box::new(move || theirs.store(1, Ordering::SeqCst)));
            assert_eq!(seen.load(Ordering::SeqCst), 1, "{phase:?} does not end by itself");
        }
    }

    #[test]
    fn callers_that_wait_on_a_frozen_volume_are_refused_when_it_closes() {
        let l = Arc::new(in_phase(Phase::Frozen));
        let callers: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn({
                    let l = l.clone();
                    move || l.enter()
                })
            })
            .collect();
        assert_eq!(l.begin(Event::Close).unwrap(), Some(Phase::Frozen));
        for caller in callers {
            assert!(matches!(caller.join().unwrap(), Err(Error::ReadOnly(_))));
        }
        l.end(l.drain(), true);
        assert!(matches!(l.begin(Event::Close), Ok(None)));
    }
}
