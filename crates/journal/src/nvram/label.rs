//! The label of a memory: whose log it holds, and from where on.
//!
//! Guarantees V3: the two slots are written in turn, so that one of them is whole at any time.

use crate::error::{Error, NvramProblem};
use quire_device::Nvram;
use quire_layout::Tid;
use quire_layout::nvlog::{Label, SLOTS, label};

/// Stores a label into a slot: durable on return.
pub(super) fn store_label(memory: &dyn Nvram, slot: usize, label: &Label) {
    memory.store(SLOTS[slot], &label.encode());
    memory.fence();
}

/// The label of a memory, and its slot.
///
/// # Errors
/// There is none; it needs more bytes than there are; unsupported.
pub(crate) fn read_label(memory: &dyn Nvram) -> Result<(Label, usize), Error> {
    let slots = SLOTS.map(|at| {
        let mut b = [0; label::LEN];
        memory.read(at, &mut b);
        b
    });
    let found = Label::newest([&slots[0], &slots[1]]).ok_or(NvramProblem::NoLabel)?;
    found.check()?;
    if found.size > memory.size() {
        return Err(NvramProblem::Shortened { have: memory.size(), need: found.size }.into());
    }
    Ok((found, usize::from(Label::decode(&slots[1]) == Some(found))))
}

/// The tail of a log moves, from the memory's own label: everything before it is at home. Durable on return.
pub(crate) fn move_tail(memory: &dyn Nvram, tail: u64, tid: Tid) -> Result<(), Error> {
    let (old, slot) = read_label(memory)?;
    store_label(memory, 1 - slot, &Label { tail, tid, sequence: old.sequence + 1, ..old });
    Ok(())
}

/// Gives up the transactions in a memory, whatever they are: the next mount may take it. For explicit decisions only.
///
/// # Errors
/// The memory has no label.
pub fn forget(memory: &dyn Nvram) -> Result<(), Error> {
    let (old, slot) = read_label(memory)?;
    // Nothing of another use is ever believed.
    store_label(memory, 1 - slot, &Label { epoch: old.epoch + 1, sequence: old.sequence + 1, ..old });
    Ok(())
}

/// What a memory holds, as its label has it, for people.
///
/// # Errors
/// It has no label.
pub fn describe(memory: &dyn Nvram) -> Result<Label, Error> {
    read_label(memory).map(|(label, _)| label)
}

/// True if nothing is here but, perhaps, a part of a first label that was torn.
pub(super) fn is_blank(memory: &dyn Nvram) -> bool {
    SLOTS.iter().all(|at| {
        let mut page = vec![0; 4096];
        memory.read(*at, &mut page);
        let (first, rest) = page.split_at(if *at == SLOTS[0] { label::LEN } else { 0 });
        rest.iter().all(|b| *b == 0) && label::may_be_torn(first)
    })
}
