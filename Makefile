# The front door. Each target installs the packages it misses and builds what it needs first.
MODEL ?= tiny
PREFIX ?= /usr/local
# Steps of each fuzz test in `make test` and in `make check-all`, and of both under sanitizers.
FUZZ_STEPS ?= 20000
FUZZ_STEPS_SANITIZED ?= 2000
FUZZ_STEPS_ALL ?= 200000
FUZZ_STEPS_ALL_SANITIZED ?= 5000
# CUDA's compiler, or nothing where there is none.
NVCC := $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))

# Builds the Python package in a tree, too, with the environment that `python` makes.
WITH_PYTHON := -DTERRACE_PYTHON=ON "-DPython_EXECUTABLE=$(CURDIR)/build/venv-bindings/bin/python"

.DEFAULT_GOAL := build
.PHONY: help packages python build demo docs check test test-release test-asan test-tsan test-cuda \
  test-engines check-all check-packages deb tarball wheel lint install uninstall format clean

help:  ## says what there is
	@sed -n 's/^\([a-z-]*\):.*  ## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24

packages:
	@tools/install-packages build

python: packages
	@tools/environments/environments.py bindings >/dev/null

build: packages  ## builds the program, build/release/bin/terrace, and the libraries
	@cmake --preset release
	@cmake --build --preset release

demo: packages  ## runs the program over real text; MODEL=smollm2 for a larger model
	@tools/build-demo
	@tools/demo $(MODEL)

docs: packages  ## builds the documentation site, build/docs/index.html
	@tools/install-packages docs
	@cmake --preset release
	@cmake --build --preset release --target terrace terraced
	@$$(tools/environments/environments.py docs) -B tools/docs/make_site.py

check: packages  ## builds and tests what changed, in minutes; says what it left out
	@tools/check

test: test-release test-asan test-tsan test-cuda  ## the tests to pass before each change
	@tools/slowest-tests release host-asan host-tsan
	@echo "left out (make check-all runs it): clang-tidy; kernels of some instruction sets, and of second"
	@echo "stages some; under sanitizers the program, its benches, the tests of engine and tuner, other"
	@echo "instruction sets, most policies, and what takes long and is the same code over and over; under"
	@echo "the thread sanitizer single-threaded tests; device code on the CPU, and compiled for more than"
	@echo "one device; long fuzzing; tests of engines"

# Kernels of instruction sets between the least and the machine's own, and second stages that share
# all but their number of bits with one that is tested, are check-all's.
LONG_IN_RELEASE := kernels_on_(avx512.*|amx)|policies_refined_by_1|indexes_refined_by_[12]
test-release: python
	@cmake --preset release $(WITH_PYTHON)
	@cmake --build --preset release --target all terrace_tests
	@TERRACE_FUZZ_STEPS=$(FUZZ_STEPS) ctest --preset release \
	  --exclude-regex '^host\.($(LONG_IN_RELEASE))$$'

# Of policies with a runtime in common, sanitizers watch some; check-all gives them all.
POLICIES_ALIKE := full|qpq|oracle|quest|infllm|sparq|infinigen|clusterkv|recent|pyramidkv|kvcrush|chelsea
ALIKE := /($(POLICIES_ALIKE))(_[a-z]*)?$$

# Other instruction sets, and comparisons that compute for minutes with code that shorter tests run,
# are check-all's.
LONG_WITH_ASAN := kernels_on_|.*MemoryNeed|rows_below_the_host|Levels/RoundedSearches
test-asan: packages
	@cmake --preset host-asan
	@cmake --build --preset host-asan --target terrace_memory_tests
	@TERRACE_FUZZ_STEPS=$(FUZZ_STEPS_SANITIZED) ctest --preset host-asan \
	  --exclude-regex '^run\.|_NOT_BUILT$$|$(ALIKE)|^host\.($(LONG_WITH_ASAN))'

# The thread sanitizer watches tests of code that runs on several threads.
test-tsan: packages
	@cmake --preset host-tsan
	@cmake --build --preset host-tsan --target terrace_concurrent_tests
	@TERRACE_FUZZ_STEPS=$(FUZZ_STEPS_SANITIZED) ctest --preset host-tsan --label-regex concurrent \
	  --exclude-regex '$(ALIKE)|rows_below_the_host|MemoryNeed'

# Device code has to compile. For all devices it is compiled, and run on the CPU, by check-all.
ALL_DEVICES := 80-real;90
test-cuda: packages
ifdef NVCC
	@cmake --preset cuda-compile -DCMAKE_CUDA_ARCHITECTURES=80-real
	@cmake --build --preset cuda-compile --target terrace_cuda_code
else
	@echo "test-cuda: no nvcc here, so device code is not compiled"
endif

lint: python  ## clang-format, clang-tidy, headers that compile alone
	@tools/install-packages lint
	@tools/environments/environments.py lint >/dev/null
	@cmake --preset tidy $(WITH_PYTHON)
	@cmake --build --preset tidy
	@ctest --preset tidy --timeout 7200  # clang-tidy is one test

