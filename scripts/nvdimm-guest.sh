#!/bin/bash
# A journal in the persistent memory of a virtual machine: scripts/nvdimm-guest.sh [SECONDS] [ROUNDS]
#
# Boots Debian's kernel in QEMU with an NVDIMM and a disk, mounts the disk with `quire mount -o profile=djfs,nvram=...` (real MAP_SYNC: first a
# file on ext4 -o dax, then /dev/dax0.0), lets a bank of four SQLite processes work on it, kills the whole machine in mid-flight, boots it again, and
# there: the kernel must refuse the disk, `quire recover --nvram` recovers it, `e2fsck -fn` is clean, and every acknowledged transfer is found.
# QEMU's end loses nothing that the guest stored; what a loss of power does to stores that no fence has followed is the simulator's business.
# Needs apt-get (qemu-system-x86, and a kernel, which is only unpacked); where KVM works it takes a minute, else, emulated, some.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
source scripts/guest.sh
seconds=${1:-5} rounds=${2:-1}
[ -x "$LAB" ] || die "no $LAB: run make first"
needs qemu-system-x86_64:qemu-system-x86 cpio:cpio depmod:kmod strip:binutils
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-guest.XXXXXX") qemu=''
cleanup() {
	local code=$?
	[ -z "$qemu" ] || kill -9 "$qemu" 2>/dev/null || true
	[ "$code" = 0 ] || { say "failed; the guest's last words:"; tail -n 30 "$work"/console* 2>/dev/null || true; }
	[ -n "${KEEP:-}" ] || rm -rf --one-file-system "$work"
	exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# --- the guest: Debian's cloud kernel, busybox, what we built, and the judges -------------------------------------------------------

guest_packages ndctl libndctl6 libdaxctl1 libkmod2 libiniparser1
root=$work/root
mkdir -p "$root"/{bin,dev,proc,sys,tmp,run,mnt,pm,acks,etc,lib64,"lib/modules/$version"}
cp "$packages/bin/busybox" "$root/bin/busybox"
guest_modules "$root/lib/modules/$version" nfit nd_pmem dax_pmem device_dax virtio_pci virtio_blk ext4 fuse crc32c_intel crc32c_generic
add() { # PROGRAM...: and the libraries that it is linked with
	local program library
	for program in "$@"; do
		cp "$program" "$root/bin/"
		for library in $(LD_LIBRARY_PATH=$packages/usr/lib/x86_64-linux-gnu:$packages/lib/x86_64-linux-gnu ldd "$program" | grep -o '/[^ ]*\.so[^ ]*'); do
			mkdir -p "$root$(dirname "${library#"$packages"}")"
			cp -L "$library" "$root${library#"$packages"}"
		done
	done
}
add "$QUIRE" "$LAB" "$(command -v mke2fs)" "$(command -v e2fsck)" "$packages/usr/bin/ndctl"
strip "$root/bin/quire" "$root/bin/quire-lab" 2>/dev/null || true

cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mkdir /bb; /bin/busybox --install -s /bb
export PATH=/bin:/bb LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu:/lib/x86_64-linux-gnu HOME=/
echo "guest: up"
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
ln -s /proc/self/mounts /etc/mtab
cd "/lib/modules/$(uname -r)"; while read -r m; do insmod "$m" 2>/dev/null; done <list; cd /
dmesg -n 1
for o in $(cat /proc/cmdline); do case $o in step=*|memory=*|seconds=*) export "$o";; esac; done
end() { echo "guest: $*"; sync; poweroff -f; }
fail() { dmesg | tail -n 12; end "FAILED: $*"; }
clean() {
	e2fsck -fn /dev/vda >/tmp/fsck 2>&1 || { cat /tmp/fsck; fail "e2fsck $*"; }
	echo "e2fsck -fn, $*: $(tail -n 1 /tmp/fsck)"
}
for i in $(seq 100); do [ -b /dev/vda ] && [ -e /dev/pmem0 -o -e /dev/dax0.0 ] && break; sleep 0.1; done
[ -b /dev/vda ] || fail "no disk"

case $memory in
fsdax)
	[ $step = recover ] || ndctl create-namespace -f -e namespace0.0 -m fsdax >/dev/null || fail "ndctl"
	[ -b /dev/pmem0 ] || fail "no /dev/pmem0"
	quire mount /dev/vda /mnt -o profile=djfs,nvram=/dev/pmem0 2>/tmp/said && fail "a block device cannot be mapped"
	grep -o 'MAP_SYNC is refused.*' /tmp/said || { cat /tmp/said; fail "/dev/pmem0 should be refused by name"; }
	[ $step = recover ] || /bin/mke2fs -q -F -t ext4 -b 4096 /dev/pmem0 || fail "mke2fs on the NVDIMM"
	mount -t ext4 -o dax /dev/pmem0 /pm || fail "ext4 -o dax"
	nvram=/pm/journal
	[ $step = recover ] || { fallocate -l 128M $nvram && dd if=/dev/zero of=$nvram bs=1M count=128 conv=notrunc,fsync 2>/dev/null; } || fail "no room" ;;
