#!/bin/bash
# The Debian package under systemd: scripts/systemd-guest.sh
#
# A Debian with systemd and the package boots in QEMU with two images mounted: one by quire@data.service, one by a line of
# fstab. Files are written without an fsync; the unit is stopped, started and restarted; the machine is rebooted in order,
# and after that both images are clean and every file is there, on the host by `quire cat` and in the second boot through
# the mounts. Needs root and apt-get (mmdebstrap, qemu-system-x86, a kernel, which is only unpacked).
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
source scripts/guest.sh
[ "$(id -u)" = 0 ] || die "needs root"
[ -x "$QUIRE" ] || die "no $QUIRE: run make first"
needs mmdebstrap:mmdebstrap qemu-system-x86_64:qemu-system-x86 cpio:cpio depmod:kmod
package=$(scripts/package.sh deb | tail -n 1)
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-systemd.XXXXXX")
cleanup() {
	local code=$?
	trap - EXIT INT TERM
	[ "$code" = 0 ] || tail -n 40 "$work/console" 2>/dev/null || true
	[ -n "${KEEP:-}" ] || rm -rf --one-file-system "$work"
	exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
mkdir -p "$work"/{files,initrd}
cp "$package" "$work/files/quire.deb"

cat >"$work/files/judge" <<'JUDGE'
#!/bin/bash
# In the guest, at the end of each boot.
exec >/dev/ttyS0 2>&1 </dev/null
fail() {
	echo "guest: FAILED: $*"
	systemctl --no-pager --full status quire@data srv-table.mount | head -n 40
	systemctl poweroff
	exit 1
}
active() { systemctl is-active --quiet quire@data && mountpoint -q /srv/data && mountpoint -q /srv/table; }
active || fail "not all is mounted after the boot"
if [ ! -e /root/second ]; then
	for place in data table; do
		head -c 8M /dev/urandom >/srv/$place/random
		sha256sum </srv/$place/random >/root/$place.sum
	done
	systemctl stop quire@data || fail "the unit does not stop"
	! mountpoint -q /srv/data || fail "still mounted after the unit has stopped"
	e2fsck -fn /root/data.img || fail "not clean when the unit has stopped"
	systemctl start quire@data || fail "the unit does not start again"
	systemctl restart quire@data srv-table.mount || fail "the mounts do not restart"
	active || fail "not all is mounted after the restart"
	echo late >/srv/data/late
	echo late >/srv/table/late
	touch /root/second
	echo "guest: written"
else
	for place in data table; do
		[ "$(sha256sum </srv/$place/random)" = "$(cat /root/$place.sum)" ] || fail "$place: another file than was written"
		[ "$(cat /srv/$place/late)" = late ] || fail "$place: what was written last is not there"
	done
	echo "guest: all found"
fi
systemctl poweroff
JUDGE
cat >"$work/files/judge.service" <<'UNIT'
[Unit]
After=multi-user.target quire@data.service srv-table.mount
[Service]
Type=oneshot
ExecStart=/root/judge
[Install]
WantedBy=default.target
UNIT
cat >"$work/files/setup" <<'SETUP'
#!/bin/bash
# On the new root.
set -e
install -m 755 "$1/judge" "$2/root/judge"
install -m 644 "$1/judge.service" "$2/etc/systemd/system/judge.service"
install -m 644 "$1/quire.deb" "$2/root/quire.deb"
chroot "$2" dpkg -i /root/quire.deb
rm "$2/root/quire.deb"
mkdir -p "$2/srv/data" "$2/srv/table" "$2/etc/quire"
chroot "$2" mke2fs -q -t ext4 /root/data.img 64M
chroot "$2" mke2fs -q -t ext4 /root/table.img 64M
printf 'IMAGE=/root/data.img\nDIR=/srv/data\nOPTIONS=noatime\n' >"$2/etc/quire/data.conf"
echo '/root/table.img /srv/table quire noatime 0 0' >"$2/etc/fstab"
echo 6f1a62f43f6c4c528b5c0d6a3f1e9c01 >"$2/etc/machine-id"
systemctl --root="$2" enable quire@data judge
systemctl --root="$2" mask systemd-timesyncd.service getty@tty1.service serial-getty@ttyS0.service
SETUP
chmod +x "$work/files/setup"

say "== a Debian with systemd and ${package##*/}"
mmdebstrap --quiet --variant=minbase --include=systemd-sysv,udev,e2fsprogs,fuse3 --customize-hook="'$work/files/setup' '$work/files' \"\$1\"" \
	"$(. /etc/os-release && echo "$VERSION_CODENAME")" "$work/root.tar" >"$work/log" 2>&1 || { tail -n 20 "$work/log"; die "mmdebstrap failed"; }
"$QUIRE" create "$work/disk.img" --from "$work/root.tar" --size 1G

guest_packages
guest_accelerator "$work"
mkdir -p "$work/initrd"/{bin,dev,proc,sys,mnt}
cp "$packages/bin/busybox" "$work/initrd/bin/"
guest_modules "$work/initrd/modules" virtio_pci virtio_blk ext4 fuse loop crc32c_intel crc32c_generic
cat >"$work/initrd/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mkdir /bb; /bin/busybox --install -s /bb; export PATH=/bb
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
cd /modules; while read -r m; do insmod "$m" 2>/dev/null; done <list; cd /
for i in $(seq 100); do [ -b /dev/vda ] && break; sleep 0.1; done
mount -t ext4 /dev/vda /mnt || { echo "guest: FAILED: mount"; poweroff -f; }
umount /sys; umount /proc; mount --move /dev /mnt/dev
exec switch_root /mnt /sbin/init
INIT
chmod +x "$work/initrd/init"
guest_initrd "$work/initrd" "$work/initrd.gz"

boot() { # WORDS: until the guest says them and has powered off
	timeout "${LIMIT:-600}" qemu-system-x86_64 -machine "q35,accel=$accel" -cpu "$cpu" -smp 2 -m 1G -nographic -no-reboot -nodefaults -serial stdio \
		-kernel "$packages/boot/vmlinuz-$version" -initrd "$work/initrd.gz" -append "console=ttyS0 quiet panic=-1 systemd.log_target=console" \
		-drive "file=$work/disk.img,format=raw,if=virtio" </dev/null >"$work/console" 2>&1 || die "the guest did not end"
	grep -aq "guest: $1" "$work/console" || die "the guest did not say \"$1\""
	e2fsck -fp "$work/disk.img" >"$work/log" 2>&1 || { cat "$work/log"; die "the guest's root"; }
	local place
	for place in data table; do
		"$QUIRE" cat "$work/disk.img:/root/$place.img" >"$work/$place.img"
		e2fsck -fn "$work/$place.img" >"$work/log" 2>&1 || { cat "$work/log"; die "$place.img is not clean when the machine is off"; }
		[ "$("$QUIRE" cat "$work/$place.img:/late")" = late ] || die "$place.img does not have what was written last"
		[ "$("$QUIRE" cat "$work/$place.img:/random" | sha256sum)" = "$("$QUIRE" cat "$work/disk.img:/root/$place.sum")" ] || die "$place.img has another file"
	done
	say "   guest: $1; both images are clean and whole"
}
say "== the first boot, accelerator $accel"
boot written
say "== the second"
boot "all found"
say "Under systemd, by a unit and by fstab: stopped, started, restarted, powered off; both images clean, nothing lost."
