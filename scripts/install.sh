#!/bin/bash
# Installs the built command below $DESTDIR$PREFIX, or removes it again (install.sh --remove). The files are the same for
# `make install`, `make deb` and `make tarball`. Nothing is built here. BINDIR= is where the program will be, if not there.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
PREFIX=${PREFIX:-/usr/local} DESTDIR=${DESTDIR:-}
case $PREFIX in /*) ;; *) die "PREFIX=$PREFIX: an absolute path is expected" ;; esac
share=$PREFIX/share BINDIR=${BINDIR:-$PREFIX/bin}
# mount(8) looks for its helpers in /sbin only, whatever the prefix is.
helpers=/sbin
[ "$PREFIX" != /usr ] || helpers=/usr/sbin

put() { install -D -m "$1" "$2" "$DESTDIR$3" || die "cannot write $DESTDIR$3"; }

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
[ -x "$QUIRE" ] || die "$QUIRE is missing: run make first"
"$QUIRE" man "$pages"
# The prefix where the program will be.
for page in packaging/man/*.[1-8]; do sed "s|@PREFIX@|${BINDIR%/bin}|" "$page" >"$pages/${page##*/}"; done

if [ "${1:-}" = --remove ]; then
	rm -f "$DESTDIR$PREFIX/bin/quire" "$DESTDIR$helpers/mount.quire" "$DESTDIR$helpers/mount.fuse.quire" "$DESTDIR$helpers/mount.fuseblk.quire" \
		"$DESTDIR$PREFIX/lib/systemd/system/quire@.service" \
		"$DESTDIR$share/bash-completion/completions/quire" "$DESTDIR$share/zsh/vendor-completions/_quire" \
		"$DESTDIR$share/fish/vendor_completions.d/quire.fish"
	for page in "$pages"/*; do rm -f "$DESTDIR$share/man/man${page##*.}/${page##*/}.gz"; done
	rm -rf "$DESTDIR$share/doc/quire"
	say "removed from $DESTDIR$PREFIX"
	exit
fi

put 755 "$QUIRE" "$PREFIX/bin/quire"
for page in "$pages"/*; do
	gzip -9n "$page"
	put 644 "$page.gz" "$share/man/man${page##*.}/${page##*/}.gz"
done
"$QUIRE" completions bash >"$pages/bash"
"$QUIRE" completions zsh >"$pages/zsh"
"$QUIRE" completions fish >"$pages/fish"
put 644 "$pages/bash" "$share/bash-completion/completions/quire"
put 644 "$pages/zsh" "$share/zsh/vendor-completions/_quire"
put 644 "$pages/fish" "$share/fish/vendor_completions.d/quire.fish"
sed "s|@BINDIR@|$BINDIR|" packaging/quire@.service >"$pages/unit"
put 644 "$pages/unit" "$PREFIX/lib/systemd/system/quire@.service"
repository=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
put_page() { # links to files that are not installed lead to the repository
	sed -E "s,\]\((\.\./)*((crates|bench|scripts|packaging)/|CONTRIBUTING\.md),](${repository:?}/blob/HEAD/\2,g" "$1" >"$pages/page"
	put 644 "$pages/page" "$share/doc/quire/$1"
}
for doc in contrib/grafana-dashboard.json packaging/fstab.example; do put 644 "$doc" "$share/doc/quire/${doc##*/}"; done
for doc in README.md CHANGELOG.md docs/*.* docs/design/*; do put_page "$doc"; done
if mkdir -p "$DESTDIR$helpers" 2>/dev/null && [ -w "$DESTDIR$helpers" ]; then
	if [ "$helpers" = /usr/sbin ]; then target=../bin/quire; else target=$PREFIX/bin/quire; fi
	# mount(8) looks for the others when it remounts: the kernel tells these types.
	for helper in mount.quire mount.fuse.quire mount.fuseblk.quire; do ln -sf "$target" "$DESTDIR$helpers/$helper"; done
else
	say "install: $DESTDIR$helpers is closed to $(id -un): without mount.quire, mount -t quire and fstab do not work"
fi
say "installed below $DESTDIR$PREFIX"
