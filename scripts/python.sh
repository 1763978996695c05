#!/bin/bash
# python.sh wheel: the Python module as a wheel in target/wheels, by maturin.
# python.sh test [PYTEST ARGUMENTS]: its tests, with the module that cargo has built. The last line is
# "N passed, N failed, N skipped".
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
venv=$TARGET/venv
have python3 || { say "skipped: python module: no python3"; say "0 passed, 0 failed, 1 skipped"; exit 0; }

prepare() { # PACKAGES...
	[ -x "$venv/bin/python" ] || python3 -m venv "$venv" 2>/dev/null || return 1
	"$venv/bin/python" -c "import $(printf '%s,' "${imports[@]}" | sed 's/,$//')" 2>/dev/null ||
		"$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
}

case ${1:-} in
	wheel)
		imports=(maturin)
		prepare maturin || die "maturin cannot be installed"
		"$venv/bin/maturin" build --manifest-path crates/python/Cargo.toml --profile library --out "$TARGET/wheels" --quiet
		say "$(ls -t "$TARGET"/wheels/*.whl | head -n 1)"
		;;
	test)
		shift
		imports=(pytest fsspec)
		if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || ! prepare pytest fsspec; then
			say "skipped: python module: no Python 3.11, or pytest and fsspec cannot be installed"
			say "0 passed, 0 failed, 1 skipped"
			exit 0
		fi
		cargo build --quiet -p quire-python
		# The package as a wheel has it: the Python files, and the module beside them.
		package=$(mktemp -d)
		trap 'rm -rf "$package"' EXIT
		cp -r crates/python/python/quire "$package/"
		cp "$TARGET/debug/libquire_python.so" "$package/quire/_quire.abi3.so"
		mkdir -p "$package/quire-0.dist-info"
		printf '[fsspec.specs]\nquire = quire.fsspec:QuireFileSystem\n' >"$package/quire-0.dist-info/entry_points.txt"
		printf 'Metadata-Version: 2.1\nName: quire\nVersion: 0\n' >"$package/quire-0.dist-info/METADATA"
		status=0
		PYTHONPATH=$package "$venv/bin/python" -m pytest -q -p no:cacheprovider --junitxml="$package/result.xml" \
			crates/python/tests "$@" || status=$?
		"$venv/bin/python" - "$package/result.xml" <<-'PY'
			import sys, xml.etree.ElementTree as tree
			n = {k: int(tree.parse(sys.argv[1]).getroot()[0].get(k)) for k in ("tests", "failures", "errors", "skipped")}
			bad = n["failures"] + n["errors"]
			print(f"{n['tests'] - bad - n['skipped']} passed, {bad} failed, {n['skipped']} skipped")
		PY
		exit $status
		;;
	*) die "usage: python.sh wheel|test" ;;
esac
