#!/bin/bash
# Every test, as root or as an ordinary user. What cannot run here is skipped by name and counted: the runners print it
# as ignored, with the reason. The last line is "N passed, N failed, N skipped".
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
scripts/setup.sh --tools
out=$TARGET/test
mkdir -p "$out"
part() { say "== $* (after $((SECONDS / 60)) min $((SECONDS % 60)) s)"; }

# 1. cargo test: unit, property and integration tests.
part "cargo test"
#    Unit tests that compare with the kernel's ext4 have #[ignore]; they run where the kernel can be asked.
compare=()
if [ "$(id -u)" = 0 ] && losetup --find >/dev/null 2>&1; then
	compare=(--include-ignored)
fi
#    One that hangs ends the suites after LIMIT; the log names it ("has been running for over 60 seconds").
LIMIT=60m
status=0
#    With the broken engines compiled in: a test of one turns it on for its own thread.
timeout --kill-after=1m "$LIMIT" cargo test --workspace --no-fail-fast --features quire-sim/mutants,quire-vfs/mutants,quire-fs/mutants,quire-journal/mutants \
	-- "${compare[@]}" >"$out/cargo.log" 2>&1 || status=$?
[ $status != 124 ] || say "error: cargo test did not end within $LIMIT" >>"$out/cargo.log"

# 2. Acceptance: the built command on real images, against the kernel and e2fsprogs. What runs them is as cargo test has
#    built it: it only waits and compares. It runs beside parts 3 to 5, which mostly compile (cargo locks the release and
#    the debug folder each by itself).
part "acceptance, and beside it the next three"
accept() {
	cargo build --release --quiet -p quire-cli --bins && LAB=$TARGET/debug/quire-lab scripts/accept.sh
}
# In a process group of its own, which ends with this script, whatever ends that.
set -m
accept >"$out/accept.log" 2>&1 &
acceptance=$!
set +m
trap 'kill -- -$acceptance 2>/dev/null || true' EXIT

# 3. Threads under explored interleavings.
part "interleavings of threads"
interleavings >>"$out/cargo.log" 2>&1 || status=$?
awk '
	/^ +Running |^ +Doc-tests / { sub(/^ +(Running )?/, ""); sub(/ \(.*\/(deps\/)?/, " ("); suite = $0 }
	/^test .* \.\.\. FAILED/ { print "   " $0 }
	/^test .* \.\.\. ignored/ {
		name = why = $0
		sub(/^test /, "", name); sub(/ +\.\.\. ignored.*/, "", name)
		sub(/.* \.\.\. ignored(, | \()?/, "", why); sub(/\)$/, "", why)
		print "   skipped: " name (why == "" ? "" : ": " why)
	}
	/^test result:/ && $4 + $6 + $8 > 0 { print suite ": " $4 " passed, " $6 " failed" }
	/^error/ { print }' "$out/cargo.log"
unit=$status
read -r passed failed skipped < <(awk '
	/^test result:/ { passed += $4; failed += $6; skipped += $8 }
	END { print passed + 0, failed + 0, skipped + 0 }' "$out/cargo.log")
[ $status = 0 ] || [ "$failed" -gt 0 ] || failed=1 # it did not compile, or was killed

# 4. The Python module, by pytest.
part "python"
status=0
scripts/python.sh test >"$out/python.log" 2>&1 || status=$?
grep -E '^(FAILED|ERROR|skipped:|error)' "$out/python.log" || true
read -r p f s < <(awk '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { p = $1; f = $3; s = $5 } END { print p + 0, f + 0, s + 0 }' "$out/python.log")
[ $status = 0 ] || [ "$f" -gt 0 ] || f=1
say "   $p passed, $f failed, $s skipped"
passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))

# 5. What judges clusters, by unittest: "Ran N tests", and "FAILED (failures=N, errors=N)" if some did.
part "clusters"
python3 -B scripts/clusterlib/tests.py >"$out/clusters.log" 2>&1 || true
read -r p f < <(awk '/^Ran / { n = $2 } /^FAILED/ { gsub(/[^0-9]+/, " "); for (i = 1; i <= NF; i++) f += $i } /^OK/ { ok = 1 }
	END { if (!ok && !f) f = 1; print n - f, f + 0 }' "$out/clusters.log")
[ "$f" = 0 ] || tail -n 40 "$out/clusters.log"
say "   $p passed, $f failed"
passed=$((passed + p)) failed=$((failed + f))

status=0
wait $acceptance || status=$?
part "acceptance"
cat "$out/accept.log"
read -r p f s < <(awk '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { p = $1; f = $3; s = $5 } END { print p + 0, f + 0, s + 0 }' "$out/accept.log")
[ $status = 0 ] || [ "$f" -gt 0 ] || f=1
passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))

# What failed is said last, where a reader of a long log looks first.
if [ $unit != 0 ]; then
	say "-- from $out/cargo.log:"
	awk '
		/^error(\[|:)/ || /has been running for over/ { print }
		!p && /^thread .* panicked at / { print; if (getline > 0) print } # on a thread that the test had started
		/^ +Running |^ +Doc-tests / { suite = $0 }
		/^failures:$/ { if (!shown) print suite; shown = 1; p = 1 }
		/^test result:/ { p = 0; shown = 0 }
		p' "$out/cargo.log" | tail -n 150
	say "-- failed:"
	grep -E '^test .* FAILED$' "$out/cargo.log" || true
fi
part "done"
say "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
