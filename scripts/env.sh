# Sourced by every script: where things are, and how to say what happens.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
export PATH="$TARGET/tools/bin:$PATH:${HOME:-/root}/.cargo/bin:/usr/local/sbin:/usr/sbin:/sbin"
cd "$ROOT"

have() { command -v "$1" >/dev/null 2>&1; }
say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# The two binaries that scripts use; a test of another build sets them.
QUIRE=${QUIRE:-$TARGET/release/quire}
LAB=${LAB:-$TARGET/release/quire-lab}
export QUIRE LAB
