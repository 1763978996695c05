#!/bin/bash
# Long randomized runs with a new seed each time, until MINUTES are over: scripts/soak.sh [MINUTES]. A failure prints its seed and
# the command that repeats it, and ends the run. Each round is: a million distinct states that power losses of simulated runs leave
# (STATES= of them), in every configuration, each judged by e2fsck; every sequence of two calls with one profile, in turn, and its crashes;
# unmounts by SIGTERM and thaws during a freeze beside writers (ROUNDS= of each); as many (NVRAM_STATES=) of disk and NVRAM at once; several writers,
# interleavings and faults; quick studies of the laboratory twice, one paper's in turn; every damage of one kind to a tiny image, in turn; real applications on a mount that records; crashes of a
# cluster (etcd and GlusterFS in turn; root only); in the first of nine rounds Debian's root file system in images that QEMU boots, Debian's own
# test of fuse2fs, and mounts under systemd (root and apt-get only); and one of the acceptance tests in its full size, in turn. When the minutes
# are over the part that runs is finished, and no other begins: for a whole round in two hours on two CPUs, STATES=15000 NVRAM_STATES=10000
# ROUNDS=5 QUIRE_ACE_SLICE=1/20.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
scripts/setup.sh --tools
scripts/setup.sh --clusters
scripts/setup.sh --databases
minutes=${1:-30} states=${STATES:-1000000}
nvram_states=${NVRAM_STATES:-$states}
end=$((SECONDS + minutes * 60)) seed=${SEED:-$RANDOM} runs=0
states_log=$TARGET/soak-states.log nvram_log=$TARGET/soak-nvram.log cuts_log=$TARGET/soak-powercut.log other_log=$TARGET/soak-other.log
: >"$states_log" && : >"$nvram_log" && : >"$cuts_log" && : >"$other_log"
export FULL=1 KEEP=1
clusters=(etcd gluster)
papers=(okeanos rfj djfs quire)
acceptance=(crash pages memory fsx- tree- journal-corpus judges)
profiles=(auto ext4_ordered ext4_journal joj selective rfj wasteless single_io ext4_writeback)
damage=(tiny:fields tiny-ext3:flips tiny-dirty:fields tiny-plain:flips tiny-plain:fields tiny-dirty:flips tiny-ext3:fields tiny:flips)

# Prints what the simulator has explored so far, all configurations of a log together.
explored() {
	awk '/Report \{/ { for (i = 1; i < NF; i++) { k = $i; v = $(i + 1); sub(/:$/, "", k); sub(/,$/, "", v); n[k] += v } }
		END { printf "%d distinct crash states of %d (%d with lost writes, %d reordered, %d torn; %d double crashes; %d judged by e2fsck) in %d runs; at %d of %d moments every outcome\n",
			n["distinct"], n["states"], n["lost"], n["reordered"], n["torn"], n["double"], n["fsck"], n["runs"], n["exhausted"], n["moments"] }' "$1"
}

# Runs a part of the simulator and keeps its reports in a log: simulate LOG COMMAND...
simulate() {
	local log=$1
	shift
	"$@" >"$TARGET/soak-last.log" 2>&1 || die "the simulator found something: $* ($TARGET/soak-last.log)"
	grep -E 'Report \{|Sum \{|cases,|calls refused|sequences of|all there' "$TARGET/soak-last.log" | tee -a "$log" || true
}

sim() { cargo test --release -p quire-sim --test it -- --nocapture "$@"; }

