# Two commands matter: `make demo` and `make test`. The rest is for daily work.

.PHONY: help dist demo test quick check build bench fuzz fuzz-keep programs conformance mutants schemathesis chaos hosts arm64 pjdfstest setup fresh peers clean-home

help:
	@echo "make demo    install what the machine lacks, build, and show motu at work"
	@echo "make test    the same, then every check and every test"
	@echo "make quick   build and unit tests only (daily work)"
	@echo "make dist    a static program, and an archive and a Debian package of it, in target/dist"
	@echo "make bench   the figures of SPECIFICATION.md, beside their rivals"
	@echo "make check   format, lints, licences"
	@echo "make fuzz    invented inputs for every parser of foreign bytes (SECONDS=60 each)"
	@echo "make fuzz-keep   puts the best of what that found into crates/fuzzed/corpus"
	@echo "make programs   real servers, compilers and package managers on every runtime (half an hour)"
	@echo "make conformance   every check of every runtime, each on a machine of its own"
	@echo "make mutants   is a changed program noticed? (SAMPLE=200 changes, hours)"
	@echo "make schemathesis   requests made from the API document, for longer (SECONDS=600)"
	@echo "make pjdfstest   all of pjdfstest on / and /workspace of every runtime"
	@echo "make hosts   a Debian with cgroups 2 alone, and every QEMU of Debian's suites (an hour); writes docs/hosts.md"
	@echo "make peers   other people's clients and their own tests, unmodified, against a daemon of ours (the network is needed)"
	@echo "make arm64   compile and link for aarch64; what is in every machine is tested under qemu-user"
	@echo "make fresh   everything that tools/setup test gets, on a minimal Debian, downloaded and built there"
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
	tools/suite

quick:
	@tools/setup quick
	PATH="$$(tools/path)" cargo nextest run --workspace --lib --bins

check:
	@tools/setup test
	tools/checks

# Both at once: alone, the benchmarks would ask other features of the crates that they share with motu, and compile them again.
bench:
	@tools/room 4
	@tools/setup
	@tools/setup bench
	cargo build --release -p motu -p motu-benches
	MOTU_TEST_ACCEL="$$(tools/accelerator target/release/motu)" target/release/motu-benches

fuzz:
	@tools/setup fuzz
	tools/fuzz $(or $(SECONDS),60)

programs conformance:
	@tools/setup test
	tools/long $@

mutants:
	@tools/setup test
	@tools/setup mutants
	tools/mutants $(or $(SAMPLE),200)

fuzz-keep:
	@tools/setup fuzz
	tools/fuzz keep

schemathesis:
	@tools/setup test
	MOTU_SCHEMATHESIS_SECONDS=$(or $(SECONDS),600) MOTU_SCHEMATHESIS_SEED=$(or $(SEED),$$RANDOM) \
	    PATH="$$(tools/path)" cargo nextest run --workspace --test stories --no-capture -E 'test(requests_made_from)'

pjdfstest:
	@tools/setup test
	MOTU_PJDFSTEST=all PATH="$$(tools/path)" cargo nextest run --workspace --profile programs --test machines -E 'test(/^pjdfstest::/)'

fresh:
	@tools/setup
	tools/fresh --cold

chaos:
	tools/chaos $(or $(SECONDS),300)

hosts:
	@tools/setup test
	tools/long hosts
	tools/hosts/cgroup2
	tools/hosts/qemu
	tools/hosts/table

peers:
	@tools/setup
	cargo build --release -p motu
	tools/peers/wrenn target/release/motu
	tools/peers/pyro target/release/motu

arm64:
	@tools/room 8
	@tools/setup arm64
	tools/hosts/arm64
