#!/bin/bash
# The laboratory: the papers' experiments, and a page of what came out: scripts/lab.sh [PAPER or STUDY...]. See docs/lab.md.
# QUICK=1 in ten minutes, FULL=1 with the papers' sizes; AGAIN=1 also what is there; RECORD=1 into bench/results/lab.
# A run that was broken off goes on where it was. Studies in virtual time run anywhere; those on mounts need root.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
scripts/setup.sh --lab
[ -x "$LAB" ] || die "no $LAB: run make first"
effort=normal how=()
[ -z "${QUICK:-}" ] || effort=quick how=(--quick)
[ -z "${FULL:-}" ] || effort=full how=(--full)
[ -z "${AGAIN:-}" ] || how+=(--again)
results=target/lab/$effort
[ -z "${RECORD:-}" ] || results=bench/results/lab
status=0
"$LAB" run "${how[@]}" --results "$results" "$@" || status=$?
"$LAB" report --results "$results" --to target/lab/report.html ${RECORD:+--table bench/results/papers.json}
[ -z "${RECORD:-}" ] || scripts/report.py
exit $status
