#!/bin/bash
# The acceptance tests with the built command: scripts/accept.sh [NAME...]. SEED, FULL=1, KEEP=1 and MOUNTERS="..." vary them.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
scripts/setup.sh --tools
[ -x "$LAB" ] || die "no $LAB: run make first"

options=(--seed "${SEED:-1}")
[ -z "${FULL:-}" ] || options+=(--full)
[ -z "${KEEP:-}" ] || options+=(--keep)
for mounter in ${MOUNTERS:-}; do options+=(--mounter "$mounter"); done
exec "$LAB" accept "${options[@]}" "$@"
