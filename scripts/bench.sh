#!/bin/bash
# Speed against the kernel's ext4 and fuse2fs on one loop device. Needs root.
#   scripts/bench.sh [options of quire-lab bench]             single streams, trees, unmount
#   scripts/bench.sh clients [options of quire-lab clients]   many clients, databases, git, tar
# Without arguments both run.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
if [ $# = 0 ] || [ "$1" = clients ]; then scripts/setup.sh --bench; else scripts/setup.sh; fi
[ -x "$LAB" ] || die "no $LAB: run make first"
[ $# = 0 ] || [ "$1" = clients ] || exec "$LAB" bench "$@"
[ $# != 0 ] || "$LAB" bench
[ $# = 0 ] || shift
exec "$LAB" clients "$@"
