//! The four choices of the engine, which combinations are legal, and the names of some of them: profiles.
//!
//! | choice | question | values |
//! |---|---|---|
//! | [`Route`] (`data=`) | through the journal, or in place? | none writeback ordered journal adaptive selective overwrite auto |
//! | [`Record`] (`record=`) | how is a journaled block written down? | block range=data range delta |
//! | [`CommitMode`] (`commit_mode=`) | what makes a transaction durable? | barrier checksum nvram |
//! | [`Checkpoint`] (`checkpoint=`) | how is log space reclaimed? | lazy fsync regions:N |
//!
//! The format of the log follows from them ([`Choices::log`]) and has no option of its own. [`Choices::log`] is the one
//! place that says what is legal.

use quire_journal::{Checkpoint, CommitMode, Format, LogChoices, Record, named_values};
use std::fmt;

/// Does a file-data update go through the journal, or in place? (`data=`)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// No journal at all.
    None,
    /// In place. It promises no order with the metadata; the engine writes as with `Ordered`.
    Writeback,
    /// In place, before the metadata that names it.
    Ordered,
    /// Through the journal, with the metadata.
    Journal,
    /// Each file has its own mode (JoJ).
    Adaptive,
    /// Small updates through the journal, large ones in place (Okeanos).
    Selective,
    /// Overwritten blocks through the journal, new ones in place (RFJ).
    Overwrite,
    /// As `Overwrite` promises, at the lowest cost.
    Auto,
}

/// One value of each choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choices {
    pub route: Route,
    pub record: Record,
    pub commit: CommitMode,
    pub checkpoint: Checkpoint,
}

/// Why a combination is refused, and the nearest one that is legal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Illegal {
    pub why: &'static str,
    pub nearest: Choices,
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; the nearest combination is {}", self.why, self.nearest)
    }
}

impl Choices {
    #[must_use]
    pub const fn new(route: Route, record: Record, commit: CommitMode, checkpoint: Checkpoint) -> Self {
        Choices { route, record, commit, checkpoint }
    }

    /// What a route goes with where nothing else is said: the profile of its name.
    #[must_use]
    pub fn of_route(route: Route) -> Self {
        match route {
            Route::None => Profile::Ext4None,
            Route::Writeback => Profile::Ext4Writeback,
            Route::Ordered => Profile::Ext4Ordered,
            Route::Journal => Profile::Ext4Journal,
            Route::Adaptive => Profile::Joj,
            Route::Selective => Profile::Selective,
            Route::Overwrite => Profile::Rfj,
            Route::Auto => Profile::Auto,
        }
        .choices()
    }

    /// The log that this combination is written in; `None` for none.
    ///
    /// # Errors
    /// The combination makes no sense.
    pub fn log(self) -> Result<Option<Format>, Illegal> {
        use Checkpoint::{Fsync, Lazy, Regions};
        use CommitMode::{Barrier, Checksum, Nvram};
        use Record::{Block, Delta, Range, RangeData};
        let illegal = |why, nearest| Err(Illegal { why, nearest });
        match (self.route, self.record, self.commit, self.checkpoint) {
            (Route::None, Block, Barrier, Lazy) => Ok(None),
            (Route::None, ..) => illegal(
                "data=none has no log whose records, commits or checkpoints could be chosen",
                Choices::of_route(Route::None),
            ),
            (_, _, Barrier | Checksum, Regions(_)) => illegal(
                "checkpoint=regions divides a log in NVRAM; a log on a block device is reclaimed lazily",
                Choices { checkpoint: Lazy, ..self },
            ),
            (_, RangeData | Range | Delta, _, Fsync) => illegal(
                "checkpoint=fsync is what ext4 does, whose log has whole blocks",
                Choices { checkpoint: Lazy, ..self },
            ),
            (_, RangeData, Nvram, _) => illegal(
                "record=range=data packs data into blocks; a log in NVRAM has none, its ranges are of bytes",
                Choices { record: Range, ..self },
            ),
            (_, _, Nvram, Regions(0 | 1)) => illegal(
                "with fewer than two regions every commit would wait for a checkpoint",
                Choices { checkpoint: Regions(2), ..self },
            ),
            (_, Block | Range | Delta, Nvram, Lazy | Regions(2..))
            | (_, Block | RangeData | Range | Delta, Barrier | Checksum, Lazy)
            | (_, Block, _, Fsync) => Ok(Some(self.of_log().format())),
        }
    }

    /// True if what is logged of file data follows the size of each write: a cache above that hands over whole pages
    /// hides that size.
    #[must_use]
    pub fn follows_writes(self) -> bool {
        self.route == Route::Selective || self.record == Record::RangeData
    }

    /// The choices that concern the log.
    #[must_use]
    pub fn of_log(self) -> LogChoices {
        LogChoices { record: self.record, commit: self.commit, checkpoint: self.checkpoint }
    }

    /// The name of this combination, if it has one.
    #[must_use]
    pub fn profile(self) -> Option<Profile> {
        Profile::ALL.into_iter().find(|p| p.choices() == self)
    }

    /// A short word for it, without spaces or commas: the profile, or the four values.
    #[must_use]
    pub fn label(self) -> String {
        match self.profile() {
            Some(p) => p.to_string(),
            None => format!("{}+{}+{}+{}", self.route, self.record, self.commit, self.checkpoint),
        }
    }
}

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Choices { route, record, commit, checkpoint } = self;
        write!(f, "data={route},record={record},commit_mode={commit},checkpoint={checkpoint}")
    }
}

named_values!(Route: None = "none", Writeback = "writeback", Ordered = "ordered", Journal = "journal", Adaptive = "adaptive",
    Selective = "selective", Overwrite = "overwrite", Auto = "auto");
