#!/bin/bash
# Records what InnoDB does to its transaction log, for the study okeanos-innodb: scripts/innodb-trace.sh [SECONDS]
#
# MariaDB serves 10 transactions a second of sysbench's oltp_write_only over 20 connections, once with each value of
# innodb_flush_log_at_trx_commit. strace writes down the calls to the log; crates/lab/src/studies/okeanos/innodb-log-N.trace
# gets them. Needs root (MariaDB runs as its own user), strace, sysbench and MariaDB, which are installed where missing.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
seconds=${1:-20}
[ "$(id -u)" = 0 ] || die "needs root"
scripts/setup.sh --databases
needs strace:strace
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-innodb.XXXXXX")
server=
cleanup() {
	local code=$?
	trap - EXIT INT TERM
	[ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true
	! mountpoint -q "$work/data" || umount "$work/data"
	rm -rf --one-file-system "$work"
	exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
chmod 711 "$work"
for method in 0 1 2; do
	mkdir -p "$work/data"
	# MariaDB writes its log in blocks of the disk's physical size: in the paper's time 512 bytes, as a loop device has.
	mke2fs -q -F -t ext4 "$work/disk" 512M
	mount -o loop "$work/disk" "$work/data"
	rmdir "$work/data/lost+found"
	chown mysql: "$work/data"
	mariadb-install-db --no-defaults --user=mysql --datadir="$work/data" --auth-root-authentication-method=normal >"$work/log" 2>&1 ||
		{ tail "$work/log"; die "mariadb-install-db failed"; }
	mariadbd --no-defaults --user=mysql --datadir="$work/data" --socket="$work/data/socket" --skip-networking \
		--innodb-log-file-size=64M --innodb-log-file-buffering=ON --innodb-flush-log-at-trx-commit=$method >"$work/log" 2>&1 &
	server=$!
	socket=$work/data/socket
	for _ in $(seq 100); do [ -S "$socket" ] && break; sleep 0.1; done
	mariadb --no-defaults -S "$socket" -u root -e 'create database sbtest'
	bench() { # COMMAND
		sysbench oltp_write_only --db-driver=mysql --mysql-socket="$socket" --mysql-user=root --tables=4 --table-size=10000 \
			--index-updates=10 --non-index-updates=10 --delete-inserts=5 --threads=20 --rate=10 --time=$((seconds + 4)) "$1" >>"$work/bench.log" 2>&1 ||
			{ tail "$work/bench.log"; die "sysbench failed"; }
	}
	bench prepare
	sleep 2
	bench run &
	sleep 2
	timeout "$seconds" strace -f -q -y -ttt -e trace=pwrite64,fsync,fdatasync -e status=successful -s 0 -o "$work/strace" -p "$server" || true
	wait $!
	kill "$server"
	wait "$server" || true
	server=
	{
		echo "# MariaDB's log with innodb_flush_log_at_trx_commit=$method: microseconds, call. Recorded by scripts/innodb-trace.sh."
		# A call that was interrupted by another thread's line is two lines: its beginning has what it does.
		sed -E 's/^[0-9]+ +//' "$work/strace" | grep -F ib_logfile0 | awk -v seconds="$seconds" '
			{ if (!first) first = $1; us = int(($1 - first) * 1e6) }
			/pwrite64\(/ {
				line = $0; sub(/ <unfinished.*/, "", line); sub(/\) += .*/, "", line)
				n = split(line, a, /, /); offset = a[n] + 0; len = a[n - 1] + 0
				# The first three blocks are headers, which stay where they are; what is behind begins with the least in use.
				if (offset >= 12288 && (!base || offset < base)) base = offset
				kind[++count] = "write"; at[count] = us; off[count] = offset; length_[count] = len
			}
			/(fsync|fdatasync)\(/ { kind[++count] = "flush"; at[count] = us }
			END {
				base = int(base / 4096) * 4096 - 12288
				for (i = 1; i <= count; i++)
					if (kind[i] == "write") print at[i], "write", off[i] < 12288 ? off[i] : off[i] - base, length_[i]; else print at[i], "flush"
				print seconds * 1000000, "end"
			}'
	} >"crates/lab/src/studies/okeanos/innodb-log-$method.trace"
	say "method $method: $(grep -c write "crates/lab/src/studies/okeanos/innodb-log-$method.trace") writes, $(grep -c flush "crates/lab/src/studies/okeanos/innodb-log-$method.trace") flushes"
	umount "$work/data"
done
