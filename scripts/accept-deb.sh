#!/bin/bash
# The Debian package in an empty Debian: built, installed, mounted by a line of fstab, the bank of `make demo` run on it and
# killed, removed, and nothing left. Needs root, mmdebstrap, and the mirror that this machine uses.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
[ "$(id -u)" = 0 ] || die "needs root"
needs mmdebstrap:mmdebstrap
package=$(scripts/package.sh deb | tail -n 1)
[ -x "$LAB" ] || cargo build --release --quiet -p quire-lab

work=$(mktemp -d "${TMPDIR:-/tmp}/quire-deb.XXXXXX")
root=$work/root
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"; }
cleanup() {
	local code=$?
	trap - EXIT INT TERM
	# The mounts inside come after those that they need.
	grep -F " $root/" /proc/mounts | cut -d' ' -f2 | sort -r | while read -r dir; do umount "$dir" || umount -l "$dir"; done
	rm -rf --one-file-system "$work"
	exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "== an empty Debian"
# What the package needs is there before, so that the lists tell what the package itself brings.
mmdebstrap --quiet --variant=minbase --include=e2fsprogs,fuse3 "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" >"$work/mmdebstrap.log" 2>&1 ||
	{ tail -n 20 "$work/mmdebstrap.log"; die "mmdebstrap failed"; }
mount -t proc proc "$root/proc"
mount --rbind --make-rslave /dev "$root/dev"
mount -t sysfs sysfs "$root/sys"
list() { # everything but what apt and dpkg note for themselves
	(cd "$root" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache -o -path ./var/log -o -path ./tmp \
		-o -path ./proc -o -path ./sys -o -path ./dev -o -path ./run \) -prune -o -print | sort)
}

say "== ${package##*/} is installed"
cp "$package" "$root/tmp/quire.deb"
cp "$LAB" "$root/tmp/quire-lab"
list >"$work/before"
inside apt-get install -y --no-install-recommends /tmp/quire.deb >"$work/apt.log" 2>&1 || { tail "$work/apt.log"; die "the package cannot be installed"; }
inside quire --version | head -n 1

say "== a line of fstab"
inside mkdir -p /srv/bank /root/log
inside mke2fs -q -t ext4 /srv/bank.img 256M
echo "/srv/bank.img /srv/bank quire noatime,nofail 0 0" >>"$root/etc/fstab"
inside mount /srv/bank
grep -F " $root/srv/bank " /proc/mounts | cut -d' ' -f3

# mount(8) remounts by the helpers of the types that the kernel tells.
for helper in mount.quire mount.fuse.quire mount.fuseblk.quire; do
	[ "$(readlink "$root/usr/sbin/$helper")" = ../bin/quire ] || die "no link $helper"
done
inside mount -o remount,strictatime,commit=7 /srv/bank
grep -F " $root/srv/bank " /proc/mounts | grep -qv noatime || die "mount -o remount changed nothing"

say "== umount(8) of an image behind a loop device returns when it is clean"
inside mkdir -p /srv/loop
inside mke2fs -q -t ext4 /srv/loop.img 64M
inside mount -t quire -o loop /srv/loop.img /srv/loop
inside sh -c 'echo x >/srv/loop/file'
inside umount /srv/loop
inside e2fsck -fn /srv/loop.img >/dev/null || die "not clean after umount"
inside rm -r /srv/loop /srv/loop.img

say "== the bank, and its daemon killed"
mkdir -p "$root/srv/bank/wal" "$root/root/log/wal"
inside /tmp/quire-lab bank create --dir /srv/bank/wal --log /root/log/wal --journal wal
inside /tmp/quire-lab work bank --dir /srv/bank/wal --log /root/log/wal --worker 0 --seed 1 --seconds 600 2>/dev/null &
worker=$!
sleep 5
image=$(stat -c %d:%i "$root/srv/bank.img")
for exe in /proc/[0-9]*/exe; do
	pid=${exe%/exe} pid=${pid#/proc/}
	[ "$(readlink "$exe" 2>/dev/null)" = "$root/usr/bin/quire" ] || continue
	for fd in /proc/"$pid"/fd/*; do
		[ "$(stat -Lc %d:%i "$fd" 2>/dev/null)" = "$image" ] && kill -9 "$pid" && say "killed the daemon" && break
	done
done
wait $worker 2>/dev/null || true
acknowledged=$(cat "$root"/root/log/wal/bank-* | wc -l)
[ "$acknowledged" -gt 10 ] || die "only $acknowledged transfers were acknowledged"
umount -l "$root/srv/bank"

say "== recovered by the next mount"
inside mount /srv/bank
inside /tmp/quire-lab bank check --dir /srv/bank/wal --log /root/log/wal
inside quire umount /srv/bank
inside e2fsck -fn /srv/bank.img

say "== removed"
sed -i '/ quire /d' "$root/etc/fstab"
inside apt-get purge -y quire >"$work/apt.log" 2>&1 || { tail "$work/apt.log"; die "the package cannot be removed"; }
rm -rf "$root/srv/bank" "$root/srv/bank.img" "$root/root/log"
list >"$work/after"
diff "$work/before" "$work/after" || die "this is left of the package"
say "nothing is left; $acknowledged transfers were acknowledged, and all of them are there"
