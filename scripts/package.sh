#!/bin/bash
# package.sh deb|tarball: builds a package of the command into target/package, and says what it is called.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
out=$TARGET/package stage=$TARGET/package/stage
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
mkdir -p "$out"
rm -rf "$stage"

deb() {
	have cargo-deb || cargo install --quiet --locked --root "$TARGET/tools" cargo-deb || die "cargo-deb cannot be built"
	cargo build --release --quiet -p quire-cli
	DESTDIR=$stage PREFIX=/usr scripts/install.sh
	strip --strip-unneeded "$stage/usr/bin/quire"
	# Debian's form of a changelog; what changed stands in NEWS.md beside it.
	mv "$stage/usr/share/doc/quire/CHANGELOG.md" "$stage/usr/share/doc/quire/NEWS.md"
	printf 'quire (%s-1) unstable; urgency=medium\n\n  * See /usr/share/doc/quire/NEWS.md.\n\n -- %s  %s\n' "$version" \
		"The Quire maintainers <maintainers@quire-fs.example>" "$(git log -1 --format=%cD 2>/dev/null || date -R)" >"$stage/changelog"
	# cargo-deb takes the files of the stage (the assets in crates/cli/Cargo.toml).
	ln -sfn "$stage" "$TARGET/stage"
	CARGO_TARGET_DIR=$TARGET cargo deb --quiet -p quire-cli --no-build --output "$out"
	say "$(ls -t "$out"/*.deb | head -n 1)"
}

musl_compiler() { # ARCH: installs it where apt-get can
	have "$1-linux-musl-gcc" && return
	{ have apt-get && [ "$(id -u)" = 0 ] && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends musl-tools >/dev/null 2>&1; } || return
	have "$1-linux-musl-gcc"
}

# A statically linked binary runs with every glibc and with musl. The flag needs an explicit target, so that it does not
# reach procedural macros.
tarball() {
	local arch target name
	arch=$(uname -m)
	target=$arch-unknown-linux-musl
	# musl needs the target, and a compiler for the C of libraries; else glibc is linked statically.
	if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ] || ! musl_compiler "$arch"; then target=$arch-unknown-linux-gnu; fi
	RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --quiet -p quire-cli --target "$target"
	name=quire-$version-linux-$arch
	QUIRE=$TARGET/$target/release/quire DESTDIR=$stage PREFIX=/$name BINDIR=/usr/local/bin scripts/install.sh
	rm -rf "$stage/sbin"
	strip "$stage/$name/bin/quire"
	cp LICENSE-MIT LICENSE-APACHE "$stage/$name/share/doc/quire/"
	tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct 2>/dev/null || echo 0)" \
		-czf "$out/$name.tar.gz" "$name"
	say "$out/$name.tar.gz"
}

case ${1:-} in
	deb) deb ;;
	tarball) tarball ;;
	*) die "usage: package.sh deb|tarball" ;;
esac
