#!/bin/bash
# The tarball on machines that have nothing of it: in a root without any library, the commands that do not mount; in the
# Debian before this one, also a mount. Needs root, mmdebstrap, busybox (unpacked), and the mirror that this machine uses.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
source scripts/guest.sh
[ "$(id -u)" = 0 ] || die "needs root"
needs mmdebstrap:mmdebstrap
tarball=$(scripts/package.sh tarball | tail -n 1)
guest_packages
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-tarball.XXXXXX")
cleanup() {
	local code=$?
	trap - EXIT INT TERM
	grep -F " $work/" /proc/mounts | cut -d' ' -f2 | sort -r | while read -r dir; do umount "$dir" || umount -l "$dir"; done
	rm -rf --one-file-system "$work"
	exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# /quire is what was unpacked.
inside() { # ROOT COMMAND
	chroot "$1" /bin/busybox env -i PATH=/quire/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root /bin/busybox sh -euc "$2"
}
unpacked() { # ROOT
	mkdir -p "$1"/{bin,tmp}
	cp "$packages/bin/busybox" "$1/bin/busybox"
	tar -xzf "$tarball" -C "$1"
	mv "$1"/quire-* "$1/quire"
}

say "== ${tarball##*/} in a root without a library"
mkdir "$work/empty"
unpacked "$work/empty"
# Making and checking an image ask mke2fs and e2fsck, which are not there; all else needs no other program.
mke2fs -q -t ext4 "$work/empty/tmp/disk.img" 64M
inside "$work/empty" '/bin/busybox echo inside >/tmp/file
	quire put /tmp/file /tmp/disk.img:/more; quire mkdir /tmp/disk.img:/dir
	quire ls /tmp/disk.img:/; quire --version | /bin/busybox head -n 1'
e2fsck -fn "$work/empty/tmp/disk.img"
[ "$("$work/empty/quire/bin/quire" cat "$work/empty/tmp/disk.img:/more")" = inside ] || die "another file than was put"

grep -q '^ExecStart=/usr/local/bin/quire ' "$work/empty/quire/lib/systemd/system/quire@.service" || die "the unit names another program"

say "== and in Debian bullseye, mounted"
mmdebstrap --quiet --variant=minbase --include=e2fsprogs bullseye "$work/old" >"$work/log" 2>&1 || { tail -n 20 "$work/log"; die "mmdebstrap failed"; }
unpacked "$work/old"
mount -t proc proc "$work/old/proc"
mount --rbind --make-rslave /dev "$work/old/dev"
cp "$work/empty/tmp/disk.img" "$work/old/tmp/disk.img"
inside "$work/old" 'quire mount /tmp/disk.img /mnt; echo mounted >/mnt/by-mount; quire umount /mnt; e2fsck -fn /tmp/disk.img'
[ "$("$QUIRE" cat "$work/old/tmp/disk.img:/by-mount")" = mounted ] || die "what was written through the mount is not there"
say "The tarball's program runs without any library, and mounts in the Debian before this one."
