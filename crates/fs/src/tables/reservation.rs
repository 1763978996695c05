//! Blocks that are set aside for data whose writeback chooses them later.

use std::ops::{Add, AddAssign, Sub, SubAssign};

/// So many blocks, by what they are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reservation {
    /// For data.
    pub data: u64,
    /// For the map: nodes of extent trees, blocks of pointers. They come out of the metadata reserve as far as it goes.
    pub map: u64,
}

impl Reservation {
    /// So many blocks for data.
    #[must_use]
    pub(crate) fn data(data: u64) -> Self {
        Reservation { data, map: 0 }
    }

    #[must_use]
    pub(crate) fn is_nothing(self) -> bool {
        self == Reservation::default()
    }

    /// After a change, which never takes more than there is.
    #[must_use]
    pub(crate) fn changed(self, by: ReservationChange) -> Self {
        Reservation { data: self.data.saturating_add_signed(by.data), map: self.map.saturating_add_signed(by.map) }
    }
}

impl Add for Reservation {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Reservation { data: self.data + other.data, map: self.map + other.map }
    }
}

impl Sub for Reservation {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Reservation { data: self.data - other.data, map: self.map - other.map }
    }
}

/// What an operation reserves and gives back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReservationChange {
    data: i64,
    map: i64,
}

impl AddAssign<Reservation> for ReservationChange {
    fn add_assign(&mut self, more: Reservation) {
        self.data += signed(more.data);
        self.map += signed(more.map);
    }
}

impl SubAssign<Reservation> for ReservationChange {
    fn sub_assign(&mut self, less: Reservation) {
        self.data -= signed(less.data);
        self.map -= signed(less.map);
    }
}

fn signed(blocks: u64) -> i64 {
    i64::try_from(blocks).expect("fewer than the blocks of the image")
}
