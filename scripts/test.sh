#!/bin/bash
# Every test, as root or as an ordinary user. What cannot run here is skipped by name and counted. The last line is
# "N passed, N failed, N skipped".
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
scripts/setup.sh --tools
out=$TARGET/test
mkdir -p "$out"

# 1. cargo test: unit, property and integration tests. A test that cannot run prints "skipped: NAME: WHY" and returns.
say "== cargo test"
status=0
cargo test --workspace --no-fail-fast -- --show-output >"$out/cargo.log" 2>&1 || status=$?
cargo test -p quire-device --features shuttle --test gate_shuttle -- --show-output >>"$out/cargo.log" 2>&1 || status=$?
cargo test -p quire-sim --features mutants --test mutants -- --show-output >>"$out/cargo.log" 2>&1 || status=$?
awk '
	/^ +Running |^ +Doc-tests / { sub(/^ +(Running )?/, ""); sub(/ \(.*\/(deps\/)?/, " ("); suite = $0 }
	/^test .* \.\.\. (FAILED|ignored)/ { print "   " $0 }
	/^[Ss][Kk][Ii][Pp][Pp][Ee][Dd]:? / { print "   " $0 }
	/^test result:/ && $4 + $6 + $8 > 0 { print suite ": " $4 " passed, " $6 " failed" }
	/^error/ { print }' "$out/cargo.log"
[ $status = 0 ] || { say "-- the end of $out/cargo.log:"; tail -n 200 "$out/cargo.log"; }
read -r passed failed skipped < <(awk '
	/^test result:/ { passed += $4; failed += $6; skipped += $8 }
	/^[Ss][Kk][Ii][Pp][Pp][Ee][Dd]:? / { passed--; skipped++ }
	END { print passed + 0, failed + 0, skipped + 0 }' "$out/cargo.log")
[ $status = 0 ] || [ "$failed" -gt 0 ] || failed=1 # it did not compile, or was killed

say
say "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
