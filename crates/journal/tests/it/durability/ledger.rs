//! The ledger of a run: home 0 says how many operations there were, and of each other block a kind (0: nobody's) and a
//! number that its content must have. Each operation changes it in the transaction that changes the blocks.

use quire_testkit::Image;

use super::setup::{BS, HOMES, home};

/// The block of the ledger after `ops` operations; a kind and a number for each home.
pub(crate) fn encode(ops: u32, blocks: impl Iterator<Item = (u8, u32)>) -> Vec<u8> {
    let mut out = ops.to_le_bytes().to_vec();
    for (kind, number) in blocks {
        out.push(kind);
        out.extend(number.to_le_bytes());
    }
    out.resize(BS, 0);
    out
}

/// Checks a recovered image: at least `promised` operations, and each block has the content that the ledger says, as
/// `number_of` tells.
pub(crate) fn check(image: &Image, promised: u32, number_of: impl Fn(&[u8]) -> u32) -> Result<(), String> {
    let read = |n: u64| {
        let mut buf = vec![0; BS];
        image.read(home(n).0 * BS as u64, &mut buf);
        buf
    };
    let ledger = read(0);
    let number = |at: usize| u32::from_le_bytes(ledger[at..at + 4].try_into().unwrap());
    if number(0) < promised {
        return Err(format!("operation {} is the last, {promised} was promised", number(0)));
    }
    for n in 1..HOMES {
        let at = 4 + usize::try_from(n).unwrap() * 5;
        let (is, should) = (number_of(&read(n)), number(at + 1));
        if ledger[at] != 0 && is != should {
            return Err(format!("block {n} (kind {}) is {is:#x} instead of {should:#x}", ledger[at]));
        }
    }
    Ok(())
}
