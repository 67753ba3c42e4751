# SPDX-License-Identifier: Apache-2.0
# The front door: everything here is a short call of Meson, Ninja or a script that can also be called alone.

BUILD = build
# More options for `meson setup`, as `make FLAGS=-Dwerror=true`.
FLAGS =

# Debian packages: what building needs, and what the tests need on top.
BUILD_PACKAGES = gcc libc6-dev meson ninja-build pkg-config libedit-dev libhwloc-dev libxxhash-dev liburing-dev
TEST_PACKAGES = $(BUILD_PACKAGES) libcmocka-dev python3 python3-numpy tar xz-utils valgrind
# A build for aarch64, and what runs it on another machine.
AARCH64_PACKAGES = gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user

DEMO_MODEL = models/strata-demo.gguf
DEMO_PROMPT = Once upon a time there was a king who had three daughters, and

.PHONY: all programs test-programs run test test-aarch64 record-instructions clean

all: programs
	@echo
	@echo 'Built: $(BUILD)/strata (try $(BUILD)/strata --help) and $(BUILD)/strata-check.'
	@echo 'Also:  make run    streams a story from the demo model, its experts read from disk'
	@echo '       make test   runs all tests'
	@echo '       make clean  removes $(BUILD)'

programs:
	@.ci/packages check $(BUILD_PACKAGES)
	@.ci/build $(BUILD) $(FLAGS)

test-programs:
	@.ci/packages install $(TEST_PACKAGES)
	@.ci/build $(BUILD) -Dtests=enabled $(FLAGS)

run:
	@.ci/packages install $(BUILD_PACKAGES)
	@.ci/build $(BUILD) $(FLAGS)
	@echo
	@echo 'The demo model has 288 experts. A fifth of their bytes fits into the arena; the others are read from'
	@echo 'disk when they are needed. It was trained on old story books and goes on with this beginning:'
	@echo
	@echo '$(DEMO_PROMPT) ...'
	@$(BUILD)/strata run -m $(DEMO_MODEL) --arena 20% -p '$(DEMO_PROMPT)' -n 200 --temp 0.7 --top-p 0.9 --seed 11

test: test-programs
	@tests/run-all $(BUILD)

# The kernels for ARM under user emulation, compared with the C kernels and with this machine.
test-aarch64: test-programs
	@.ci/packages install $(AARCH64_PACKAGES)
	@cross/build $(BUILD)-aarch64 $(FLAGS)
	@tests/emulated $(BUILD) $(BUILD)-aarch64

# After a change that costs or saves instructions on purpose: make record-instructions REASON='why'
record-instructions: test-programs
	@tests/instructions --record '$(REASON)' $(BUILD)

clean:
	rm -rf $(BUILD) $(BUILD)-aarch64 cross/aarch64-linux-gnu
