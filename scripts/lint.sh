#!/bin/bash
# Style and warnings: every one is an error.
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

cargo fmt --all --check
cargo run --quiet -p quire-tidy -- --all
scripts/report.py --check
cargo clippy --workspace --all-targets --quiet -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
if have cargo-deny; then
	cargo deny --all-features check bans licenses sources
else
	say "lint: cargo-deny is not installed; licences and sources unchecked (cargo install cargo-deny)"
fi
for script in .ci/run scripts/*.sh; do bash -n "$script"; done
if have shellcheck; then shellcheck -x -P scripts .ci/run scripts/*.sh; fi
say "lint: clean"
