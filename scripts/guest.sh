# Sourced, after env.sh, by scripts that boot a virtual machine: Debian's kernel and other packages, which are only
# unpacked (below $TARGET/guest), the modules for an initial RAM disk, and QEMU.

packages=$TARGET/guest

guest_packages() { # PACKAGE...: unpacks Debian's cloud kernel, busybox and these; sets version to the kernel's
	local image package wanted=()
	image=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
	[ -n "$image" ] || die "apt knows no linux-image-cloud-amd64"
	version=${image#linux-image-}
	for package in "$image" busybox-static "$@"; do [ -e "$packages/unpacked/$package" ] || wanted+=("$package"); done
	[ ${#wanted[@]} -gt 0 ] || return 0
	say "unpacking ${wanted[*]} into ${packages#"$ROOT"/}"
	rm -rf "$packages/debs"
	mkdir -p "$packages/debs" "$packages/unpacked"
	(cd "$packages/debs" && apt-get download -q "${wanted[@]}" >/dev/null 2>&1) || die "apt-get download failed: is its package list up to date?"
	for package in "$packages"/debs/*.deb; do dpkg -x "$package" "$packages"; done
	rm -r "$packages/debs"
	for package in "${wanted[@]}"; do : >"$packages/unpacked/$package"; done
}

guest_modules() { # DIR MODULE...: copies them and what they need; DIR/list names the files in the order to load them
	local dir=$1 module
	shift
	mkdir -p "$dir"
	depmod -b "$packages" "$version"
	for module in "$@"; do
		modprobe -d "$packages" -S "$version" --show-depends "$module" 2>/dev/null | awk '$1 == "insmod" { print $2 }'
	done | awk '!seen[$0]++' | while read -r file; do
		cp "$file" "$dir/" && echo "${file##*/}" >>"$dir/list"
	done
}

guest_initrd() { # DIR FILE
	(cd "$1" && find . | cpio -o -H newc --quiet | gzip -1) >"$2"
}

# Sets accel and cpu: KVM where a guest comes up in it (in a virtual machine it may not), else emulation.
guest_accelerator() { # WORK
	local probe=$1/probe
	accel=tcg cpu=max
	[ -w /dev/kvm ] || return 0
	mkdir -p "$probe/bin" "$probe/dev"
	cp "$packages/bin/busybox" "$probe/bin/"
	printf '#!/bin/busybox sh\n/bin/busybox mount -t devtmpfs dev /dev\necho "guest: up"\n/bin/busybox poweroff -f\n' >"$probe/init"
	chmod +x "$probe/init"
	guest_initrd "$probe" "$1/probe.gz"
	if timeout 15 qemu-system-x86_64 -machine q35,accel=kvm -cpu host -m 256M -nographic -no-reboot -nodefaults -serial stdio \
		-kernel "$packages/boot/vmlinuz-$version" -initrd "$1/probe.gz" -append "console=ttyS0 quiet panic=-1" \
		</dev/null 2>/dev/null | grep -q 'guest: up'; then accel=kvm cpu=host; fi
	rm -r "$probe" "$1/probe.gz"
}
