# Two commands matter: `make demo` and `make test`. The rest is for daily work.

.PHONY: help dist demo test quick check build bench fuzz schemathesis chaos hosts arm64 pjdfstest setup clean-home

help:
	@echo "make demo    install what the machine lacks, build, and show motu at work"
	@echo "make test    the same, then every check and every test"
	@echo "make quick   build and unit tests only (daily work)"
	@echo "make dist    a static program, and an archive and a Debian package of it, in target/dist"
	@echo "make bench   the figures of SPECIFICATION.md, beside their rivals"
	@echo "make check   format, lints, licences"
	@echo "make fuzz    a longer run of every fuzz target (SECONDS=60 each)"
	@echo "make schemathesis   requests made from the API document, for longer (SECONDS=600)"
	@echo "make pjdfstest   all of pjdfstest on / and /workspace of every runtime"
	@echo "make hosts   a Debian with cgroups 2 alone, and every QEMU of Debian's suites (an hour); writes docs/hosts.md"
	@echo "make arm64   compile and link for aarch64; what is in every machine is tested under qemu-user"
	@echo "make chaos   clients that write while everything is killed (SECONDS=300)"

setup:
	@tools/room 4
	@tools/setup

build: setup
	cargo build --release -p motu

dist:
	@tools/room 8
	@tools/setup dist
	tools/dist "$$(tools/static)"

demo: build
	target/release/motu demo

test:
	@tools/room 16
	@tools/setup test
	tools/suite

quick:
	cargo nextest run --workspace --lib --bins

check:
	tools/checks

bench: build
	tools/setup bench
	MOTU_TEST_ACCEL="$$(tools/accelerator target/release/motu)" cargo run --release -p motu-benches

fuzz: setup
	tools/fuzz $(or $(SECONDS),60)

schemathesis:
	@tools/setup test
	MOTU_SCHEMATHESIS_SECONDS=$(or $(SECONDS),600) MOTU_SCHEMATHESIS_SEED=$(or $(SEED),$$RANDOM) \
	    cargo nextest run --workspace --test service --no-capture -E 'test(requests_made_from)'

pjdfstest:
	@tools/setup test
	MOTU_PJDFSTEST=all cargo nextest run --workspace --test pjdfstest

chaos:
	tools/chaos $(or $(SECONDS),300)

hosts:
	@tools/setup test
	tools/hosts/cgroup2
	tools/hosts/qemu
	tools/hosts/table

arm64:
	@tools/room 8
	@tools/setup arm64
	tools/hosts/arm64
