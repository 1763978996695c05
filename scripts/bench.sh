#!/bin/bash
# Speed against the kernel's ext4 and fuse2fs on one loop device: scripts/bench.sh [options of quire-lab bench]. Needs root.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
scripts/setup.sh
[ -x "$LAB" ] || die "no $LAB: run make first"
exec "$LAB" bench "$@"
