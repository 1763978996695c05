# Quire: build, show, test. Every target sets itself up (scripts/setup.sh); see docs/testing.md.
SHELL := /bin/bash
CARGO ?= cargo
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/local/sbin:/usr/sbin:/sbin
MINUTES ?= 30
export PREFIX ?= /usr/local
export DESTDIR ?=

.PHONY: all build setup install install-files uninstall lib install-lib wheel publish-check deb tarball demo test unit accept soak bench bench-clusters lab lint doc clean help bench-sqlite bench-databases
.DEFAULT_GOAL := build

all: build
setup:            ## install what is missing, by the system's package manager
	@scripts/setup.sh
build: setup      ## build the release binaries
	. scripts/env.sh && build_release
install: build    ## install the command, its manual and mount.quire: PREFIX=/usr/local DESTDIR=
	@scripts/install.sh
install-files:    ## install the same from a tree that is built, without cargo: sudo make install-files
	@scripts/install.sh
uninstall:        ## remove what make install and make install-lib have put below PREFIX
	@scripts/install.sh --remove
	@scripts/install-lib.sh --remove
lib: setup        ## build libquire for C, and libquire_vfs for SQLite, into target/library
	$(CARGO) build --profile library -p quire-capi
	$(CARGO) build --profile library -p quire-vfs
install-lib: lib  ## install libquire.so, libquire.a, quire.h, quire.pc and libquire_vfs.so: PREFIX=/usr/local DESTDIR=
	@scripts/install-lib.sh
wheel: setup      ## the Python module as a wheel in target/wheels
	@scripts/python.sh wheel
publish-check: setup ## build the crates of the library and of the command as crates.io would get them
	$(CARGO) publish --workspace --dry-run
deb: setup        ## a Debian package in target/package
	@scripts/package.sh deb
tarball: setup    ## a statically linked quire with its manual in target/package
	@scripts/package.sh tarball
demo: build       ## a bank on Quire, killed in mid-flight, and nothing lost (about a minute)
	@scripts/demo.sh
test: setup       ## every test: unit, integration, acceptance
	@scripts/test.sh
unit: setup       ## only what cargo test runs
	$(CARGO) test --workspace
	. scripts/env.sh && interleavings
accept: build     ## only the acceptance tests; ONLY=name picks some
	@scripts/accept.sh $(ONLY)
soak: build       ## long randomized runs: MINUTES=30
	@scripts/soak.sh $(MINUTES)
bench: build      ## speed against kernel ext4 and fuse2fs (docs/performance.md)
	@scripts/bench.sh
bench-clusters: build  ## etcd and GlusterFS on Quire and on the kernel's ext4 (docs/clusters.md): ROUNDS=5 RECORD=1
	@scripts/setup.sh --clusters
	@scripts/clusters.py bench etcd --rounds $(or $(ROUNDS),5) $(if $(RECORD),--record)
	@scripts/clusters.py bench gluster --rounds $(or $(ROUNDS),5) $(if $(RECORD),--record)
bench-sqlite: build  ## SQLite on the kernel, on a mount, and in its process (docs/databases.md)
	@scripts/bench.sh sqlite
bench-databases: build ## databases whose pages need no guard (docs/databases.md): MEASURE_SECONDS=300 ROUNDS=3 DEVICES='own ssd'
	@scripts/bench.sh databases
lab: build        ## the papers' experiments and a page of them (docs/lab.md): QUICK=1 FULL=1 ONLY='joj djfs'
	@scripts/lab.sh $(ONLY)
lint: setup       ## rustfmt, layers and names in docs, clippy and rustdoc with warnings as errors; cargo-deny when installed
	@scripts/lint.sh
doc:              ## API documentation
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
clean:            ## remove everything that was built
	$(CARGO) clean
help:             ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 16
