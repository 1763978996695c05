#!/bin/bash
# e2fsprogs' test of fuse2fs, as Debian's package has it (debian/tests/fuse2fs), with `quire` in fuse2fs's place:
# scripts/fuse2fs-debian.sh [TIMES]
#
# The test is not changed. It needs e2fsprogs' sources, which apt-get fetches by the mirror of this machine.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
times=${1:-10}
[ -x "$QUIRE" ] || die "no $QUIRE: run make first"
have apt-get || die "this script knows Debian's packages only"
scripts/setup.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-fuse2fs.XXXXXX")
cleanup() {
	local code=$?
	trap - EXIT INT TERM
	! mountpoint -q "$work/run/mnt" || umount -l "$work/run/mnt"
	rm -rf --one-file-system "$work"
	exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir -p "$work"/{apt/lists/partial,source,bin}
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
	[ ! -f "$list" ] || sed -E 's/^deb /deb-src /; s/^Types: .*/Types: deb-src/' "$list" >"$work/apt/${list##*/}"
done
mkdir "$work/apt/parts"
mv "$work"/apt/*.{list,sources} "$work/apt/parts/" 2>/dev/null || true
apt=(apt-get -q -o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$work/apt/parts" -o "Dir::State::Lists=$work/apt/lists"
	-o APT::Sandbox::User=root)
version=$(dpkg-query -W -f '${source:Version}' e2fsprogs)
{ "${apt[@]}" update && cd "$work/source" && "${apt[@]}" source --download-only "e2fsprogs=$version"; } >"$work/log" 2>&1 ||
	{ tail "$work/log"; die "the sources of e2fsprogs $version cannot be fetched"; }
tar -xf "$(ls "$work"/source/*.orig.tar.* | grep -v "\.asc$")" -C "$work/source" --strip-components=1
tar -xf "$work"/source/*.debian.tar.* -C "$work/source"
ln -s "$QUIRE" "$work/bin/fuse2fs"

for n in $(seq "$times"); do
	mkdir -p "$work/run"
	PATH=$work/bin:$PATH AUTOPKGTEST_TMP=$work/run AUTOPKGTEST_ARTIFACTS=$work/run/logs sh debian/tests/fuse2fs >"$work/log" 2>&1 ||
		{ cat "$work/log" "$work"/run/logs/*; die "time $n of $times"; }
	rm -r "$work/run"
done
say "e2fsprogs $version: debian/tests/fuse2fs passes with quire as fuse2fs, $times times"
