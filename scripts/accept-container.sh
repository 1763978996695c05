#!/bin/bash
# The command inside containers: the image tools without any privilege; a mount with CAP_SYS_ADMIN; a mount in a user
# namespace of the container's own; a mount that the caller has made outside (--fd). Needs root, and installs podman, runc
# and mmdebstrap where they are missing. No registry is asked: the container's root is an empty Debian.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
[ "$(id -u)" = 0 ] || die "needs root"
[ -x "$QUIRE" ] || die "no $QUIRE: run make first"
needs podman:podman runc:runc mmdebstrap:mmdebstrap

work=$(mktemp -d "${TMPDIR:-/tmp}/quire-container.XXXXXX")
cleanup() {
	local code=$?
	trap - EXIT INT TERM
	# Not asked by stat(1), which fails on the mount of a dead daemon.
	! grep -qF " $work/outside " /proc/mounts || umount -l "$work/outside"
	rm -rf --one-file-system "$work"
	exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
root=$work/root
mmdebstrap --quiet --variant=minbase --include=e2fsprogs,fuse3 "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" >"$work/mmdebstrap.log" 2>&1 ||
	{ tail -n 20 "$work/mmdebstrap.log"; die "mmdebstrap failed"; }
install -m 755 "$QUIRE" "$root/usr/bin/quire"
mkdir -p "$root/mnt" "$work/shared"

# The limits are those that hold outside: not every host lets podman raise them.
run() { # PODMAN-OPTIONS... -- COMMAND...
	local options=()
	while [ "$1" != -- ]; do options+=("$1"); shift; done
	shift
	timeout 120 podman --runtime runc run --rm --net none --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 \
		--security-opt label=disable --security-opt apparmor=unconfined -v "$work/shared:/work" "${options[@]}" --rootfs "$root" "$@"
}
image() { rm -f "$work/shared/disk.img"; mke2fs -q -F -t ext4 -E root_owner=0:0 "$work/shared/disk.img" 64M; }
holds() { # the image is clean, and has the file
	e2fsck -fn "$work/shared/disk.img" >/dev/null 2>&1 || die "$1: e2fsck finds something"
	debugfs -R 'cat /file' "$work/shared/disk.img" 2>/dev/null | grep -qx inside || die "$1: the file is not there"
	say "passed: $1"
}
mount='quire mount /work/disk.img /mnt; echo inside >/mnt/file; quire umount /mnt'

run --cap-drop all -- sh -euc 'mkdir /tmp/t; echo inside >/tmp/t/file; quire create /work/disk.img --from /tmp/t --size min+20%
	quire ls /work/disk.img:/ | grep -qx file; quire check /work/disk.img >/dev/null; rm -r /tmp/t'
holds "image tools without any privilege"

image
run --device /dev/fuse --cap-add SYS_ADMIN -- sh -euc "$mount"
holds "a mount with CAP_SYS_ADMIN"

image
run --device /dev/fuse --security-opt seccomp=unconfined -- unshare -Urm sh -euc "$mount"
holds "a mount in a user namespace inside the container"

image
# The mount is made outside; the container gets the descriptor alone, and no right to mount.
mkdir "$work/outside"
cat >"$work/serve.py" <<'PYTHON'
import ctypes, os, sys
place, command = sys.argv[1], sys.argv[2:]
os.dup2(os.open("/dev/fuse", os.O_RDWR), 3)
os.set_inheritable(3, True)
data = b"fd=3,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"quire", place.encode(), b"fuse", 0, data):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execvp(command[0], command)
PYTHON
python3 "$work/serve.py" "$work/outside" timeout 120 podman --runtime runc run --rm --net none --ulimit nofile=1024:1024 \
	--ulimit nproc=1000:1000 --security-opt label=disable --security-opt apparmor=unconfined --cap-drop all --preserve-fds 1 \
	-v "$work/shared:/work" --rootfs "$root" quire mount -f /work/disk.img --fd 3 2>"$work/served.log" &
server=$!
# Not asked through the mount, which answers only when the container serves it.
until grep -qF " $work/outside " /proc/mounts; do
	kill -0 $server 2>/dev/null || die "the mount outside failed"
	sleep 0.1
done
timeout 100 sh -c 'echo inside >"$0/file"' "$work/outside"
umount "$work/outside"
wait $server || { cat "$work/served.log"; die "the container's daemon failed"; }
holds "a mount made outside, served by a container without privileges"
