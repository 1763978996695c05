#!/bin/bash
# Long randomized runs with a new seed each time, until MINUTES are over: scripts/soak.sh [MINUTES]. A failure prints its seed and
# the command that repeats it, and ends the run. Each round is: a million power losses of simulated runs (STATES= of them), in every
# configuration, each judged by e2fsck; several writers, interleavings and faults; real applications on a mount that records; and one of
# the acceptance tests in its full size, in turn. What has begun is finished, so one round is the least.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
scripts/setup.sh --tools
minutes=${1:-30} states=${STATES:-1000000}
configurations=$(cargo test --release -q -p quire-sim --test crash -- --list 2>/dev/null | grep -c ': test$')
end=$((SECONDS + minutes * 60)) seed=${SEED:-$RANDOM} runs=0
states_log=$TARGET/soak-states.log cuts_log=$TARGET/soak-powercut.log
: >"$states_log" && : >"$cuts_log"
export FULL=1 KEEP=1
acceptance=(crash fsx- tree- journal-corpus judges)

# Prints what the simulator has explored so far, all configurations together.
explored() {
	awk '/Report \{/ { for (i = 1; i < NF; i++) { k = $i; v = $(i + 1); sub(/:$/, "", k); sub(/,$/, "", v); n[k] += v } }
		END { printf "%d distinct crash states of %d (%d with lost writes, %d reordered, %d torn; %d double crashes; %d judged by e2fsck) in %d runs; at %d of %d moments every outcome\n",
			n["distinct"], n["states"], n["lost"], n["reordered"], n["torn"], n["double"], n["fsck"], n["runs"], n["exhausted"], n["moments"] }' "$states_log"
}

# Runs a part of the simulator and keeps its reports.
simulate() {
	"$@" >"$TARGET/soak-last.log" 2>&1 || die "the simulator found something: $* ($TARGET/soak-last.log)"
	grep -E 'Report \{' "$TARGET/soak-last.log" | tee -a "$states_log" || true
}

cargo test --release -p quire-sim --test crash --no-run
while [ $SECONDS -lt $end ]; do
	say "== soak: run $((runs + 1)), seed $seed, $(((end - SECONDS) / 60)) minutes left"
	export QUIRE_SIM_FIRST=$((seed * 100000)) QUIRE_SEED=$seed
	# Two of the tests explore less.
	QUIRE_SIM_FSCK=1 QUIRE_SIM_STATES=$((states / (configurations - 2) + 100)) \
		simulate cargo test --release -p quire-sim --test crash -- --nocapture
	# Disk and NVRAM at once.
	QUIRE_SIM_STATES=$((states / 11 + 100)) simulate cargo test --release -p quire-sim --test nvram -- --nocapture
	say "soak: so far $(explored)"
	[ $SECONDS -lt $end ] || break
	QUIRE_SIM_STATES=10000 QUIRE_INTERLEAVINGS=20000 simulate interleavings -- --nocapture
	QUIRE_FAULT_FIRST=$((seed * 1000)) QUIRE_FAULT_SEEDS=200 simulate cargo test --release -p quire-sim --test faults -- --nocapture
	for options in data=ordered data=journal data=auto data=overwrite,record=range,commit_mode=checksum; do
		[ $SECONDS -lt $end ] || break
		"$LAB" powercut --options "$options" --seed "$seed" --seconds 0.5 --check-seconds 90 | tee -a "$cuts_log" ||
			die "real applications lost something"
	done
	[ $SECONDS -lt $end ] || break
	tests=${acceptance[runs % ${#acceptance[@]}]}
	SEED=$seed scripts/accept.sh "$tests" || die "failed with SEED=$seed FULL=1 scripts/accept.sh $tests"
	seed=$((seed + 1)) runs=$((runs + 1))
done
cuts=$(awk '{ for (i = 1; i < NF; i++) if ($(i + 1) == "states" && $(i + 2) == "at") n += $i } END { print n + 0 }' "$cuts_log")
say "soak: $minutes minutes, no failure; simulated: $(explored); on mounts: $cuts crash images"
