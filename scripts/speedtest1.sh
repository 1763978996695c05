#!/bin/bash
# SQLite's own speedtest1 over libquire_vfs.so, in each journal mode: its results must be those of the same run on the
# host's file system, and e2fsck finds nothing in the image. Needs a C compiler and, once, Debian's sources of SQLite.
#   scripts/speedtest1.sh [SIZE]      SIZE: speedtest1's --size, 20 if not given
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
size=${1:-20} work=$TARGET/speedtest1
vfs=${VFS_LIBRARY:-$TARGET/library/libquire_vfs.so}
[ -e "$vfs" ] || die "no $vfs: run make lib first, or set VFS_LIBRARY"
mkdir -p "$work"

# speedtest1.c, from Debian's sources: by a list of its own, so that the system's stay as they are.
fetch() {
	local apt=$work/apt
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
	# shellcheck disable=SC1091
	echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $(. /etc/os-release && echo "$VERSION_CODENAME") main" >"$apt/list"
	local options=(-o "Dir::Etc::sourcelist=$apt/list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root)
	apt-get -qq "${options[@]}" update
	(cd "$apt" && apt-get -qq "${options[@]}" source --download-only sqlite3)
	tar -C "$work" --strip-components=2 --wildcards -xJf "$apt"/sqlite3_*.orig.tar.xz '*/test/speedtest1.c'
}
[ -e "$work/speedtest1.c" ] || fetch

# The SQLite that the tests use, with atomic updates, and a main that loads the library first.
bundled=$(cargo metadata --format-version 1 --filter-platform "$(rustc -vV | sed -n "s/^host: //p")" | grep -o '"[^"]*libsqlite3-sys-[^"]*/Cargo.toml"' | head -n 1 | tr -d '"')
sqlite=$(dirname "$bundled")/sqlite3
cat >"$work/main.c" <<'C'
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>
int speedtest1(int, char **);
int main(int n, char **args) {
	sqlite3 *db;
	char *error = 0;
	if (sqlite3_open(":memory:", &db) || sqlite3_enable_load_extension(db, 1) ||
	    (getenv("VFS") && sqlite3_load_extension(db, getenv("VFS"), 0, &error))) {
		fprintf(stderr, "cannot load the VFS: %s\n", error ? error : sqlite3_errmsg(db));
		return 1;
	}
	int result = speedtest1(n, args);
	sqlite3_close(db);
	return result;
}
C
if [ ! -x "$work/speedtest1" ] || [ "$sqlite/sqlite3.c" -nt "$work/speedtest1" ]; then
	flags=(-O2 -I "$sqlite" -DSQLITE_ENABLE_RTREE -DSQLITE_ENABLE_BATCH_ATOMIC_WRITE -DSQLITE_THREADSAFE=1)
	[ -e "$work/sqlite3.o" ] || cc "${flags[@]}" -c -o "$work/sqlite3.o" "$sqlite/sqlite3.c"
	cc "${flags[@]}" -Dmain=speedtest1 -c -o "$work/speedtest1.o" "$work/speedtest1.c"
	cc "${flags[@]}" -o "$work/speedtest1" "$work/main.c" "$work/speedtest1.o" "$work/sqlite3.o" -ldl -lm -lpthread
fi

verdict() { grep -E 'Verification Hash|TOTAL' "$1" | tr -s ' ' | tr '\n' ' '; }
hash_of() { grep 'Verification Hash' "$1"; }
for mode in wal delete persist; do
	rm -f "$work"/host.db* "$work/image"
	"$work/speedtest1" --size "$size" --journal "$mode" --verify "$work/host.db" >"$work/host.log" || die "on the host: $work/host.log"
	truncate -s 1G "$work/image"
	mke2fs -q -F -t ext4 "$work/image"
	VFS=${vfs%.so} "$work/speedtest1" --size "$size" --journal "$mode" --verify --vfs quire "$work/image/speed.db" >"$work/image.log" ||
		die "in the image: $work/image.log"
	e2fsck -fn "$work/image" >"$work/e2fsck.log" 2>&1 || die "e2fsck: $work/e2fsck.log"
	say "$mode, host:  $(verdict "$work/host.log")"
	say "$mode, image: $(verdict "$work/image.log")"
	[ "$(hash_of "$work/host.log")" = "$(hash_of "$work/image.log")" ] || die "$mode: the results differ"
done
say "speedtest1: the same results in the image and on the host"
