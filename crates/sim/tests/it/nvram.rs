//! Explores crash states of configurations with their journal in NVRAM: of the disk and of the memory at once. The
//! environment is that of `crash`: `QUIRE_SIM_STATES`, `QUIRE_SIM_TOTAL`, `QUIRE_SIM_FSCK`, `QUIRE_SIM_FIRST`,
//! `QUIRE_SIM_SEED`, `QUIRE_SIM_MIX`, `QUIRE_SIM_KEEP`.

use quire_fs::{Checkpoint, CommitMode, Record};
use quire_sim::campaign::{SMALL, explore_seeds, fsck_every, share, wants};
use quire_sim::explore::{Config, Effort, fresh_image};
use quire_sim::mixes::Mix;
use quire_sim::nvram::{NvramConfig, explore_nvram};
use quire_sim::run::{How, Route};

const EFFORT: Effort =
    Effort { calls: 300, outcomes: 3, all: 0, fsck_every: 40, double_every: 9, every_cut: false, moments: 1 };

fn config(name: &'static str, route: Route, record: Record, checkpoint: Checkpoint) -> NvramConfig {
    let how = How::lazy(route, record, CommitMode::Nvram);
    let base = Config { name, how, mix: Mix::General, leave: None, mke2fs: SMALL, size: "8M" };
    // As small as they may be: regions are left often. Requests of 28 KiB must fit into half a transaction; in place,
    // into a quarter.
    let region = if route == Route::Journal { 76 << 10 } else { 112 << 10 };
    let regions = match checkpoint {
        Checkpoint::Regions(n) => usize::from(n),
        Checkpoint::Lazy | Checkpoint::Fsync => 4,
    };
    NvramConfig { base, checkpoint, size: 8192 + regions * region, one_in: 4 }
}

/// Each mix in turn, a third of the states each.
fn explore_config(config: &NvramConfig) {
    let sixtieths = u64::try_from(60 * CONFIGURATIONS.len()).expect("few");
    let wanted = share(sixtieths, 2_400).div_ceil(3);
    let effort = Effort { fsck_every: fsck_every(EFFORT.fsck_every), ..EFFORT };
    for (mix, leave) in [(Mix::General, None), (Mix::Overwrite, None), (Mix::Reuse, Some(320))] {
        if !wants(mix) {
            continue;
        }
        let base = Config { mix, leave, ..config.base.clone() };
        // A full disk is made without NVRAM.
        let jbd2 = How { record: Record::Block, commit_mode: CommitMode::Barrier, ..base.how };
        let image = fresh_image(&Config { how: jbd2, ..base.clone() });
        let config = NvramConfig { base, ..config.clone() };
        explore_seeds(config.base.name, mix, wanted, |seed, kept, seen| {
            explore_nvram(&config, &image, seed, effort, kept, seen)
        });
    }
}

macro_rules! nvram {
    ($($name:ident: $route:ident, $record:ident, $checkpoint:expr;)+) => {
        const CONFIGURATIONS: &[&str] = &[$(stringify!($name)),+];
        $(#[test]
        fn $name() {
            explore_config(&config(stringify!($name), Route::$route, Record::$record, $checkpoint));
        })+
    };
}

nvram! {
    nvj: Journal, Block, Checkpoint::Lazy;
    nvj_fsync: Journal, Block, Checkpoint::Fsync;
    djfs: Journal, Delta, Checkpoint::Regions(2);
    djfs4: Journal, Delta, Checkpoint::Regions(4);
    journal_delta_lazy: Journal, Delta, Checkpoint::Lazy;
    journal_range_regions: Journal, Range, Checkpoint::Regions(2);
    ordered_delta_regions: Ordered, Delta, Checkpoint::Regions(2);
    ordered_range_lazy: Ordered, Range, Checkpoint::Lazy;
    overwrite_delta_regions: Overwrite, Delta, Checkpoint::Regions(2);
    auto_range_regions: Auto, Range, Checkpoint::Regions(2);
    adaptive_delta_regions: Adaptive, Delta, Checkpoint::Regions(2);
    selective_block_regions: Selective, Block, Checkpoint::Regions(2);
}
