#!/bin/bash
# A root file system of Debian in an image, without root: scripts/rootfs-guest.sh [TAR]
#
# mmdebstrap makes a tar (or TAR is taken). `quire create --from` makes images: of the tar and of an OCI layout as an ordinary user, of the
# unpacked directory as root, whose files those are. The layout has the tar as its first layer; umoci makes the second, with whiteouts, and
# skopeo copies both. Of each image `e2fsck -fn` finds nothing, the kernel's loop mount shows exactly what it was made of (names, types, owners,
# modes, times, links, devices, contents, attributes, capabilities), and QEMU boots it to a shell. Needs root for the loop mount, and apt-get
# (mmdebstrap, umoci, skopeo, qemu-system-x86, a kernel, which is only unpacked).
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
source scripts/guest.sh
[ -x "$QUIRE" ] || die "no $QUIRE: run make first"
[ "$(id -u)" = 0 ] || die "the kernel's loop mount needs root"
needs mmdebstrap:mmdebstrap umoci:umoci skopeo:skopeo qemu-system-x86_64:qemu-system-x86 cpio:cpio depmod:kmod getfattr:attr
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-rootfs.XXXXXX")
cleanup() {
	local code=$?
	mountpoint -q "$work/mnt" && umount "$work/mnt"
	[ "$code" = 0 ] || tail -n 20 "$work/console" 2>/dev/null || true
	[ -n "${KEEP:-}" ] || rm -rf --one-file-system "$work"
	exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
mkdir "$work"/{user,tree,mnt,initrd}
chmod 711 "$work"

tar=${1:-$work/user/root.tar}
[ $# -gt 0 ] || {
	say "== mmdebstrap"
	mmdebstrap --quiet --variant=essential bookworm "$tar"
}
cp "$QUIRE" "$work/user/quire"
[ "$tar" = "$work/user/root.tar" ] || cp "$tar" "$work/user/root.tar"
chown -R nobody: "$work/user"
tar --numeric-owner --xattrs --xattrs-include='*' --acls -xpf "$work/user/root.tar" -C "$work/tree"

say "== an OCI layout of two layers, by umoci and skopeo"
layout=$work/layout
umoci init --layout "$layout"
umoci new --image "$layout:base"
umoci raw add-layer --image "$layout:base" "$work/user/root.tar"
umoci unpack --image "$layout:base" "$work/bundle"
changed=$work/bundle/rootfs
rm "$changed/etc/issue" && rm -r "$changed/usr/share/doc/bash" "$changed/usr/share/common-licenses"
mkdir "$changed/usr/share/common-licenses" # what was a directory with files is an empty one
echo new >"$changed/etc/issue.net" && ln "$changed/etc/issue.net" "$changed/etc/issue.too"
chmod 4750 "$changed/etc/hostname" && chown 7:8 "$changed/etc/hostname"
# Layers have whole seconds.
for path in etc etc/issue.net etc/hostname usr/share usr/share/doc usr/share/common-licenses; do touch -d @1700000000 "$changed/$path"; done
umoci repack --image "$layout:changed" "$work/bundle"
skopeo copy --quiet "oci:$layout:changed" "oci:$work/user/oci:changed"
chown -R nobody: "$work/user/oci"

say "== the images: of the tar and of the layout by an ordinary user, of the directory by root"
(cd "$work" && su nobody -s /bin/bash -c "cd user && ./quire create tar.img --from root.tar --size min+50% && ./quire create oci.img --from oci --size min+50%")
"$QUIRE" create "$work/user/directory.img" --from "$work/tree" --size min+50%

list() { # DIR: all that it shows
	(cd "$1" && find . -mindepth 1 ! -path ./lost+found -printf '%P %y %m %s %n %U:%G %T@ %l\n' |
		awk '$2 == "d" { $4 = "" } { print }' | sort
	find . -type f -print0 | sort -z | xargs -0 sha256sum
	find . \( -type c -o -type b \) -exec stat -c '%n %t:%T' {} + | sort
	find . ! -path ./lost+found -print0 | sort -z | xargs -0 getfattr -h -d -m '.*' -e hex 2>/dev/null || true)
}
compare() { # IMAGE TREE: the kernel shows what it was made of
	e2fsck -fn "$1" 2>&1 | tail -n 1
	mount -o loop,ro,noload "$1" "$work/mnt"
	list "$2" >"$work/want"
	list "$work/mnt" >"$work/found"
	umount "$work/mnt"
	diff -u "$work/want" "$work/found" | head -n 20
	cmp -s "$work/want" "$work/found" || die "the kernel does not show in $1 what it was made of"
	say "   $(wc -l <"$work/want") lines, none differs"
}
say "== the kernel's mount of each against what it was made of"
compare "$work/user/tar.img" "$work/tree"
compare "$work/user/directory.img" "$work/tree"
compare "$work/user/oci.img" "$changed"

say "== QEMU boots them"
guest_packages
guest_accelerator "$work"
root=$work/initrd
mkdir -p "$root"/{bin,dev,proc,sys,mnt,modules}
cp "$packages/bin/busybox" "$root/bin/busybox"
guest_modules "$root/modules" virtio_pci virtio_blk ext4 crc32c_intel crc32c_generic
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mkdir /bb; /bin/busybox --install -s /bb; export PATH=/bb
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
cd /modules; while read -r m; do insmod "$m" 2>/dev/null; done <list; cd /
for i in $(seq 100); do [ -b /dev/vda ] && break; sleep 0.1; done
mount -t ext4 /dev/vda /mnt || { echo "guest: FAILED: mount"; poweroff -f; }
mount --move /dev /mnt/dev; mount --move /proc /mnt/proc
exec switch_root /mnt /bin/bash -c 'export PATH=/usr/sbin:/usr/bin; echo "guest: shell of Debian $(cat /etc/debian_version), $(dpkg -l | grep -c ^ii) packages"; echo written >/root/by-guest; sync; mount -o remount,ro /; echo o >/proc/sysrq-trigger; sleep 9'
INIT
chmod +x "$root/init"
guest_initrd "$root" "$work/initrd.gz"
boot() { # IMAGE
	timeout 240 qemu-system-x86_64 -machine "q35,accel=$accel" -cpu "$cpu" -m 512M -nographic -no-reboot -nodefaults \
		-kernel "$packages/boot/vmlinuz-$version" -initrd "$work/initrd.gz" -append "console=ttyS0 quiet panic=-1" -serial stdio \
		-drive "file=$1,format=raw,if=virtio" </dev/null >"$work/console" 2>&1 && grep -aq 'guest: shell' "$work/console"
}
for image in "$work"/user/{tar,directory,oci}.img; do
	boot "$image" || true
	grep -ao 'guest: shell.*' "$work/console" | tr -d '\r' || die "the guest did not come to a shell from $image"
	[ "$("$QUIRE" cat "$image:/root/by-guest")" = written ] || die "what the guest wrote is not in $image"
	e2fsck -fn "$image" 2>&1 | tail -n 1
done
say "The images of Debian's root file system, from a tar, a directory and an OCI layout: as their source, and they boot."
