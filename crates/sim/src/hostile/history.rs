//! What the logs of hostile images tell of: files that come, change, and go.

use quire_fs::{Cred, New, NewKind, Volume, WriteFlags};
use quire_layout::Ino;

/// Makes files of `bytes` bytes, changes each in the middle, and deletes the second of every `group`; each step a
/// transaction.
pub(super) fn make(v: &Volume, files: u8, bytes: usize, group: u8) {
    let new = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred { uid: 0, gid: 0 } };
    for n in 0..files {
        let ino = v.create(Ino::ROOT, &[b'a' + n], &new).expect("create").ino;
        v.write(ino, 0, &vec![n; bytes], WriteFlags::default()).expect("write");
        v.fsync(ino, false).expect("fsync");
        v.write(ino, 700, b"once more", WriteFlags::default()).expect("write");
        v.fsync(ino, false).expect("fsync");
        if n % group == 1 {
            v.unlink(Ino::ROOT, &[b'a' + n]).expect("unlink");
        }
        v.forget(ino, 1);
    }
    v.maintenance().commit().expect("commit");
}