cargo test --release -p quire-sim --test it --no-run
while [ $SECONDS -lt $end ]; do
	say "== soak: run $((runs + 1)), seed $seed, $(((end - SECONDS) / 60)) minutes left"
	export QUIRE_SIM_FIRST=$((seed * 100000)) QUIRE_SEED=$seed
	QUIRE_SIM_FSCK=1 QUIRE_SIM_TOTAL=$states simulate "$states_log" sim crash::
	say "soak: so far $(explored "$states_log")"
	# All sequences of two calls, with one profile after the other; ROUNDS freezes and SIGTERMs beside writers on mounts.
	profile=${profiles[runs % ${#profiles[@]}]}
	QUIRE_ACE=whole simulate "$other_log" sim --exact "ace::$profile"
	QUIRE_ROUNDS=${ROUNDS:-20} simulate "$other_log" cargo test --release -p quire-cli --test it lifecycle:: -- --nocapture
	# Disk and NVRAM at once.
	QUIRE_SIM_FSCK=8 QUIRE_SIM_TOTAL=$nvram_states simulate "$nvram_log" sim nvram::
	say "soak, NVRAM: so far $(explored "$nvram_log")"
	[ $SECONDS -lt $end ] || break
	# The laboratory's studies in virtual time find the same twice, to the byte: quick ones, one paper's in turn.
	"$LAB" run --quick --twice --results "$TARGET/soak-lab" "${papers[runs % ${#papers[@]}]}" >"$TARGET/soak-last.log" 2>&1 ||
		die "two runs of a study differ ($TARGET/soak-last.log)"
	[ $SECONDS -lt $end ] || break
	QUIRE_SIM_STATES=10000 QUIRE_INTERLEAVINGS=20000 simulate "$other_log" interleavings -- --nocapture
	QUIRE_FAULT_FIRST=$((seed * 1000)) QUIRE_FAULT_SEEDS=200 simulate "$other_log" sim faults::
	[ $SECONDS -lt $end ] || break
	# SQLite inside the process: power cuts in each journal mode, and killed processes.
	QUIRE_POWER_CUTS=500 simulate "$other_log" cargo test --release -p quire-vfs --test it power::
	QUIRE_KILLS=20 simulate "$other_log" cargo test --release -p quire-vfs --test it kill::
	[ $SECONDS -lt $end ] || break
	IFS=: read -r image sweep <<<"${damage[runs % ${#damage[@]}]}"
	say "soak: $sweep of $image"
	QUIRE_HOSTILE_BASE=$image QUIRE_HOSTILE_SWEEP=$sweep simulate "$other_log" sim hostile::damaged
	for options in data=ordered data=journal data=auto data=overwrite,record=range,commit_mode=checksum; do
		[ $SECONDS -lt $end ] || break
		"$LAB" powercut --options "$options" --seed "$seed" --seconds 0.5 --check-seconds 90 | tee -a "$cuts_log" ||
			die "real applications lost something"
	done
	[ $SECONDS -lt $end ] || break
	# A member killed, its daemon killed, its power cut. Exit code 77: a program or root is missing.
	code=0
	scripts/clusters.py crash "${clusters[runs % ${#clusters[@]}]}" --rounds 3 --seed "$seed" | tee -a "$other_log" || code=$?
	[ "$code" = 0 ] || [ "$code" = 77 ] || die "a cluster lost something"
	[ $SECONDS -lt $end ] || break
	if [ $((runs % 9)) = 0 ] && [ "$(id -u)" = 0 ] && have apt-get; then
		scripts/rootfs-guest.sh || die "an image of Debian"
		scripts/fuse2fs-debian.sh 50 || die "Debian's test of fuse2fs"
		scripts/systemd-guest.sh || die "a machine under systemd"
	fi
	tests=${acceptance[runs % ${#acceptance[@]}]}
	SEED=$seed scripts/accept.sh "$tests" || die "failed with SEED=$seed FULL=1 scripts/accept.sh $tests"
	seed=$((seed + 1)) runs=$((runs + 1))
done
cuts=$(awk '{ for (i = 1; i < NF; i++) if ($(i + 1) == "states" && $(i + 2) == "at") n += $i } END { print n + 0 }' "$cuts_log")
say "soak: $minutes minutes, no failure; simulated: $(explored "$states_log"); with NVRAM: $(explored "$nvram_log"); on mounts: $cuts crash images"
