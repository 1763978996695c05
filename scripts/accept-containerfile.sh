#!/bin/bash
# packaging/Containerfile, built and run. No registry is asked: its two bases are made here, of Debian by mmdebstrap and of
# the Rust toolchain of this machine, under the names that the file has. Takes as long as a release build. Needs root, and
# installs podman, runc and mmdebstrap where they are missing.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
[ "$(id -u)" = 0 ] || die "needs root"
needs podman:podman runc:runc mmdebstrap:mmdebstrap
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-image.XXXXXX")
# A store of its own: nothing of the user's is named or removed.
pod=(podman --root "$work/store" --runroot "$work/run" --runtime runc --storage-driver vfs)
cleanup() {
	local code=$?
	trap - EXIT INT TERM
	"${pod[@]}" rmi --all --force >/dev/null 2>&1 || true
	rm -rf --one-file-system "$work"
	exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "== stand-ins for the bases"
toolchain=$(rustc --print sysroot)
base() { # IMAGE PACKAGES [HOOK]
	mmdebstrap --quiet --variant=minbase --include="$2" ${3:+"--customize-hook=$3"} bookworm "$work/base.tar" >"$work/log" 2>&1 ||
		{ tail -n 20 "$work/log"; die "mmdebstrap failed"; }
	"${pod[@]}" import --quiet "$work/base.tar" "$1" >/dev/null
	rm "$work/base.tar"
}
base docker.io/library/debian:bookworm-slim ca-certificates
# With the certificates that this machine trusts: its way to crates.io may have one of its own.
base docker.io/library/rust:1-bookworm ca-certificates,gcc,libc6-dev,make,git,pkg-config \
	"cp -L /etc/ssl/certs/ca-certificates.crt \"\$1/etc/ssl/certs/\"; cp -a '$toolchain/bin' '$toolchain/lib' '$toolchain/libexec' \"\$1/usr/local/\" 2>/dev/null || cp -a '$toolchain/bin' '$toolchain/lib' \"\$1/usr/local/\""

say "== podman build"
git archive --prefix=context/ HEAD | tar -x -C "$work"
"${pod[@]}" build --quiet --pull=never --network host --isolation chroot --build-arg "QUIRE_COMMIT=$(git rev-parse --short=12 HEAD)" -t quire \
	-f packaging/Containerfile "$work/context" >"$work/log" 2>&1 || { tail -n 40 "$work/log"; die "podman build failed"; }

say "== the image runs"
mkdir -p "$work/shared/tree"
echo inside >"$work/shared/tree/file"
run() {
	timeout 120 "${pod[@]}" run --rm --net none --pull=never \
		--ulimit nofile=1024:1024 --ulimit nproc=1000:1000 --security-opt label=disable --security-opt apparmor=unconfined \
		-v "$work/shared:/work" "$@"
}
run quire --version | head -n 1
run --cap-drop all quire create disk.img --from tree --size 64M
run --device /dev/fuse --cap-add SYS_ADMIN --entrypoint sh quire -euc 'quire mount disk.img /mnt; echo mounted >/mnt/by-mount; quire umount /mnt'
e2fsck -fn "$work/shared/disk.img"
[ "$("$QUIRE" cat "$work/shared/disk.img:/by-mount")" = mounted ] || die "what was written in the container is not there"
say "packaging/Containerfile builds, and its image makes, mounts and unmounts an image."
