#!/bin/bash
# Speed against the kernel's ext4 and fuse2fs on one loop device. Needs root.
#   scripts/bench.sh [options of quire-lab bench]             single streams, trees, unmount
#   scripts/bench.sh databases [options of quire-lab databases]
#                                                           PostgreSQL and MariaDB without their guards against torn
#                                                           pages; without options into bench/results/databases.json
#   scripts/bench.sh clients [options of quire-lab clients]   many clients, databases, git, tar
#   scripts/bench.sh toolbox [options of quire-lab toolbox]   images without mounting, against mke2fs -d
#   scripts/bench.sh start [options of quire-lab start]       how a mount begins and ends
#   scripts/bench.sh heuristics [options of quire-lab heuristics]
#                                                           what each heuristic brings, on and off
#   scripts/bench.sh sqlite [options of quire-lab sqlite]     SQLite on the kernel, on a mount, in its process
# Without arguments the first, clients (own disk and modelled SSD, tune=host beside the default), heuristics, toolbox and
# start run.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
if [ "${1:-}" = databases ]; then
	scripts/setup.sh --databases
	[ -x "$LAB" ] || die "no $LAB: run make first"
	shift
	[ $# = 0 ] || exec "$LAB" databases "$@"
	devices=()
	for device in ${DEVICES:-own ssd}; do devices+=(--device "$device"); done
	"$LAB" databases "${devices[@]}" --rounds "${ROUNDS:-3}" --seconds "${MEASURE_SECONDS:-300}" --save bench/results/databases.json
	exec scripts/report.py
fi
if [ $# = 0 ] || [ "$1" = clients ] || [ "$1" = heuristics ]; then scripts/setup.sh --bench; else scripts/setup.sh; fi
[ -x "$LAB" ] || die "no $LAB: run make first"
if [ "${1:-}" = sqlite ]; then
	shift
	[ $# != 0 ] || set -- --device own --device ssd --rounds 3 --small 500 --large 5000 --mounter kernel:data=ordered \
		--mounter quire --mounter quire:atomic_writes=all --mounter quire:tune=host,atomic_writes=all \
		--mounter quire:vfs --mounter quire:vfs,atomic_writes=off
	exec "$LAB" sqlite "$@"
fi
case "${1:-}" in
"")
	"$LAB" bench && "$LAB" clients && "$LAB" clients --on ssd && "$LAB" heuristics && "$LAB" toolbox &&
		exec "$LAB" start
	;;
clients | heuristics | toolbox | start) exec "$LAB" "$@" ;;
*) exec "$LAB" bench "$@" ;;
esac
