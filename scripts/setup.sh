#!/bin/bash
# Installs what the build, the demo and the tests need, by the system's package manager. Quiet when all is there; safe to
# run again. Needs root or sudo only when something is missing.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# command : package of apt, dnf, pacman, apk
NEEDS="
cc:gcc:gcc:gcc:gcc
mke2fs:e2fsprogs:e2fsprogs:e2fsprogs:e2fsprogs
e2fsck:e2fsprogs:e2fsprogs:e2fsprogs:e2fsprogs
debugfs:e2fsprogs:e2fsprogs:e2fsprogs:e2fsprogs-extra
fusermount3:fuse3:fuse3:fuse3:fuse3
sqlite3:sqlite3:sqlite:sqlite:sqlite
setfattr:attr:attr:attr:attr
setfacl:acl:acl:acl:acl
losetup:mount:util-linux:util-linux:util-linux
"
# Peers to compare with, and what the tests of libquire and of the Python module need: skipped by name where missing.
WANTS="
fuse2fs:fuse2fs:fuse2fs:e2fsprogs:e2fsprogs-extra
pkg-config:pkg-config:pkgconf-pkg-config:pkgconf:pkgconf
python3:python3-venv:python3:python:python3
"
# What `make bench` measures with; the workloads of what is missing are skipped by name.
[ "${1:-}" != --bench ] || WANTS="$WANTS
fio:fio:fio:fio:fio
dbench:dbench:dbench:dbench:dbench
git:git:git:git:git
"
# The servers that `make soak` cuts the power under, and that `make bench` and `make bench-databases` measure.
case "${1:-}" in --bench | --databases) WANTS="$WANTS
pgbench:postgresql:postgresql-contrib:postgresql:postgresql
mariadbd:mariadb-server:mariadb-server:mariadb:mariadb
sysbench:sysbench:sysbench:sysbench:sysbench
" ;; esac

# What the laboratory's page is looked at with, and a program that it measures, which Debian alone has.
[ "${1:-}" != --lab ] || WANTS="$WANTS
chromium:chromium:chromium:chromium:chromium
postmark:postmark:::
"

# The clusters of scripts/clusters.py.
[ "${1:-}" != --clusters ] || WANTS="$WANTS
etcd:etcd-server:etcd:etcd:etcd
etcdctl:etcd-client:etcd:etcd:etcd-ctl
glusterd:glusterfs-server:glusterfs-server:glusterfs:glusterfs-server
glusterfs:glusterfs-client:glusterfs-fuse:glusterfs:glusterfs-client
fio:fio:fio:fio:fio
"

missing() { # LIST COLUMN -> the packages of what is not there and has one
	local list=$1 column=$2 line
	for line in $list; do
		have "${line%%:*}" || cut -d: -f"$column" <<<"$line"
	done | sed '/^$/d' | sort -u | tr '\n' ' '
}

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"
	elif [ -t 0 ]; then sudo "$@"
	else sudo -n "$@"
	fi
}

install() { # PACKAGES...
	if have apt-get; then
		as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >/dev/null ||
			{ as_root apt-get update >/dev/null && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >/dev/null; }
	elif have dnf; then as_root dnf install -y "$@" >/dev/null
	elif have pacman; then as_root pacman -S --needed --noconfirm "$@" >/dev/null
	elif have apk; then as_root apk add "$@" >/dev/null
	fi
}

# The packages of clusters start their services, also at every boot. What was here before keeps its service.
services=()
if [ "${1:-}" = --clusters ]; then
	have etcd || services+=(etcd)
	have glusterd || services+=(glusterd)
fi
stop_services() {
	local service
	for service in "${services[@]}"; do
		if [ -d /run/systemd/system ]; then as_root systemctl disable --quiet --now "$service" 2>/dev/null || true
		elif have service; then as_root service "$service" stop >/dev/null 2>&1 || true
		fi
	done
}

if have apt-get; then column=2; elif have dnf; then column=3; elif have pacman; then column=4; else column=5; fi
packages=$(missing "$NEEDS" $column)
wanted=$(missing "$WANTS" $column)

if [ -n "$packages$wanted" ]; then
	if [ "$(id -u)" != 0 ] && ! have sudo; then
		[ -z "$packages" ] || die "missing packages: $packages- install them as root, then run this again"
		say "setup: without $wanted- comparisons with it are skipped (install as root to have them)"
	else
		say "setup: installing $packages$wanted"
		# shellcheck disable=SC2086
		[ -z "$packages" ] || install $packages || die "cannot install: $packages- install them by hand, then run this again"
		# shellcheck disable=SC2086
		[ -z "$wanted" ] || install $wanted || say "setup: without $wanted- comparisons with it are skipped"
	fi
fi
stop_services

for line in $NEEDS; do
	have "${line%%:*}" || die "still missing: ${line%%:*} (package $(cut -d: -f$column <<<"$line"))"
done

have cargo || die "Rust is missing (1.88 or later): install it from https://rustup.rs, then run this again"

# FUSE: load the module, and give the device the mode that every distribution gives it, so that fusermount3 works for users.
if [ "$(id -u)" = 0 ]; then
	[ -e /dev/fuse ] || modprobe fuse 2>/dev/null || say "setup: no /dev/fuse; tests that mount are skipped"
	[ ! -e /dev/fuse ] || [ "$(stat -c %a /dev/fuse)" = 666 ] || chmod 666 /dev/fuse
fi

# Test suites of others, built once into target/tools.
if [ "${1:-}" = --tools ]; then
	for tool in pjdfstest:0.2.2 fsx:0.3.2; do
		name=${tool%%:*}
		[ -x "$TARGET/tools/bin/$name" ] && continue
		say "setup: building $name ${tool##*:}"
		cargo install --quiet --locked --root "$TARGET/tools" "$name" --version "${tool##*:}" ||
			say "setup: no $name; its tests are skipped"
	done
fi