devdax)
	[ -c /dev/dax0.0 ] || ndctl create-namespace -f -e namespace0.0 -m devdax >/dev/null || fail "ndctl"
	nvram=/dev/dax0.0
	[ -c $nvram ] || fail "no /dev/dax0.0" ;;
esac
mount -t ext4 -o sync /dev/vdb /acks || fail "no disk for what is acknowledged"

case $step in
work)
	quire mount /dev/vda /mnt -o profile=djfs,nvram=$nvram || fail "quire mount"
	grep /mnt /proc/mounts
	for mode in wal delete; do
		mkdir -p /mnt/$mode /acks/$mode
		quire-lab bank create --dir /mnt/$mode --log /acks/$mode --journal $mode || fail "bank create"
		for w in 0 1; do quire-lab work bank --dir /mnt/$mode --log /acks/$mode --worker $w --seed $w$seconds --seconds 600 & done
	done
	echo "guest: working"
	wait
	fail "the bank stopped by itself" ;;
recover)
	echo "guest: acknowledged $(cat /acks/*/bank-* | wc -l)"
	if mount -t ext4 /dev/vda /tmp 2>/dev/null; then fail "the kernel mounted an image whose journal is in NVRAM"; fi
	e2fsck -fn /dev/vda >/tmp/fsck 2>&1 && fail "e2fsck took an unrecovered image for whole"
	quire recover --nvram $nvram /dev/vda 2>/tmp/said # 1: recovered, as fsck
	[ $? = 1 ] || { cat /tmp/said; fail "quire recover"; }
	clean "after recovery"
	quire mount /dev/vda /mnt -o profile=djfs,nvram=$nvram || fail "quire mount after recovery"
	for mode in wal delete; do quire-lab bank check --dir /mnt/$mode --log /acks/$mode || fail "bank check"; done
	echo "guest: $(quire stats /mnt | grep -i -E 'nvram|memory' | head -3)"
	quire umount /mnt || fail "quire umount"
	clean "after the unmount"
	end "all found" ;;
esac
INIT
chmod +x "$root/init"
guest_initrd "$root" "$work/initrd"

# --- the host: boot, kill, boot again -----------------------------------------------------------------------------------------------

boot() { # STEP MEMORY -> its console in $work/console.STEP
	qemu-system-x86_64 -machine "q35,nvdimm=on,accel=$accel" -cpu "$cpu" -smp 2 -m 1G,slots=2,maxmem=4G -nographic -no-reboot -nodefaults \
		-kernel "$packages/boot/vmlinuz-$version" -initrd "$work/initrd" -append "console=ttyS0 quiet panic=-1 step=$1 memory=$2 seconds=$seconds" -serial stdio \
		-object "memory-backend-file,id=nv,share=on,mem-path=$work/nvdimm,size=256M" -device nvdimm,id=nvdimm0,memdev=nv \
		-drive "file=$work/disk,format=raw,if=virtio,cache=writeback" -drive "file=$work/acks,format=raw,if=virtio,cache=writethrough" \
		</dev/null >"$work/console.$1" 2>&1 &
	qemu=$!
	disown # or bash reports its death
}
gone() { # waits for its end
	while kill -0 "$qemu" 2>/dev/null; do sleep 0.1; done
	qemu=''
}
destroy() { kill -9 "$qemu" 2>/dev/null || true; gone; }
heard() { # STEP PATTERN LIMIT: waits until the guest says it
	local until=$((SECONDS + $3))
	until grep -qE "$2" "$work/console.$1"; do
		grep -q 'guest: FAILED' "$work/console.$1" && die "$(grep 'guest: FAILED' "$work/console.$1")"
		kill -0 "$qemu" 2>/dev/null || die "the guest ended before it said '$2'"
		[ $SECONDS -lt $until ] || die "the guest did not say '$2' in $3 s"
		sleep 0.2
	done
}

guest_accelerator "$work"
say "QEMU $(qemu-system-x86_64 --version | grep -oE '[0-9]+\.[0-9.]+' | head -1), accelerator $accel, guest $version"

for round in $(seq "$rounds"); do
	for memory in fsdax devdax; do
		truncate -s 0 "$work/nvdimm" "$work/disk" "$work/acks"
		truncate -s 256M "$work/nvdimm"
		mke2fs -q -F -t ext4 "$work/disk" 512M
		mke2fs -q -F -t ext4 "$work/acks" 64M
		say "== round $round, $memory: boot, mount with the journal in NVRAM, four SQLite processes"
		boot work $memory
		heard work 'guest: working' 300
		grep ' /mnt ' "$work/console.work" | sed 's/^/    /'
		sleep "$seconds.$((RANDOM % 10))"
		! grep -q 'guest: FAILED' "$work/console.work" || die "$(grep 'guest: FAILED' "$work/console.work")"
		say "   the machine is killed (SIGKILL), and booted again"
		destroy
		boot recover $memory
		heard recover 'guest: all found' 300
		gone
		sed -n '/guest: acknowledged/,$p' "$work/console.recover" | tr -d '\r' | grep -v 'reboot:' | sed 's/^/    /'
	done
done
say "The journal in a guest's NVDIMM: killed with the machine $rounds time(s) on a DAX file and $rounds on a DAX device; nothing lost."
