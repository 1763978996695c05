#!/bin/bash
# The laboratory: the papers' experiments in a short form, or with FULL=1 as the papers have them: scripts/lab.sh [STUDY...]. See docs/lab.md.
# Studies in virtual time run anywhere; sqlite and latency need root. The last lines say how many claims are held.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
scripts/setup.sh
[ -x "$LAB" ] || die "no $LAB: run make first"
out=$(mktemp); trap 'rm -f "$out"' EXIT

full() { [ -n "${FULL:-}" ]; }
study() {
	case $1 in
		okeanos) "$LAB" okeanos ${FULL:+--full} ;;
		fileserver) "$LAB" fileserver --seconds "$(full && echo 60 || echo 20)" ;;
		isolation)
			"$LAB" isolation --device ssd --rate 200 --seconds "$(full && echo 60 || echo 10)"
			"$LAB" isolation --device hdd7200 --rate 50 --seconds "$(full && echo 60 || echo 10)"
			[ "$(id -u)" = 0 ] || { say "skipped isolation on mounts: needs root"; return; }
			"$LAB" isolation --device ssd --mounter kernel:data=ordered --mounter quire ;;
		joj)
			if full; then "$LAB" sqlite --virtual --device intel311 --device emmc --figure4
			else "$LAB" sqlite --virtual --device intel311 --device emmc --rounds 1 --small 2000 --figure4; fi ;;
		sqlite)
			[ "$(id -u)" = 0 ] || { say "skipped sqlite: needs root"; return; }
			for device in own ssd; do
				if full; then "$LAB" sqlite --device $device --rounds 5 --figure4
				else "$LAB" sqlite --device $device --rounds 3 --small 100 --large 3000 --figure4; fi
			done ;;
		latency)
			[ "$(id -u)" = 0 ] || { say "skipped latency: needs root"; return; }
			"$LAB" latency --rounds "$(full && echo 5 || echo 3)" ;;
		randwrite)
			if full; then "$LAB" randwrite --files 2048 --seconds 20
			else "$LAB" randwrite --files 256 --seconds 2 --journal-mib 32; fi ;;
		table1)
			for grain in statement transaction; do
				if full; then "$LAB" table1 --grain $grain
				else "$LAB" table1 --grain $grain --warehouses 1 --divide 4 --transactions 2000 --on-devices 100 --journal-mib 32; fi
			done ;;
		figure8)
			for grain in statement transaction; do
				if full; then "$LAB" figure8 --grain $grain --in-memory
				else "$LAB" figure8 --grain $grain --in-memory --warehouses 1 --divide 4 --transactions 2000 --on-devices 100; fi
			done ;;
		figure9)
			if full; then "$LAB" figure9 --grain statement
			else "$LAB" figure9 --grain statement --warehouses 1 --divide 4 --transactions 2000 --on-devices 100; fi ;;
		figure10)
			if full; then "$LAB" figure10 --grain statement
			else "$LAB" figure10 --grain statement --warehouses 1 --divide 4 --transactions 1000; fi ;;
		*) die "$1: want okeanos, fileserver, isolation, joj, sqlite, latency, randwrite, table1, figure8, figure9 or figure10" ;;
	esac
}

[ $# -gt 0 ] || set -- okeanos fileserver isolation joj sqlite latency randwrite table1 figure8 figure9 figure10
for name in "$@"; do
	say "=== $name"
	study "$name" | tee -a "$out"
done
say
say "=== claims"
grep -hE '^  (held|not held): ' "$out" || true
say "$(grep -cE '^  held: ' "$out" || true) held, $(grep -cE '^  not held: ' "$out" || true) not held"
