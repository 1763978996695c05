//! Tests of the journal's superblock.

use super::super::format::fixtures::*;
use super::*;

#[test]
fn superblocks_of_debugfs_and_the_kernel() {
    for (log, sums, wide) in [
        (NONE, Checksums::None, false),
        (V2, Checksums::V2, true),
        (V3, Checksums::V3, true),
        (KERNEL, Checksums::V3, true),
    ] {
        let sb = JournalSuperblock::decode(log).unwrap();
        let f = sb.log_format().unwrap();
        assert_eq!((f.checksums, f.wide), (sums, wide));
        assert_eq!(
            (sb.len(), sb.first(), sb.end(), sb.start()),
            (4096, LogBlock(1), LogBlock(4096), Some(LogBlock(1)))
        );
        assert_eq!((sb.user_count(), sb.users().count(), sb.errno(), sb.version()), (1, 1, 0, 2));
        let mut again = sb.clone();
        again.seal();
        assert_eq!(again.bytes(), sb.bytes());
    }
    assert_eq!(JournalSuperblock::decode(KERNEL).unwrap().sequence(), Tid(2));
}

#[test]
fn a_new_one_with_our_features_is_what_the_kernel_would_make() {
    let theirs = JournalSuperblock::decode(V3).unwrap();
    let mut sb = JournalSuperblock::new(BlockSize::K1, 4096, LogBlock(1), theirs.uuid());
    sb.set_our_features(true);
    sb.set_start(Some(LogBlock(1)));
    sb.seal();
    assert_eq!(sb.bytes(), theirs.bytes());
}

#[test]
fn what_is_wrong_is_named() {
    let sb = JournalSuperblock::decode(V3).unwrap();
    let edit = |at: usize, v: u32, seal: bool| {
        let mut e = sb.clone();
        e.put(at, v);
        if seal {
            e.seal();
        }
        JournalSuperblock::decode(e.bytes())
    };
    assert!(edit(0x18, 9, false).unwrap_err().why.contains("checksum"));
    assert!(edit(0, 0, true).unwrap_err().why.contains("magic"));
    assert!(edit(4, 5, true).unwrap_err().why.contains("version"));
    assert!(edit(0x0C, 1025, true).unwrap_err().why.contains("block size"));
    assert!(edit(0x0C, 1 << 17, true).unwrap_err().why.contains("block size"));
    assert!(edit(0x14, 0, true).unwrap_err().why.contains("first"));
    assert!(edit(0x14, 4096, true).unwrap_err().why.contains("first"));
    assert!(edit(0x1C, 4096, true).unwrap_err().why.contains("outside"));
    assert!(edit(0x28, 0x18, true).unwrap_err().why.contains("exclude"));
    assert!(edit(0x50, 0, true).unwrap_err().why.contains("type"));
    assert!(edit(0x10, 1025, true).is_ok() && edit(0x28, 0x33, true).is_ok());
    let mut small = sb.clone();
    small.put(0x28, 0x33);
    small.put(0x54, 4000);
    small.seal();
    assert!(JournalSuperblock::decode(small.bytes()).unwrap_err().why.contains("fast-commit"));
    let unknown = edit(0x28, 0x52, true).unwrap();
    assert_eq!(unknown.log_format().unwrap_err().what, "journal feature FEATURE_I6");
    assert!(edit(0x2C, 1, true).unwrap().log_format().is_err());
    assert!(edit(0x24, 0x80, true).unwrap().log_format().is_ok(), "unknown compat bits are ignored");
    assert!(JournalSuperblock::decode(&V3[..1023]).is_err());
}

#[test]
fn quires_signature_comes_and_goes() {
    let plain = JournalSuperblock::decode(V3).unwrap();
    let mut sb = plain.clone();
    let signature = Signature::new(BlockSize::K1, 1, 5);
    sb.set_quire(Some(&signature));
    sb.seal();
    let again = JournalSuperblock::decode(sb.bytes()).unwrap();
    assert_eq!(again.quire(), Ok(Some(signature)));
    assert!(again.features().names().contains(&"quire_log".to_owned()) && again.log_format().is_ok());
    sb.set_quire(Some(&Signature { version: 7, ..signature }));
    sb.seal();
    assert!(sb.log_format().unwrap_err().what.contains("version 7"));
    sb.raw[signature::AT] = 0;
    sb.seal();
    assert!(JournalSuperblock::decode(sb.bytes()).unwrap_err().why.contains("signature"));
    sb.set_quire(None);
    sb.seal();
    assert_eq!(sb.bytes(), plain.bytes());
}

#[test]
fn version_1_has_no_features() {
    let mut raw = NONE[..SIZE].to_vec();
    put_be32(&mut raw, 4, 3);
    raw[0x24..].fill(0xFF);
    let mut sb = JournalSuperblock::decode(&raw).unwrap();
    assert_eq!((sb.version(), sb.features(), sb.fc_blocks()), (1, JournalFeatures::default(), 0));
    sb.set_our_features(false);
    sb.seal();
    let again = JournalSuperblock::decode(sb.bytes()).unwrap();
    assert_eq!((again.version(), again.log_format().unwrap().wide), (2, false));
}
