//! Listing the names of a hash that fill more leaves than one operation looks at. With the legacy hash a user can make
//! such names.
//!
//! The leaves go in parts of [`MAX_CHAIN`], and the names of a part in the order of their keys. The cookie has the
//! number of the part. So what one operation holds is bounded (D5), however many names there are. A name that stays is
//! given, but may come twice if a leaf of its hash is split meanwhile (D3).

use super::blocks::Dir;
use super::listing::{AFTER_DOTDOT, Leaf, Listing, MAX_CHAIN, SOME, emit, first_key};
use super::tree::Path;
use crate::error::{Error, Result};
use crate::txn::Op;
use quire_layout::inode::Inode;

/// Where the number of the part stands in a key, and how many parts there may be.
const PART_BIT: u32 = 22;
const PARTS: u64 = 1 << (32 - PART_BIT);
/// Bits of the tie break that a key has no room for, behind the number of the part and before the number among equals.
const TIE_BITS_DROPPED: u32 = 32 - (PART_BIT - 8);

/// True if names of this hash lie in more leaves than one operation looks at, as the index tells.
pub(super) fn is_long(op: &mut Op<'_>, dir: &Dir, inode: &Inode, hash: u32) -> Result<bool> {
    let mut path = Path::to(op, dir, inode, |_| hash)?;
    skip(op, dir, inode, &mut path, hash, MAX_CHAIN as u64)
}

/// Goes on by so many leaves of a hash; false if it has fewer behind this one.
fn skip(op: &mut Op<'_>, dir: &Dir, inode: &Inode, path: &mut Path, hash: u32, leaves: u64) -> Result<bool> {
    for _ in 0..leaves {
        if path.next_hash() != Some(hash | 1) || !path.advance(op, dir, inode)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Gives names of the hash, of the part that the listing's cookie names. Returns the cookie to go on with.
///
/// # Errors
/// Too large: more parts than cookies can tell. Corrupt.
pub(super) fn read(
    op: &mut Op<'_>,
    dir: &Dir,
    inode: &Inode,
    hash: u32,
    to: &mut Listing<'_, '_>,
) -> Result<Option<u64>> {
    let part = ((to.cookie - AFTER_DOTDOT) & u64::from(u32::MAX)) >> PART_BIT;
    let mut path = Path::to(op, dir, inode, |_| hash)?;
    // No name has the largest hash.
    let behind = first_key(hash) + (1 << 32) + AFTER_DOTDOT;
    if !skip(op, dir, inode, &mut path, hash, part * MAX_CHAIN as u64)? {
        return Ok(to.stopped_at(behind));
    }
    let mut leaves = Vec::with_capacity(MAX_CHAIN);
    let goes_on = loop {
        leaves.push(Leaf::here(op, dir, inode, &path)?);
        let goes_on = skip(op, dir, inode, &mut path, hash, 1)?;
        if !goes_on || leaves.len() == MAX_CHAIN {
            break goes_on;
        }
    };
    let mut list = Vec::with_capacity(SOME);
    for leaf in &leaves {
        leaf.names(dir, &path.hasher, &mut list)?;
    }
    list.retain(|k| k.major == hash);
    for k in &mut list {
        k.key = first_key(hash) | part << PART_BIT | u64::from(k.tie >> TIE_BITS_DROPPED) << 8;
    }
    if !emit(list, true, to) {
        return Ok(to.stopped());
    }
    match part + 1 {
        _ if !goes_on => Ok(to.stopped_at(behind)),
        PARTS => Err(Error::TooLarge),
        next => Ok(to.stopped_at((first_key(hash) | next << PART_BIT) + AFTER_DOTDOT)),
    }
}
