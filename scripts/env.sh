# Sourced by every script: where things are, and how to say what happens.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
export PATH="$TARGET/tools/bin:$PATH:${HOME:-/root}/.cargo/bin:/usr/local/sbin:/usr/sbin:/sbin"
cd "$ROOT"

have() { command -v "$1" >/dev/null 2>&1; }
say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

needs() { # COMMAND:PACKAGE...: installs what is missing
	local need
	for need in "$@"; do
		have "${need%:*}" && continue
		have apt-get || die "this script knows Debian's packages only"
		[ "$(id -u)" = 0 ] || die "${need%:*} is missing: install ${need#*:}"
		say "installing ${need#*:}"
		DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${need#*:}" >/dev/null || die "${need#*:} cannot be installed"
	done
}

# Tests under explored interleavings of threads (feature shuttle of quire-device), and the broken engines that they must find.
interleavings() {
	cargo test -p quire-device -p quire-testkit -p quire-journal -p quire-fs -p quire-sim --test gate_shuttle --test interleavings --test writers --features \
		quire-device/shuttle,quire-testkit/shuttle,quire-journal/shuttle,quire-journal/mutants,quire-fs/shuttle,quire-fs/mutants,quire-sim/shuttle,quire-sim/mutants "$@" &&
		cargo test -p quire-mount --lib --features shuttle,mutants "$@" in_hand::
}

# The release binaries. The command is built by itself: cargo gives packages that are built together the union of their
# features, and the lab's locks serve threads in virtual time.
build_release() {
	cargo build --release -p quire-cli --bins "$@" && cargo build --release -p quire-lab --bins "$@"
}

# The two binaries that scripts use; a test of another build sets them.
QUIRE=${QUIRE:-$TARGET/release/quire}
LAB=${LAB:-$TARGET/release/quire-lab}
export QUIRE LAB
