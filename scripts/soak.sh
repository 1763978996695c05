#!/bin/bash
# Long randomized runs with a new seed each time, until MINUTES are over: scripts/soak.sh [MINUTES]. A failure prints its seed and
# the command that repeats it, and ends the run.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
scripts/setup.sh --tools
minutes=${1:-30}
end=$((SECONDS + minutes * 60)) seed=${SEED:-$RANDOM} runs=0
export FULL=1 KEEP=1
while [ $SECONDS -lt $end ]; do
	say "== soak: run $((runs + 1)), seed $seed, $(((end - SECONDS) / 60)) minutes left"
	for tests in crash fsx- tree- journal-corpus; do
		SEED=$seed scripts/accept.sh $tests || die "failed with SEED=$seed FULL=1 scripts/accept.sh $tests"
		[ $SECONDS -lt $end ] || break
	done
	# Power losses: about 100,000 states of each configuration, from seeds that no other run has.
	QUIRE_SIM_FIRST=$((seed * 10000)) QUIRE_SIM_STATES=100000 cargo test --release -p quire-sim --test crash -- --nocapture |
		tee -a "$TARGET/soak-states.log" | grep -E '^(ordered|journal|writeback)' || die "the simulator found something: $TARGET/soak-states.log"
	seed=$((seed + 1)) runs=$((runs + 1))
done
states=$(grep -oE 'distinct: [0-9]+' "$TARGET/soak-states.log" 2>/dev/null | awk '{ n += $2 } END { print n + 0 }')
say "soak: $runs runs in $minutes minutes, no failure; $states distinct crash states so far"
