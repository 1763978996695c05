//! What a checkpoint asks: which transactions to pass, what must go home for it, and what is dead afterwards.
//!
//! Guarantees: J11 and Q6 as far as memory knows; the work is that of the blocks of the transactions passed, however
//! much is live.

use super::{Committed, Core};
use quire_cache::Image;
use quire_device::Mutant;
use quire_device::sync::Arc;
use quire_layout::{BlockNo, Tid};
use std::time::Duration;

impl Core {
    /// The oldest transactions that together need `blocks` of theirs at home: the last of them. `None` if those up to
    /// `upto` need fewer.
    pub(crate) fn oldest_in_need(&self, blocks: usize, upto: Tid) -> Option<Tid> {
        let needs = |c: &Committed, b: &BlockNo| self.live.get(b).is_some_and(|l| l.chain == c.tid && !l.at_home);
        let mut needed = 0;
        let enough = |c: &&Committed| {
            needed += c.blocks.iter().filter(|b| needs(c, b)).count();
            needed >= blocks
        };
        self.committed.iter().take_while(|c| upto.at_or_after(c.tid)).find(enough).map(|c| c.tid)
    }

    /// Of the transactions that were closed by `time` the oldest, which together occupy at most `most` log blocks, but
    /// at least one: the last of them, and the blocks.
    pub(crate) fn closed_by(&self, time: Duration, most: u32) -> Option<(Tid, u32)> {
        let mut last: Option<(Tid, u32)> = None;
        for c in self.committed.iter().take_while(|c| c.closed <= time) {
            let blocks = last.map_or(0, |(_, blocks)| blocks) + c.log_blocks;
            if last.is_some() && blocks > most {
                break;
            }
            last = Some((c.tid, blocks));
        }
        last
    }

    /// What a checkpoint of all transactions up to `upto` must write home, in the order of the blocks: the newest
    /// committed image of each block that needs a record there. A later self-contained record makes an older one
    /// needless; one that is not needs what it was written over, or something newer, at home (J11). Chains of deltas
    /// that begin there end (Q6).
    pub(crate) fn home_writes(&mut self, upto: Tid) -> Vec<(BlockNo, Image)> {
        if Mutant::UncommittedHome.is_on() {
            let (live, cache) = (&self.live, &mut self.cache);
            let newest = |(b, l): (&BlockNo, &super::Live)| (*b, cache.get(*b).unwrap_or(&l.image).clone());
            return live.iter().filter(|(_, l)| upto.at_or_after(l.tid)).map(newest).collect();
        }
        let mut homes = Vec::new();
        // A chain begins in a transaction that holds the block; once that is passed, the image is at home.
        for b in self.committed.iter().take_while(|c| upto.at_or_after(c.tid)).flat_map(|c| &c.blocks) {
            if let Some(l) = self.live.get_mut(b).filter(|l| upto.at_or_after(l.chain)) {
                l.whole_next = true;
                if !l.at_home {
                    homes.push((*b, l.image.clone()));
                }
            }
        }
        homes.sort_by_key(|(b, _)| *b);
        homes.dedup_by_key(|(b, _)| *b);
        homes
    }

    /// Of these runs of blocks, the committed images that are not at home, in the order of the blocks. A block that a
    /// later transaction holds already is left out: its next commit has something newer.
    pub(crate) fn homes_in(&mut self, runs: &[(BlockNo, u32)]) -> Vec<(BlockNo, Image)> {
        let early = Mutant::UncommittedHome.is_on();
        let held = |b: &BlockNo| {
            self.running.blocks.contains(b) || self.committing.as_ref().is_some_and(|c| c.blocks.contains(b))
        };
        let live = runs.iter().flat_map(|(first, len)| self.live.range(*first..first.plus(u64::from(*len))));
        let mut homes: Vec<_> =
            live.filter(|(b, l)| early || !l.at_home && !held(b)).map(|(b, l)| (*b, l.image.clone())).collect();
        if early {
            let newest = |(b, image): &mut (BlockNo, Image)| *image = self.cache.get(*b).unwrap_or(image).clone();
            homes.iter_mut().for_each(newest);
        }
        homes.sort_by_key(|(b, _)| *b);
        homes
    }

    /// These images are complete at home: the flush with which a checkpoint passes their records makes them durable.
    pub(crate) fn at_home(&mut self, homes: &[(BlockNo, Image)]) {
        for (b, image) in homes {
            let Some(l) = self.live.get_mut(b).filter(|l| Arc::ptr_eq(&l.image, image)) else { continue };
            l.at_home = true;
            if std::mem::take(&mut l.is_new_data) {
                self.logged_new_data.ended(true);
            }
        }
    }

