#!/bin/bash
# pjdfstest 0.2.2 on one mounter: scripts/pjdfstest.sh [kernel|fuse2fs|quire][:OPTIONS]
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
MOUNTERS=${1:-quire} exec scripts/accept.sh pjdfstest
