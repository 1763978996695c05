#!/bin/bash
# The acceptance tests with the built command: scripts/accept.sh [NAME...]. SEED, FULL=1, KEEP=1, JOBS=1 and
# MOUNTERS="..." vary them.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
scripts/setup.sh --tools
[ -x "$LAB" ] || die "no $LAB: run make first"

options=(--seed "${SEED:-1}")
[ -z "${FULL:-}" ] || options+=(--full)
[ -z "${KEEP:-}" ] || options+=(--keep)
[ -z "${JOBS:-}" ] || options+=(--jobs "$JOBS")
for mounter in ${MOUNTERS:-}; do options+=(--mounter "$mounter"); done
# Mounts over io_uring too, where root may allow them for the time of the tests.
uring=/sys/module/fuse/parameters/enable_uring
allow() { flock "$uring" sh -c "echo $1 >$uring"; }
if [ -w "$uring" ] && [ "$(cat "$uring")" = N ]; then
	trap 'allow N' EXIT
	trap 'exit 1' INT TERM HUP
	allow Y
fi
"$LAB" accept "${options[@]}" "$@"