/// A name for one value of each choice (`profile=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    Ext4None,
    Ext4Writeback,
    Ext4Ordered,
    Ext4Journal,
    /// JoJ's third series: everything journaled, one I/O to a commit.
    SingleIo,
    Joj,
    /// Okeanos' wasteless journaling.
    Wasteless,
    /// Okeanos' selective journaling.
    Selective,
    Rfj,
    /// DJFS' baseline: whole blocks in NVRAM.
    Nvj,
    Djfs,
    Djfs4,
    Auto,
}

named_values!(Profile: Ext4None = "ext4-none", Ext4Writeback = "ext4-writeback", Ext4Ordered = "ext4-ordered",
    Ext4Journal = "ext4-journal", SingleIo = "single-io", Joj = "joj", Wasteless = "wasteless", Selective = "selective",
    Rfj = "rfj", Nvj = "nvj", Djfs = "djfs", Djfs4 = "djfs4", Auto = "auto");

impl Profile {
    /// What it stands for.
    #[must_use]
    pub const fn choices(self) -> Choices {
        use Checkpoint::{Lazy, Regions};
        use CommitMode::{Barrier, Checksum, Nvram};
        match self {
            Profile::Ext4None => Choices::new(Route::None, Record::Block, Barrier, Lazy),
            Profile::Ext4Writeback => Choices::new(Route::Writeback, Record::Block, Barrier, Lazy),
            Profile::Ext4Ordered => Choices::new(Route::Ordered, Record::Block, Barrier, Lazy),
            Profile::Ext4Journal => Choices::new(Route::Journal, Record::Block, Barrier, Lazy),
            Profile::SingleIo => Choices::new(Route::Journal, Record::Block, Checksum, Lazy),
            Profile::Joj => Choices::new(Route::Adaptive, Record::Block, Checksum, Lazy),
            Profile::Wasteless => Choices::new(Route::Journal, Record::RangeData, Checksum, Lazy),
            Profile::Selective => Choices::new(Route::Selective, Record::RangeData, Checksum, Lazy),
            Profile::Rfj => Choices::new(Route::Overwrite, Record::Block, Barrier, Lazy),
            Profile::Nvj => Choices::new(Route::Journal, Record::Block, Nvram, Lazy),
            Profile::Djfs => Choices::new(Route::Journal, Record::Delta, Nvram, Regions(2)),
            Profile::Djfs4 => Choices::new(Route::Journal, Record::Delta, Nvram, Regions(4)),
            Profile::Auto => Choices::new(Route::Auto, Record::Range, Checksum, Lazy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Choices> {
        let regions = [1, 2, 4].map(Checkpoint::Regions);
        let checkpoints = [[Checkpoint::Lazy, Checkpoint::Fsync].as_slice(), &regions].concat();
        let mut all = Vec::new();
        for route in Route::ALL {
            for record in Record::ALL {
                for commit in CommitMode::ALL {
                    all.extend(checkpoints.iter().map(|c| Choices::new(route, record, commit, *c)));
                }
            }
        }
        all.into_iter()
    }

    #[test]
    fn the_nearest_combination_of_an_illegal_one_is_reached() {
        for c in all() {
            let mut c = c;
            let mut steps = 0;
            while let Err(i) = c.log() {
                assert!(i.nearest != c && i.nearest.route == c.route && !i.why.is_empty(), "{c}");
                c = i.nearest;
                steps += 1;
                assert!(steps < 4, "{c}");
            }
        }
    }

    #[test]
    fn the_format_of_the_log_follows_from_the_choices() {
        let kinds = |f: fn(&Choices) -> bool| all().filter(f).map(|c| c.log().ok()).collect::<Vec<_>>();
        assert!(kinds(|c| c.route == Route::None).iter().all(|k| matches!(k, None | Some(None))));
        for c in all().filter(|c| c.route != Route::None) {
            let expected = match (c.record, c.commit, c.checkpoint) {
                (Record::Block, CommitMode::Barrier, Checkpoint::Lazy | Checkpoint::Fsync) => Some(Some(Format::Jbd2)),
                (Record::Block, CommitMode::Checksum, Checkpoint::Fsync) => Some(Some(Format::Quire)),
                (_, CommitMode::Barrier | CommitMode::Checksum, Checkpoint::Lazy) => Some(Some(Format::Quire)),
                (Record::Block, CommitMode::Nvram, Checkpoint::Fsync) => Some(Some(Format::Nvram)),
                (Record::RangeData, CommitMode::Nvram, _) | (_, _, Checkpoint::Regions(1) | Checkpoint::Fsync) => None,
                (_, CommitMode::Nvram, _) => Some(Some(Format::Nvram)),
                _ => None,
            };
            assert_eq!(c.log().ok(), expected, "{c}");
        }
    }

    #[test]
    fn profiles_are_legal_and_names_lead_back() {
        for p in Profile::ALL {
            assert!(p.choices().log().is_ok(), "{p}");
            assert_eq!((p.choices().profile(), p.name().parse()), (Some(p), Ok(p)));
        }
        for c in all() {
            assert_eq!(c.route.to_string().parse(), Ok(c.route));
            assert_eq!(c.record.to_string().parse(), Ok(c.record));
            assert_eq!(c.commit.to_string().parse(), Ok(c.commit));
            assert_eq!(c.checkpoint.to_string().parse(), Ok(c.checkpoint));
            assert!(!c.label().contains([',', ' ']));
        }
        assert!("regions:x".parse::<Checkpoint>().is_err() && "regions:300".parse::<Checkpoint>().is_err());
        assert!("fast".parse::<Route>().unwrap_err().to_string().contains("overwrite"));
    }
}
