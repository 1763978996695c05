#!/bin/bash
# Installs libquire, its header and its pkg-config file, and libquire_vfs.so for SQLite, below $DESTDIR$PREFIX, or
# removes them again (install-lib.sh --remove). Nothing is built here: $LIBRARY is the folder of libquire_capi.so,
# libquire_capi.a and libquire_vfs.so.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
PREFIX=${PREFIX:-/usr/local} DESTDIR=${DESTDIR:-} LIBRARY=${LIBRARY:-$TARGET/library}
case $PREFIX in /*) ;; *) die "PREFIX=$PREFIX: an absolute path is expected" ;; esac
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
lib=$DESTDIR$PREFIX/lib

if [ "${1:-}" = --remove ]; then
	rm -f "$lib/libquire.so" "$lib/libquire.so.${version%%.*}" "$lib/libquire.so.$version" "$lib/libquire.a" \
		"$lib/libquire_vfs.so" "$lib/pkgconfig/quire.pc" "$DESTDIR$PREFIX/include/quire.h"
	say "libquire is removed from $DESTDIR$PREFIX"
	exit
fi

put() { install -D -m "$1" "$2" "$3" || die "cannot write $3"; }
[ -e "$LIBRARY/libquire_capi.so" ] || die "$LIBRARY/libquire_capi.so is missing: run make lib first"
put 644 "$LIBRARY/libquire_capi.so" "$lib/libquire.so.$version"
ln -sf "libquire.so.$version" "$lib/libquire.so.${version%%.*}"
ln -sf "libquire.so.${version%%.*}" "$lib/libquire.so"
put 644 "$LIBRARY/libquire_capi.a" "$lib/libquire.a"
put 644 crates/capi/include/quire.h "$DESTDIR$PREFIX/include/quire.h"
[ ! -e "$LIBRARY/libquire_vfs.so" ] || put 644 "$LIBRARY/libquire_vfs.so" "$lib/libquire_vfs.so"
mkdir -p "$lib/pkgconfig"
sed "s|@PREFIX@|$PREFIX|; s|@VERSION@|$version|" packaging/quire.pc >"$lib/pkgconfig/quire.pc"
[ -n "$DESTDIR" ] || [ "$(id -u)" != 0 ] || ! have ldconfig || ldconfig
say "libquire is installed below $DESTDIR$PREFIX"