# Long fuzzing is one compiler's. The sanitizers' builds have the debug assertions on. Batches in
# memory that is short are fuzzed at length with the address sanitizer, too: their faults read memory
# that is another's. It takes some minutes for 130,000 steps of members and more. The thread
# sanitizer runs what several threads run: the rest has no races to find. A device's threads are
# fibers, of which it watches each switch: there it gets few steps, three policies, not the program
# with all of them, and no test that takes minutes for one shape or length after the other.
LONG_WITH_CUDA_TSAN := DependOnHow|WhateverTheirLength|LeavesNoTokenBetween$\
  |GivesBackWhatAPromptLeft|WhenTheBudgetCovers|on_host[.]Mass[.]|MayBeKeptInPart|MayBeGivenUp$\
  |run[.]CudaBackend
POLICIES_WITHOUT_CUDA_TSAN := $(POLICIES_ALIKE)|wave|h2o|cam|pqcache_recent$\
  |pqcache_pyramidkv|pqcache_snapkv|clusterkv_per_query_head|chelsea_with_outlier_heads
check-all: python docs lint test-engines check-packages  ## everything there is, without a time limit
	@for preset in release clang host-asan; do \
	  case $$preset in \
	    release) steps=$(FUZZ_STEPS_ALL);; \
	    clang) steps=$(FUZZ_STEPS);; \
	    *) steps=$(FUZZ_STEPS_ALL_SANITIZED);; \
	  esac; \
	  cmake --preset $$preset $(WITH_PYTHON) && \
	  cmake --build --preset $$preset --target all terrace_tests && \
	  TERRACE_FUZZ_STEPS=$$steps ctest --preset $$preset --timeout 7200 || exit 1; \
	done
	@TERRACE_FUZZ_STEPS=$(FUZZ_STEPS_ALL) ctest --preset host-asan --timeout 7200 \
	  --tests-regex '^host[.]Pressure[.]'
	@cmake --preset host-tsan
	@cmake --build --preset host-tsan --target terrace_concurrent_tests
	@TERRACE_FUZZ_STEPS=$(FUZZ_STEPS_ALL_SANITIZED) ctest --preset host-tsan --timeout 7200 \
	  --label-regex concurrent
	@cmake --preset cuda-asan
	@cmake --build --preset cuda-asan
	@TERRACE_FUZZ_STEPS=$(FUZZ_STEPS_ALL_SANITIZED) ctest --preset cuda-asan --timeout 7200 \
	  --exclude-regex '$(ALIKE)'
	@cmake --preset cuda-tsan
	@cmake --build --preset cuda-tsan
	@TERRACE_FUZZ_STEPS=$(FUZZ_STEPS_SANITIZED) ctest --preset cuda-tsan --timeout 7200 \
	  --exclude-regex '/($(POLICIES_WITHOUT_CUDA_TSAN))(_[a-z]*)?$$|$(LONG_WITH_CUDA_TSAN)'
ifdef NVCC
	@cmake --preset cuda-compile "-DCMAKE_CUDA_ARCHITECTURES=$(ALL_DEVICES)" && \
	  cmake --build --preset cuda-compile && ctest --preset cuda-compile
else
	@echo "check-all: no nvcc here, so preset cuda-compile did not run"
endif

test-engines: python  ## tests with transformers, in an environment of 2.5 GB
	@engines=$$(tools/environments/environments.py engines) && \
	  { [ -f models/smollm2/model.safetensors ] || \
	    $$engines tools/fetch_model.py smollm2 --convert-only; }
	@cmake --preset release $(WITH_PYTHON)
	@cmake --build --preset release --target terrace_python
	@ctest --preset release --label-regex engines

# CMake gives files to all users, and folders to those whom the packing or installing process does not
# mask.
PACK = umask 022; cpack --config build/release/CPackConfig.cmake
deb: build  ## packs Debian packages: build/release/packages
	@$(PACK)

tarball: build  ## packs all of it in an archive that runs from any folder: build/release/packages
	@$(PACK) -G TGZ

# What `make` has built goes into the wheel: only the module is compiled besides. The build keeps its
# prefix, which would be the folder that a wheel is put together in.
wheel: python build  ## builds the Python package with the program: build/wheels/terrace-*.whl
	@build/venv-bindings/bin/pip wheel . --no-deps --no-build-isolation --wheel-dir build/wheels \
	  --config-settings=build-dir=build/release \
	  --config-settings=cmake.define.TERRACE_CUDA=OFF \
	  --config-settings=cmake.define.TERRACE_DEVELOPER=ON \
	  --config-settings=cmake.define.CMAKE_INSTALL_PREFIX=/usr/local

check-packages: deb tarball wheel  ## installs each package in an empty Debian 12, and runs it
	@tools/install-packages packages
	@tools/check-packages

install: build  ## installs program, libraries and headers to PREFIX
	@umask 022; cmake --install build/release --prefix "$(PREFIX)"

uninstall:  ## removes what `make install` of this tree has installed
	@[ -f build/release/install_manifest.txt ] || { \
	  echo "make uninstall: nothing was installed from this tree" >&2; exit 1; }
	@xargs -d '\n' rm -f < build/release/install_manifest.txt

format: packages  ## brings all C++ files into the house format
	@tools/install-packages lint
	@tests/tidy/format -i

clean:  ## removes everything that was built
	@rm -rf build