    /// The durable tail has passed all transactions up to `upto`, and `homes` are durable: records up to there are
    /// dead.
    pub(crate) fn tail_passed(&mut self, upto: Tid, homes: &[(BlockNo, Image)]) {
        self.at_home(homes);
        for (b, _) in homes {
            let Some(l) = self.live.get_mut(b) else { continue };
            if upto.at_or_after(l.chain) {
                l.chain = upto.next();
            }
        }
        while self.committed.front().is_some_and(|c| upto.at_or_after(c.tid)) {
            let c = self.committed.pop_front().expect("looked at");
            for b in &c.blocks {
                if self.live.get(b).is_some_and(|l| upto.at_or_after(l.tid)) {
                    let dead = self.live.remove(b).expect("looked at");
                    self.keep_base(*b, dead.image);
                }
            }
        }
        self.cache.set_elsewhere(self.live.len());
        self.cache.evict();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::Buf;

    /// A core in whose log each of these transactions has committed these blocks; where `self_contained` is false, as
    /// deltas.
    fn core(transactions: &[&[u64]], self_contained: bool) -> Core {
        let mut core = Core::new(64, Tid(1));
        for blocks in transactions {
            for b in blocks.iter().map(|b| BlockNo(*b)) {
                core.cache.set(b, Arc::new(Buf::zeroed(16)), None);
                core.join(b);
            }
            let txn = core.close(Duration::ZERO);
            let self_contained: Vec<bool> =
                blocks.iter().map(|b| self_contained || !core.is_in_log(BlockNo(*b))).collect();
            core.committed(&txn, 1, Some(&self_contained));
        }
        core
    }

    impl Core {
        fn is_in_log(&self, b: BlockNo) -> bool {
            self.live.contains_key(&b)
        }

        fn pass(&mut self, upto: Tid) -> Vec<u64> {
            let homes = self.home_writes(upto);
            self.tail_passed(upto, &homes);
            homes.into_iter().map(|(b, _)| b.0).collect()
        }
    }

    #[test]
    fn only_what_no_later_record_holds_goes_home_and_counts() {
        let mut core = core(&[&[7, 1], &[1, 2], &[3, 4], &[1, 2], &[5]], true);
        // 7; none; 3 and 4; 1 and 2; 5.
        let last = [0, 1, 2, 3, 4, 5, 6, 7].map(|n| core.oldest_in_need(n, Tid(9)).map(|tid| tid.0));
        assert_eq!(last, [Some(1), Some(1), Some(3), Some(3), Some(4), Some(4), Some(5), None]);
        assert_eq!((core.oldest_in_need(2, Tid(2)), core.oldest_in_need(2, Tid(3))), (None, Some(Tid(3))));
        assert_eq!(core.pass(Tid(2)), [7]);
        assert_eq!(core.pass(Tid(4)), [1, 2, 3, 4]);
        assert_eq!((core.pass(Tid(5)), core.pass(Tid(5))), (vec![5], vec![]));
        assert_eq!((core.oldest_in_need(1, Tid(9)), core.stats().live, core.stats().in_log), (None, 0, 0));
    }

    #[test]
    fn what_was_closed_by_a_time_is_passed_in_steps() {
        let mut core = core(&[&[1], &[2], &[3], &[4]], true);
        for (c, seconds) in core.committed.iter_mut().zip([1, 2, 3, 9]) {
            (c.closed, c.log_blocks) = (Duration::from_secs(seconds), 5);
        }
        let upto = |seconds, most| core.closed_by(Duration::from_secs(seconds), most).map(|(tid, n)| (tid.0, n));
        assert_eq!((upto(0, 99), upto(3, 99), upto(99, 99)), (None, Some((3, 15)), Some((4, 20))));
        assert_eq!((upto(99, 11), upto(99, 2)), (Some((2, 10)), Some((1, 5))));
    }

    #[test]
    fn a_chain_of_deltas_needs_its_last_image_at_home_when_its_first_is_passed() {
        let mut core = core(&[&[1, 2], &[1], &[1, 3]], false);
        let last = |n| core.oldest_in_need(n, Tid(9));
        assert_eq!((last(2), last(3)), (Some(Tid(1)), Some(Tid(3))));
        assert_eq!(core.pass(Tid(1)), [1, 2]);
        assert_eq!(core.stats().live, 2, "the last record of 1 is in the log still");
        assert_eq!(core.pass(Tid(2)), [0; 0], "and needs nothing more");
        assert_eq!(core.pass(Tid(3)), [3]);
        assert_eq!(core.stats().live, 0);
    }
}
