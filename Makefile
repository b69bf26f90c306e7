# Thin on purpose: every target is a preset (CMakePresets.json) or a script (tools/, each has --help).
.PHONY: help run test build lint asan tsan bench bench-peers fuzz clean
.DEFAULT_GOAL := help

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16
run: build  ## install, build, serve: the gateway and a simulated fleet on loopback, until Ctrl-C
	@tools/demo
test:  ## install, build, pass every test, then unit and stress tests again under the sanitizers
	@tools/setup run test && cmake --workflow --preset release && $(MAKE) --no-print-directory asan && $(MAKE) --no-print-directory tsan
build:  ## install, then build the programs alone, into out/release/bin
	@tools/setup run && cmake --preset release -DBUILD_TESTING=OFF && cmake --build --preset release
lint:  ## formatting, clang-tidy and module edges of what changed; FILES="a.cc b.h" names files instead
	@tools/setup run lint && tools/lint $(FILES)
asan:  ## unit and stress tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/setup run test && cmake --workflow --preset asan
tsan:  ## unit and stress tests under ThreadSanitizer
	@tools/setup run test && cmake --workflow --preset tsan
bench:  ## build and run the benchmarks against their bars; BENCH=regex selects, QUICK=1 takes under two minutes
	@tools/setup run bench && cmake --workflow --preset bench && tools/bench $(if $(QUICK),--quick) $(BENCH)
bench-peers:  ## a published index and ours in turn, with ratios; needs cargo and ../shared/peer_bench
	@tools/setup run bench && cmake --workflow --preset bench && tools/bench --peers $(if $(QUICK),--quick)
fuzz:  ## build and run each fuzz target for FUZZ_SECONDS (60)
	@tools/setup run test && cmake --workflow --preset fuzz && tools/fuzz
soak:  ## build, then the long tests: histories, reconnects, overload, churn; SOAK="part part" selects
	@tools/setup run test && cmake --preset release && cmake --build --preset release && tools/soak $(SOAK)
clean:  ## remove everything that was built
	rm -rf out build
