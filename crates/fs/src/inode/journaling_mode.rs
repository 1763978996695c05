//! How a file's data is journaled: its own setting, a rule, or the default (`data=adaptive`, after JoJ).
//!
//! Precedence: the explicit setting, then a rule, then the setting that its directory handed down, then the default.
//!
//! - The explicit setting is the flag `j` (`chattr +j`: journal), or the attribute `user.quire.journal`, which can also
//!   say *ordered*. Both lie in the image. Setting one brings the other in line.
//! - A rule matches a name: the last one by which the file was made, moved, linked or looked up.
//! - A directory hands its setting down to objects made in it, unless a rule matches the name. The new object then has
//!   the setting as its own.
//!
//! A mode may change at any time. Pages are written back before a write is journaled, and a block with a live record is
//! never written in place (F9), whatever the mode is.

use crate::config::{JournalingMode, Route, by_rule};
use crate::error::{Error, Result};
use crate::txn::Op;
use crate::xattr::{self, XattrFlags};
use quire_layout::Ino;
use quire_layout::inode::{Inode, flags};
use quire_layout::xattr::{Namespace, Xattr};

/// The attribute's name after `user.`.
pub(crate) const ATTRIBUTE: &[u8] = b"quire.journal";

/// True if updates of this file's data go through the journal, request by request.
///
/// # Errors
/// Corrupt; miss.
pub(crate) fn is_journaled_file(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<bool> {
    let has_log = op.context.route.has_log();
    Ok(match op.context.options.route {
        Route::Journal => true,
        Route::None => false,
        Route::Adaptive => has_log && of(op, ino, inode)? == JournalingMode::Journal,
        _ => has_log && inode.has(flags::JOURNAL_DATA),
    })
}

/// Notes that an inode is known by this name from now on, for the rules of `data=adaptive`.
pub(crate) fn note_name(op: &mut Op<'_>, ino: Ino, name: &[u8]) {
    let options = &op.context.options;
    if options.route == Route::Adaptive {
        op.deferred.named.push((ino, by_rule(&options.journal_rules, name)));
    }
}

/// The setting that an inode has itself.
///
/// # Errors
/// Corrupt; miss.
pub(crate) fn explicit(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<Option<JournalingMode>> {
    if inode.has(flags::JOURNAL_DATA) {
        return Ok(Some(JournalingMode::Journal));
    }
    let value = xattr::get(op, ino, inode, Namespace::USER, ATTRIBUTE)?;
    Ok(value.and_then(|v| JournalingMode::from_bytes(&v)))
}

/// A file's mode with `data=adaptive`.
///
/// # Errors
/// Corrupt; miss.
pub(crate) fn of(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<JournalingMode> {
    if let Some(mode) = explicit(op, ino, inode)? {
        return Ok(mode);
    }
    Ok(op.tables().ruled_names.get(ino).unwrap_or(op.context.options.adaptive_default))
}

/// An inode was made in a directory: a setting of the directory's becomes its own, unless a rule speaks for the name.
/// (The flag it has already.) True if the inode has changed.
///
/// # Errors
/// Corrupt; no space; miss.
pub(crate) fn hand_down(op: &mut Op<'_>, dir: (Ino, &Inode), child: (Ino, &mut Inode), name: &[u8]) -> Result<bool> {
    let (ino, inode) = child;
    let options = &op.context.options;
    if options.route != Route::Adaptive || !(inode.is_file() || inode.is_dir()) {
        return Ok(false);
    }
    if inode.is_file() && by_rule(&options.journal_rules, name).is_some() {
        let had = inode.has(flags::JOURNAL_DATA);
        inode.set_flags(inode.flags() & !flags::JOURNAL_DATA);
        return Ok(had);
    }
    match explicit(op, dir.0, dir.1)? {
        Some(JournalingMode::Ordered) => {
            let attribute = Xattr::new(Namespace::USER, ATTRIBUTE, JournalingMode::Ordered.name().as_bytes());
            xattr::set(op, ino, inode, &attribute, false, XattrFlags::Any)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// The attribute is about to get this value (`None`: to go): the flag follows.
///
/// # Errors
/// Invalid: not a mode.
pub(crate) fn attribute_changes(inode: &mut Inode, value: Option<&[u8]>) -> Result<()> {
    let mode = match value {
        None => None,
        Some(v) => {
            Some(JournalingMode::from_bytes(v).ok_or(Error::Invalid("user.quire.journal is journal or ordered"))?)
        }
    };
    if mode == Some(JournalingMode::Journal) && inode.has(flags::DAX) {
        return Err(Error::NotSupported("direct access to data that is journaled"));
    }
    let others = inode.flags() & !flags::JOURNAL_DATA;
    inode.set_flags(if mode == Some(JournalingMode::Journal) { others | flags::JOURNAL_DATA } else { others });
    Ok(())
}

/// The flag has changed: the attribute no longer holds.
///
/// # Errors
/// Corrupt; no space (its block was shared); miss.
pub(crate) fn flag_changed(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    let attribute = Xattr::new(Namespace::USER, ATTRIBUTE, b"");
    match xattr::set(op, ino, inode, &attribute, true, XattrFlags::Any) {
        Err(Error::NoData) => Ok(()),
        done => done,
    }
}
