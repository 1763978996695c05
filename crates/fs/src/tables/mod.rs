//! In-memory tables that the metadata mutex guards: plain data, without block images and without I/O.

mod all;
mod changes;
mod dir_scans;
mod orphans;
mod reservation;
mod ruled_names;
mod shared_xattrs;
mod space;
mod zones;

pub(crate) use all::{Deferred, Tables};
pub(crate) use dir_scans::{DirScans, make_way};
pub(crate) use orphans::{OrphanFile, OrphanPlace};
pub(crate) use reservation::Reservation;
pub(crate) use space::{Busy, GroupHint, NewSpace, SpaceTable};
pub(crate) use space::{Pool, Run, Space};
pub(crate) use zones::{SHARED, Zones};
