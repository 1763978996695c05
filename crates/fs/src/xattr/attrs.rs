//! The attributes of one inode, wherever they lie: read, listed and changed.

use super::block;
use crate::error::{Error, Result};
use crate::map::{self, Mapping};
use crate::records;
use crate::txn::Op;
use quire_layout::inode::{Inode, flags};
use quire_layout::xattr::{self, Namespace, Value, ValueInodes, Xattr};
use quire_layout::{Corrupt, FileBlock, Ino, Structure};

/// Whether an attribute that is set must be new, or must exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XattrFlags {
    #[default]
    Any,
    /// Fails if it exists.
    Create,
    /// Fails if it does not.
    Replace,
}

/// Longest value in an inode of its own, in bytes (Linux's `XATTR_SIZE_MAX`).
pub(crate) const MAX_VALUE: u32 = 65536;

/// All attributes: those in the inode, those in its block.
struct Attrs {
    inline: Vec<Xattr>,
    block: Vec<Xattr>,
}

impl Attrs {
    fn read(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<Self> {
        let inline = xattr::decode_inline(ino, inode, ValueInodes::of(op.sb().features()))?;
        let block = match inode.xattr_block() {
            Some(b) => {
                let image = block::image(op, ino, b)?;
                xattr::decode_block(&image, b)?
            }
            None => Vec::new(),
        };
        Ok(Attrs { inline, block })
    }

    fn find(&self, ns: Namespace, name: &[u8]) -> Option<&Xattr> {
        self.inline.iter().chain(&self.block).find(|x| x.is(ns, name))
    }
}

/// The value of an attribute.
///
/// # Errors
/// Corrupt; miss.
pub(crate) fn get(op: &mut Op<'_>, ino: Ino, inode: &Inode, ns: Namespace, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let attrs = Attrs::read(op, ino, inode)?;
    match attrs.find(ns, name).map(|x| x.value.clone()) {
        None => Ok(None),
        Some(Value::Here(v)) => Ok(Some(v)),
        Some(Value::InInode { ino, size, .. }) => read_value(op, ino, size).map(Some),
    }
}

/// A value in an inode of its own.
fn read_value(op: &mut Op<'_>, ino: Ino, size: u32) -> Result<Vec<u8>> {
    let bad = |why| Corrupt::new(Structure::Inode, why).of(ino.0);
    let inode = records::inode(op, ino)?;
    if !inode.has(flags::EA_INODE) || inode.links() == 0 {
        return Err(bad("does not hold an attribute's value").into());
    }
    if size > MAX_VALUE || inode.size() != u64::from(size) {
        return Err(bad("value's size is impossible").into());
    }
    let (size, bs) = (usize::try_from(size).expect("at most 64 KiB"), op.sb().block_size());
    let mut out = Vec::with_capacity(size);
    let mut fb = FileBlock(0);
    while out.len() < size {
        let Mapping::Mapped { phys, unwritten: false, .. } = map::lookup(op, ino, &inode, fb, 1)? else {
            return Err(bad("value has a hole").into());
        };
        let image = op.block_of_parts(phys)?;
        out.extend_from_slice(&image[..bs.bytes().min(size - out.len())]);
        fb = fb.plus(1);
    }
    Ok(out)
}

/// The full names of all attributes that have one.
///
/// # Errors
/// Corrupt; miss.
pub(crate) fn list(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<Vec<(Namespace, Vec<u8>)>> {
    let attrs = Attrs::read(op, ino, inode)?;
    let all = attrs.inline.iter().chain(&attrs.block);
    Ok(all.filter_map(|x| Some((x.namespace, x.full_name()?))).collect())
}

/// Sets an attribute, or removes it (`None`). The caller writes the inode.
///
/// # Errors
/// Exists, no data (as `flags` say); no space, where it fits neither the inode nor a block; corrupt; miss.
pub(crate) fn set(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    new: &Xattr,
    remove: bool,
    how: XattrFlags,
) -> Result<()> {
    let mut attrs = Attrs::read(op, ino, inode)?;
    let old = attrs.find(new.namespace, &new.name);
    match (old, how) {
        (Some(_), XattrFlags::Create) => return Err(Error::Exists),
        (None, XattrFlags::Replace) => return Err(Error::NoData),
        (None, _) if remove => return Err(Error::NoData),
        (Some(x), _) if !remove && x == new => return Ok(()),
        _ => {}
    }
    let in_block = attrs.block.iter().any(|x| x.is(new.namespace, &new.name));
    let at = attrs.inline.iter().position(|x| x.is(new.namespace, &new.name));
    attrs.inline.retain(|x| !x.is(new.namespace, &new.name));
    attrs.block.retain(|x| !x.is(new.namespace, &new.name));
    let mut block_changed = in_block;
    if !remove {
        let space: usize = attrs.inline.iter().map(Xattr::space).sum();
        if space + new.space() <= xattr::inline_capacity(inode) {
            attrs.inline.insert(at.unwrap_or(attrs.inline.len()), new.clone());
        } else {
            attrs.block.push(new.clone());
            block_changed = true;
        }
    }
    assert!(xattr::encode_inline(inode, &attrs.inline), "looked whether it fits");
    if block_changed { block::write(op, ino, inode, &attrs.block) } else { Ok(()) }
}

/// The name of a file's capabilities in their namespace.
const CAPABILITY: &[u8] = b"capability";

/// False where the inode alone shows that the file has no capabilities, because it has no block of attributes for them.
/// Those that cannot be read give nothing to anybody.
pub(crate) fn may_have_capabilities(op: &Op<'_>, ino: Ino, inode: &Inode) -> bool {
    let is_inline = || {
        let inline = xattr::decode_inline(ino, inode, ValueInodes::of(op.sb().features()));
        inline.is_ok_and(|attrs| attrs.iter().any(|x| x.is(Namespace::SECURITY, CAPABILITY)))
    };
    inode.xattr_block().is_some() || is_inline()
}

/// Removes the file's capabilities, as a write or a change of owner must. The caller writes the inode.
///
/// # Errors
/// Corrupt; no space (the block was shared); miss.
pub(crate) fn drop_capabilities(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    let none = Xattr::new(Namespace::SECURITY, CAPABILITY, b"");
    match set(op, ino, inode, &none, true, XattrFlags::Any) {
        Err(Error::NoData) => Ok(()),
        done => done,
    }
}
