# SPDX-License-Identifier: Apache-2.0
# Builds cytoc, its runtime library and the tests; `make help` lists the targets.
#
# In:  the sources by folder (every *.c of a folder belongs to it: nothing to add here for a new file), build/config.mk
#      from tools/setup.sh (what was found on this machine), and an optional config.mak of your own (CC, CFLAGS_EXTRA ..).
# Out: release binaries in build/; those of another variant in a folder of their own: build/asan (SAN=1), build/tsan
#      (SAN=thread), build/debug (DEBUG=1), build/fuzz.  build/venv and build/gen are shared by all of them.
#
# The first run installs what is missing: build/config.mk is an included file with a rule, so make writes it by
# tools/setup.sh and then starts over.  Link order says who may know whom: see "How it works" in README.

-include config.mak

ifdef DEBUG
VARIANT := debug
else ifeq ($(SAN),thread)
VARIANT := tsan
else ifdef SAN
VARIANT := asan
endif
VARIANT ?= release

B := build
O := $(if $(filter release,$(VARIANT)),$B,$B/$(VARIANT))
PREFIX ?= /usr/local
CYTO_VERSION := 0.1.0
FUZZ_SECONDS ?= 60

QUIET_GOALS := clean help
ifneq ($(filter-out $(QUIET_GOALS),$(or $(MAKECMDGOALS),all)),)
include $B/config.mk
endif

# ---- flags ---------------------------------------------------------------------------------------------------------

SANFLAGS_asan := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
SANFLAGS_tsan := -fsanitize=thread
SANFLAGS_fuzz := -fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer
OPT_release := -O2 -g
OPT_debug := -O0 -g3
OPT_asan := -O1 -g
OPT_tsan := -O1 -g
OPT_fuzz := -O1 -g
SANFLAGS := $(SANFLAGS_$(VARIANT))

# A compiler newer than any that was tried may warn of more: that must not keep a user from building.
WARN := -Wall -Wextra $(if $(CI),-Werror)
# Everything can become part of a shared library, which shows only what its headers mark.
CFLAGS := -std=gnu11 $(OPT_$(VARIANT)) $(WARN) $(SANFLAGS) -pthread -fPIC -fvisibility=hidden $(CFLAGS_EXTRA)
CPPFLAGS := -I. -Iruntime -I$B/gen -DCYTO_VERSION='"$(CYTO_VERSION)"' -MMD -MP
LDFLAGS := $(SANFLAGS) -pthread $(LDFLAGS_EXTRA)

ifneq ($(LLVM_CONFIG),)
LLVM_CPPFLAGS := $(patsubst -I%,-isystem %,$(filter -I%,$(shell $(LLVM_CONFIG) --cppflags)))
LLVM_LIBS := $(shell $(LLVM_CONFIG) --ldflags) $(shell $(LLVM_CONFIG) --libs --link-shared)
endif

ifeq ($V,1)
Q :=
say = @:
else
Q := @
say = @printf '  %-6s %s\n' $1 $2
endif

# The architectures of codegen/arch.c, that of this machine, and those others that there is a C compiler for.
ARCHES := x86_64 aarch64 x86_64_windows
ARCH := $(filter $(ARCHES),$(firstword $(subst -, ,$(shell $(CC) -dumpmachine))))
system = $(or $(word 3,$(subst _, ,$1)),linux)
tools_of = $(if $(filter windows,$(call system,$1)),x86_64-w64-mingw32-,$1-linux-gnu-)
CROSS_ARCHES := $(foreach a,$(filter-out $(ARCH),$(ARCHES)),$(if $(shell command -v $(call tools_of,$a)gcc),$a))

# ---- what there is -------------------------------------------------------------------------------------------------

# Every file with this ending below these folders.
below = $(foreach d,$2,$(wildcard $(foreach in,* */* */*/*,$d/$(in)$1)))
# Fuzzing reads models and text: that needs no more.
COMPILER_DIRS := frontend ir $(if $(filter fuzz,$(VARIANT)),,passes codegen)
LLVM_DIRS := codegen/cpu
ALL_TOOLS := cyto-run cyto-bench cyto-compare

SRC_compiler := $(call below,.c,$(COMPILER_DIRS))
SRC_asm := $(filter-out codegen/link_files.S,$(call below,.S,$(COMPILER_DIRS)))
SRC_runtime := $(filter-out runtime/os_windows% runtime/shared/%,$(call below,.c,runtime))
# There is CUDA on Linux alone; library.c knows ELF.
SRC_runtime_windows := $(filter-out runtime/cuda/% runtime/shared/% runtime/os_linux.c runtime/library.c,$(call below,.c,runtime))
runtime_of = $(or $(SRC_runtime_$(call system,$1)),$(SRC_runtime))
SRC_tools := $(filter-out $(ALL_TOOLS:%=tools/%.c) tools/driver/%,$(call below,.c,tools))
# The compiler as a library; of the other tools it takes what runs models to calibrate them.
SRC_driver := $(if $(filter fuzz,$(VARIANT)),,$(filter-out tools/driver/main.c,$(wildcard tools/driver/*.c)))
TOOLS := cytoc $(patsubst tools/%.c,%,$(wildcard $(ALL_TOOLS:%=tools/%.c)))
SRC_plugin := $(wildcard integrations/onnxruntime/*.c)
SRC_cudart := $(patsubst %,tests/cuda/%_test.c,model capture checks driver tools cudnn search found)
SRC_device := tests/cuda/device_test.c tests/cuda/images_test.c
SRC_ctest := $(wildcard tests/ir/*.c tests/passes/*.c tests/codegen/*.c tests/frontend/*.c) \
  $(filter-out $(SRC_cudart) $(SRC_device),$(wildcard tests/cuda/*_test.c))
SRC_drivertest := $(if $(LLVM_CONFIG),$(wildcard tests/driver/*_test.c))
SRC_rttest := $(wildcard tests/rt/test_*.c)
SRC_rthelp := $(filter-out $(SRC_rttest),$(wildcard tests/rt/*.c))

# Variants of the hand-written model tests/rt/model.c, as libraries beside the runtime's tests.
RT_MODELS := rt_model_a rt_model_b rt_bad_abi rt_bad_cpu rt_bad_query rt_bad_weights rt_plugin
RT_FLAGS_rt_model_a := -DMODEL_SYMBOL=rt_model_a
RT_FLAGS_rt_model_b := -DMODEL_SYMBOL=rt_model_b -DTAG=2
RT_LINKED := $O/tests/rt/rt_model_a.so $O/tests/rt/rt_model_b.so
RT_FLAGS_rt_bad_abi := -DMODEL_FAULT=FAULT_ABI
RT_FLAGS_rt_bad_cpu := -DMODEL_FAULT=FAULT_CPU
RT_FLAGS_rt_bad_query := -DMODEL_FAULT=FAULT_QUERY
RT_FLAGS_rt_bad_weights := -DMODEL_FAULT=FAULT_WEIGHTS
RT_FLAGS_rt_plugin := -DPLUGIN_RUN=rt_plugin_run

ifeq ($(LLVM_CONFIG),)
SRC_compiler := $(filter-out $(LLVM_DIRS:%=%/%),$(SRC_compiler))
SRC_ctest := $(filter-out tests/codegen/% tests/cuda/%,$(SRC_ctest))
TOOLS := $(filter-out cytoc,$(TOOLS))
endif

obj = $(patsubst %.c,$O/obj/%.o,$1)
ctest_bin = $(patsubst tests/%.c,$O/tests/%,$1)

COMPILER_LIB := $O/libcytoc_compiler.a
CYTOC_LIB := $(if $(LLVM_CONFIG),$O/libcytoc.a)
RUNTIME_LIB := $O/libcyto.a
# Shared libraries: names, links and exports go by the version of the interface, which programs ask for.
SO_VERSION := 0
SHARED_LIBS := $(if $(LLVM_CONFIG),$O/libcytoc.so) $O/libcyto.so
# ONNX Runtime opens it by its path: it has no version of its own.
ORT_PLUGIN := $(if $(filter fuzz,$(VARIANT)),,$O/libcytoc_onnxruntime.so)
TOOLS_LIB := $(if $(SRC_tools),$O/libcyto_tools.a)
PB_OBJ := $O/obj/gen/onnx.pb-c.o
UNIT_TESTS := $(call ctest_bin,$(SRC_ctest) $(SRC_drivertest) $(SRC_rttest) $(if $(LLVM_CONFIG),$(SRC_cudart) $(SRC_device)))
EMULATOR_ROM := $(if $(filter x86_64,$(shell uname -m)),$O/tests/emulate/rom.bin)
CROSS_RUNS := $(patsubst %,$O/tests/emulate/cyto-run-%,$(filter-out %_windows,$(CROSS_ARCHES)))
WINDOWS_RUNS := $(if $(and $(filter x86_64_windows,$(CROSS_ARCHES)),$(filter release,$(VARIANT))), \
  $O/tests/windows/run_list $O/tests/windows/run_list.exe)
COUNTED := $(if $(filter x86_64,$(ARCH)),$(if $(filter release,$(VARIANT)),$O/tests/onnxruntime/counted.so))
FAILING_ALLOC := $(if $(filter release,$(VARIANT)),$O/tests/failing_alloc.so)
RUN_BINS := $(if $(LLVM_CONFIG),$O/tests/threads/run_many $O/tests/grown/run_steps)
NODE_RUN := $(patsubst tests/onnx/%.c,$O/tests/%,$(wildcard tests/onnx/*_run.c))
BINARIES := $(TOOLS:%=$O/%)

# ---- goals ---------------------------------------------------------------------------------------------------------

.PHONY: all help setup demo check same where golden fuzz bench install uninstall clean tests portable carry
.DELETE_ON_ERROR:
.SECONDARY:
.SUFFIXES:

all: $(BINARIES) $(RUNTIME_LIB) $(COMPILER_LIB) $(CYTOC_LIB) $(SHARED_LIBS) $(ORT_PLUGIN)
ifeq ($(LLVM_CONFIG),)
	@echo 'LLVM 17 or newer was not found: built without cytoc (apt-get install llvm-19-dev, then make setup)'
endif

help:
	@printf '%s\n' \
	  'make              build cytoc, cyto-run, cyto-bench, cyto-compare, libcyto and libcytoc (.a, .so), the plugin for ONNX Runtime' \
	  'make demo         install what is missing, build, compile and run examples/digits' \
	  'make check        install what is missing, build, run every test; SAN=1, SAN=thread, DEBUG=1: other variants' \
	  'make check T=X    the tests of all suites whose names match the regular expression X' \
	  'make where T=OP   the tests of an operator: node tests, goldens, programs, networks' \
  'make check-X      one suite of tests/README.md: unit golden cli onnx ..' \
	  'make check-cuda   all of CUDA, on a GPU where there is one' \
	  'make golden       rewrite expected test results (lists of passing names only grow)' \
	  'make same BASE=C  compare the libraries that commit C and this tree make of a corpus: bytes, then time' \
	  'make fuzz         libFuzzer targets, FUZZ_SECONDS each (60)' \
	  'make wheel        dist/cytoc-VERSION-py3-none-manylinux_*.whl: the Python package with all it needs' \
	  'make carry        pack what tests and measures CUDA on a machine with a GPU and no build tools: tests/README.md' \
	  'make bench        measure the example and, where present, the shared networks; updates tests/bench/RESULTS.md' \
	  'make install      PREFIX=/usr/local DESTDIR=; make uninstall takes away what it wrote' \
	  'make setup        look again for what the build needs and install what is missing' \
	  'V=1 shows commands; config.mak is read first when it exists'

setup:
	$Q tools/setup.sh

$B/config.mk: tools/setup.sh tests/requirements.txt
	$Q tools/setup.sh

# What only tests want, as far as it can be had.
$B/test-tools: tools/setup.sh tests/requirements-cuda.txt tests/python/requirements.txt | $B/config.mk
	$Q tools/setup.sh tests && touch $@

# Only the runtime and who calls the compiler have threads; models that are run are compiled by the release build.
ifeq ($(VARIANT),tsan)
tests: $(call ctest_bin,$(SRC_rttest) $(SRC_drivertest)) $(RUN_BINS) $(RT_MODELS:%=$O/tests/rt/%.so)
	$Q $(if $(RUN_BINS),$(MAKE) --no-print-directory SAN= $B/cytoc)
else
tests: all $(UNIT_TESTS) $(NODE_RUN) $(RUN_BINS) $(EMULATOR_ROM) $(CROSS_RUNS) $(WINDOWS_RUNS) $(FAILING_ALLOC) \
  $(COUNTED) \
  $(if $(SRC_rthelp),$(RT_MODELS:%=$O/tests/rt/%.so)) \
  $(if $(LLVM_CONFIG),$(if $(filter release,$(VARIANT)),portable))
endif

.PHONY: check-cuda
# T=PATTERN: only what has that in its name, whichever suite and language (a regular expression).
RUN_SUITES = $B/venv/bin/python tests/run_all.py --build $O --variant $(VARIANT) $(if $T,--only '$T')

check: tests $B/test-tools
	$Q $(RUN_SUITES)

check-%: tests $B/test-tools
	$Q $(RUN_SUITES) $*

# What needs no GPU, and where there is one, the node tests and networks on it, too (DEVICE= leaves these out).
DEVICE ?= $(if $(wildcard /dev/nvidia0 /dev/dxg),1)
check-cuda: tests $B/test-tools
	$Q $(RUN_SUITES) cuda cuda-nodes cuda-networks
	$Q $(if $(DEVICE),$B/venv/bin/python tests/cuda/nodes.py --build $O --device)
	$Q $(if $(DEVICE),$B/venv/bin/python tests/cuda/networks.py --build $O --device)

# What two versions of the compiler make of a fixed corpus: make same BASE=COMMIT; SAME= gives names and options.
same: all
	$Q $(if $(BASE),,$(error make same needs BASE=COMMIT))$B/venv/bin/python tests/same.py --build $O --base $(BASE) $(SAME)

# Where an operator is tested: make where T=TopK.
where: $B/test-tools
	$Q $B/venv/bin/python tests/where.py --build $O $(or $(T),$(error make where needs T=OPERATOR))

golden: tests
	$Q $(RUN_SUITES) --update

demo: all
	$Q $(MAKE) --no-print-directory -C examples/digits demo BUILD=$(abspath $O)

# What a machine with a GPU and no build tools is sent (CARRY= gives options: tests/cuda/carry.py).
carry: tests portable $B/test-tools
	$Q $B/venv/bin/python tests/cuda/carry.py --build $O $(CARRY)

bench: all
	$Q $B/venv/bin/python tests/bench/run.py --build $O

# ---- libraries and binaries ----------------------------------------------------------------------------------------

COMPILER_OBJECTS := $(call obj,$(SRC_compiler)) $(SRC_asm:%.S=$O/obj/%.o) $(PB_OBJ) \
  $(if $(filter fuzz,$(VARIANT)),,$(ARCHES:%=$O/obj/codegen/link_files_%.o))
$(COMPILER_LIB): $(COMPILER_OBJECTS)
$O/libcytoc.a: $(call obj,$(SRC_driver) $(SRC_tools)) $(COMPILER_OBJECTS)
$(RUNTIME_LIB): $(call obj,$(SRC_runtime))
$(TOOLS_LIB): $(call obj,$(SRC_tools))
$O/%.a:
	$(call say,AR,$@)
	$Q rm -f $@ && ar rcs $@ $^

# The runtime goes into every compiled model: position independent, nothing visible that is not marked so, a section for
# each function, so that a model takes along what it calls, and without debug information and tables of unwinding (no
# exceptions pass through it), which would be copied into each of them.
RUNTIME_FLAGS := -fPIC -fvisibility=hidden -fno-plt
RUNTIME_FLAGS_aarch64 := -mno-outline-atomics # without functions of libgcc
RUNTIME_FLAGS_x86_64_windows := -funwind-tables -Wno-attributes # Windows knows no other way up the stack
RUNTIME_RELEASE := -O2 -g0 -ffunction-sections -fdata-sections -fno-unwind-tables -fno-asynchronous-unwind-tables
# What runs when a model is loaded or bound, a microsecond or less each time: for size.
SMALL := context context_bind context_run cpu error load tensor values
for_size = $(if $(filter $(SMALL:%=runtime/%.c),$1),-Os)
$O/obj/runtime/%.o: CFLAGS += $(RUNTIME_FLAGS) $(RUNTIME_FLAGS_$(ARCH)) \
  $(if $(filter release,$(VARIANT)),$(RUNTIME_RELEASE))
$(SMALL:%=$O/obj/runtime/%.o): CFLAGS += $(if $(filter release,$(VARIANT)),-Os)
# Tests that refer to data of a library want its address there, not a copy in the program.
$O/obj/tests/rt/%.o: CFLAGS += -fPIC
$O/obj/tests/cuda/%.o $O/obj/codegen/%.o $O/obj/tools/driver/about.o \
  $O/obj/tests/codegen/%.o: CPPFLAGS += $(LLVM_CPPFLAGS)

COMPILER_LIBS := $(LLVM_LIBS) -lprotobuf-c -ljansson -lz -llz4 -lm -ldl
RUNTIME_LIBS := -lm -ldl

$O/cytoc: $O/obj/tools/driver/main.o $(TOOLS_LIB) $(CYTOC_LIB) $(RUNTIME_LIB)
	$(call say,LINK,$@)
	$Q $(CC) $(LDFLAGS) -o $@ $^ $(COMPILER_LIBS)

$O/libcytoc.so: $(call obj,$(SRC_driver)) $(CYTOC_LIB) $(RUNTIME_LIB)
	$(call link_shared,cytoc,$^ $(COMPILER_LIBS))
$O/libcyto.so: $(RUNTIME_LIB)
	$(call link_shared,cyto,-Wl$(comma)--whole-archive $^ -Wl$(comma)--no-whole-archive $(RUNTIME_LIBS))
# What it compiles with is libcytoc.so beside it, which it opens when it needs it.
$O/libcytoc_onnxruntime.so: $(call obj,$(SRC_plugin)) $(PB_OBJ) $(RUNTIME_LIB)
	$(call say,LINK,$@)
	$Q$(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--exclude-libs,ALL $(if $(SANFLAGS),,-Wl,-z,defs) -o $@ $^ \
	  -lprotobuf-c -lz $(RUNTIME_LIBS)
# $1: the name behind lib, and what exported symbols begin with; $2: what is linked
define link_shared
$(call say,LINK,$@)
$Qecho '{ global: $1_*; local: *; };' >$O/$1.exports
$Q$(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F).$(SO_VERSION) -Wl,--version-script,$O/$1.exports $(if $(SANFLAGS),,-Wl,-z,defs) \
  -o $@ $2
$Qln -sf $(@F) $@.$(SO_VERSION)
endef
comma := ,

# Libraries that are not needed are left out: cyto-bench measures on machines that have neither.
$O/cyto-run: $(PB_OBJ)
$O/cyto-run $O/cyto-bench $O/cyto-compare: $O/%: $O/obj/tools/%.o $(TOOLS_LIB) $(RUNTIME_LIB)
	$(call say,LINK,$@)
	$Q $(CC) $(LDFLAGS) -Wl,--as-needed -o $@ $^ -lprotobuf-c -ljansson -lz $(RUNTIME_LIBS)

# Programs for machines that have glibc and nothing else: with LLVM and the other libraries in them where these come as
# archives. carry.py puts what is left beside them, into lib.
PORTABLE := cytoc cyto-run cyto-bench cyto-compare node_run device_test
PORTABLE_LLVM = $(shell $(LLVM_CONFIG) --ldflags) \
  $(shell $(LLVM_CONFIG) --libs --link-static $(if $(filter aarch64,$(ARCH)),aarch64,x86) passes orcjit 2>/dev/null || \
    $(LLVM_CONFIG) --libs --link-shared)
# As an archive, else as what the linker finds, else (no development package) by its file.
cc_has = $(wildcard $(shell $(CC) -print-file-name=$1))
portable_lib = $(if $(call cc_has,lib$1.a),-l:lib$1.a,$(if $(call cc_has,lib$1.so),-l$1,-l:lib$1.so.1))
PORTABLE_LIBS = $(foreach l,stdc++ protobuf-c jansson z lz4 zstd,$(call portable_lib,$l))
portable: $(PORTABLE:%=$O/portable/%) $O/portable/libcyto.so
# The compiler as a library that needs nothing but glibc: what the Python wheel has.
$O/portable/libcytoc.so: $(call obj,$(SRC_driver)) $(CYTOC_LIB) $(RUNTIME_LIB) $O/libcytoc.so
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -s -shared -static-libgcc -Wl,-soname,$(@F).$(SO_VERSION) \
	  -Wl,--version-script,$O/cytoc.exports,--exclude-libs,ALL,--gc-sections,--as-needed -o $@ $(filter-out %.so,$^) \
	  $(PORTABLE_LLVM) $(PORTABLE_LIBS) $(RUNTIME_LIBS)
$O/portable/cytoc: $O/obj/tools/driver/main.o $(TOOLS_LIB) $(CYTOC_LIB) $(RUNTIME_LIB)
$O/portable/cyto-run $O/portable/cyto-bench $O/portable/cyto-compare: $O/portable/%: $O/obj/tools/%.o $(TOOLS_LIB) $(RUNTIME_LIB) $(PB_OBJ)
$O/portable/node_run: $O/obj/tests/onnx/node_run.o $(TOOLS_LIB) $(RUNTIME_LIB) $(PB_OBJ)
$O/portable/device_test: $O/obj/tests/cuda/device_test.o $(COMPILER_LIB) $(RUNTIME_LIB)
$(PORTABLE:%=$O/portable/%):
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -s -static-libgcc -o $@ $^ \
	  -Wl,--gc-sections,--as-needed,--disable-new-dtags,-rpath,'$$ORIGIN/lib' \
	  $(if $(filter %/cytoc %/device_test,$@),$(PORTABLE_LLVM)) $(PORTABLE_LIBS) $(RUNTIME_LIBS)
$O/portable/libcyto.so: $(RUNTIME_LIB)
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -s -shared -Wl,-soname,$(@F) -o $@ \
	  -Wl,--whole-archive $^ -Wl,--no-whole-archive $(RUNTIME_LIBS)

$O/portable/libcytoc_onnxruntime.so: $(call obj,$(SRC_plugin)) $(PB_OBJ) $(RUNTIME_LIB)
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -s -shared -static-libgcc -Wl,-soname,$(@F) -Wl,--exclude-libs,ALL,--gc-sections \
	  -o $@ $^ -Wl,--as-needed $(PORTABLE_LIBS) $(RUNTIME_LIBS)

# Compiler tests do not link the runtime, nor runtime tests the compiler.
$(call ctest_bin,$(SRC_ctest)): $O/tests/%: $O/obj/tests/%.o $(COMPILER_LIB)
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -o $@ $^ $(COMPILER_LIBS)

$(call ctest_bin,$(SRC_rttest)): $O/tests/%: $O/obj/tests/%.o $(call obj,$(SRC_rthelp)) $(TOOLS_LIB) $(RUNTIME_LIB) \
  $(RT_LINKED)
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -Wl,--as-needed -Wl,-rpath,'$$ORIGIN' -o $@ $^ $(RUNTIME_LIBS)

# The library as an application links it.
$(call ctest_bin,$(SRC_drivertest)): $O/tests/%: $O/obj/tests/%.o $(CYTOC_LIB) $(RUNTIME_LIB) | $O/cytoc
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -o $@ $^ $(COMPILER_LIBS)

# Compiler and runtime; device_test runs on machines with a GPU and nothing else: LLVM is linked only if it is needed.
$(call ctest_bin,$(SRC_device)): $O/tests/%: $O/obj/tests/%.o $(COMPILER_LIB) $(RUNTIME_LIB)
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -Wl,--as-needed -o $@ $^ $(COMPILER_LIBS) $(RUNTIME_LIBS)

# What every library of kernels behind the shim is linked with.
SHIM_OBJECT := $O/tests/cuda/mock/shim.o
SHIM_CC = $(CC) -I. -std=gnu11 -mf16c -O2 $(WARN) $(SANFLAGS) -fPIC -fvisibility=hidden -r -nostdlib
SHIM_HEADERS := tests/cuda/shim.h tests/cuda/shim_map.h codegen/cuda/prelude.cuh
$(SHIM_OBJECT): tests/cuda/shim.c tests/cuda/shim_matrix.c tests/cuda/shim_tensor.c $(SHIM_HEADERS)
	$(call say,CC,$@)
	$Q mkdir -p $(@D) && $(SHIM_CC) -o $@ $(filter %.c,$^)
$O/tests/cuda/kernels_test: | $(SHIM_OBJECT)
# How they are compiled: -Og takes half of the time of -O1, and what comes of it runs nearly as fast.
SHIM_FLAGS := -std=gnu11 -mf16c -Og -w -fno-strict-aliasing $(if $(filter asan,$(VARIANT)),-fsanitize=address) \
  -shared -fPIC -I. -include tests/cuda/shim.h
# What every one of kernels that came as PTX is linked with, too.
SHIM_PTX_OBJECT := $O/tests/cuda/mock/shim_ptx.o
SHIM_DEFINES := -DCY_SHIM_OBJECT='"$(SHIM_OBJECT)"' -DCY_SHIM_PTX_OBJECT='"$(SHIM_PTX_OBJECT)"' \
  -DCY_SHIM_FLAGS='"$(SHIM_FLAGS)"'
$O/obj/tests/cuda/kernels_test.o $O/obj/tests/cuda/ptx_test.o: CPPFLAGS += $(SHIM_DEFINES)
$(SHIM_PTX_OBJECT): tests/cuda/shim_ptx.c tests/cuda/shim_traffic.c tests/cuda/shim_ptx.h $(SHIM_HEADERS)
	$(call say,CC,$@)
	$Q mkdir -p $(@D) && $(SHIM_CC) -ffp-contract=off -frounding-math -o $@ $(filter %.c,$^)
$O/tests/cuda/ptx_test: | $(SHIM_OBJECT) $(SHIM_PTX_OBJECT)

# The CUDA runtime's test: whole models, with mocks of NVIDIA's libraries under their names.
CUDA_MOCKS := $O/tests/cuda/mock/libcuda.so.1 $O/tests/cuda/mock/lib64/libnvrtc.so.13 $O/tests/cuda/mock/cudnn/libcudnn.so.9
$(call ctest_bin,$(SRC_cudart)): $O/tests/%: $O/obj/tests/%.o $(RUNTIME_LIB) \
  | $(CUDA_MOCKS) $O/cytoc $O/cyto-run $O/cyto-bench
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -o $@ $^ $(RUNTIME_LIBS)

$O/tests/cuda/mock/libcuda.so.1: tests/cuda/mock_cuda.c tests/cuda/mock_cuda.h tests/cuda/shim_map.h tests/check.h \
  | $(SHIM_OBJECT) $(SHIM_PTX_OBJECT)
$O/tests/cuda/mock/lib64/libnvrtc.so.13: tests/cuda/mock_nvrtc.c
$O/tests/cuda/mock/cudnn/libcudnn.so.9: tests/cuda/mock_cudnn.c tests/cuda/mock_cudnn.h tests/cuda/mock_cuda.h \
  runtime/half.h runtime/cuda/cudnn_numbers.h
$(CUDA_MOCKS):
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) -I. -Iruntime -std=gnu11 -O2 -g $(WARN) $(SANFLAGS) $(SHIM_DEFINES) -fPIC -shared \
	  -Wl,-soname,$(@F) -o $@ $< -ldl -lm

$(RT_MODELS:%=$O/tests/rt/%.so): $O/tests/rt/%.so: tests/rt/model.c $(RUNTIME_LIB)
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) $O/obj/tests/rt && $(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden $(RT_FLAGS_$*) -shared \
	  -Wl,-soname,$(@F) -MF $O/obj/tests/rt/$*.d -o $@ $< $(RUNTIME_LIB) $(RUNTIME_LIBS)

$(NODE_RUN): $O/tests/%: $O/obj/tests/onnx/%.o $(TOOLS_LIB) $(RUNTIME_LIB) $(PB_OBJ)
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -o $@ $^ -lprotobuf-c -ljansson -lz $(RUNTIME_LIBS)

$(COUNTED): tests/onnxruntime/counted.c integrations/onnxruntime/ort_abi.h
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) -I. -std=gnu11 -O2 $(WARN) -fPIC -shared -fvisibility=hidden -o $@ $< -ldl

$(FAILING_ALLOC): tests/failing_alloc.c
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) -std=gnu11 -O2 $(WARN) -fPIC -shared -o $@ $< -ldl

$(RUN_BINS): $O/tests/%: $O/obj/tests/%.o $(RUNTIME_LIB)
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -o $@ $^ $(RUNTIME_LIBS)

# What runs models of both systems for tests/windows.
RUN_LIST := tests/windows/run_list.c tools/values/npy.c tools/values/tensor_value.c
$O/tests/windows/run_list: $(call obj,$(RUN_LIST)) $(RUNTIME_LIB)
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -o $@ $^ $(RUNTIME_LIBS)
$O/obj/x86_64_windows/tests/%.o $O/obj/x86_64_windows/tools/%.o: CPPFLAGS += -D'aligned_alloc(a, n)=malloc(n)'
$O/tests/windows/run_list.exe: $(RUN_LIST:%.c=$O/obj/x86_64_windows/%.o) $O/obj/x86_64_windows/libcyto.a
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(call tools_of,x86_64_windows)gcc -o $@ $^

# What programs find in the emulator of tests/emulate in place of Linux.
$(EMULATOR_ROM): tests/emulate/boot.S tests/emulate/kernel.c tests/emulate/rom.ld
	$(call say,ROM,$@)
	$Q mkdir -p $(@D) && $(CC) -std=gnu11 -O2 $(WARN) -ffreestanding -fpie -mgeneral-regs-only -mno-red-zone \
	  -fno-stack-protector -fcf-protection=none -fno-asynchronous-unwind-tables -nostdlib -static -no-pie \
	  -Wl,-T,tests/emulate/rom.ld -Wl,--build-id=none -Wl,--oformat=binary -o $@ $(filter-out %.ld,$^)

# The compiler carries as bytes the prelude of CUDA kernels and, for each architecture that there is a C compiler for, the
# files of codegen/carried.h for the linker.
$O/obj/codegen/cuda/prelude.o: codegen/cuda/prelude.cuh codegen/cuda/prelude_matrix.cuh
$O/obj/codegen/%.o: codegen/%.S
	$(call say,AS,$<)
	$Q mkdir -p $(@D) && $(CC) -c -o $@ $<

STUBS_linux := libm libpthread libdl libc
STUBS_windows := kernel32 ucrtbase
stub_linux = CC='$3' NM=$2nm OBJDUMP=$2objdump tools/stub.sh
stub_windows = TOOLS=$2 tools/stub_windows.sh
# $1: architecture, $2: prefix of its tools, $3: its C compiler, $4: its runtime library, $5: its system
define CARRIED
$(STUBS_$5:%=$O/obj/$1/%.stub): $O/obj/$1/%.stub: $(filter tools/%,$(stub_$5)) $4
	$$(call say,STUB,$$@)
	$$Q mkdir -p $$(@D) && $(stub_$5) $$* $$@ $4
$O/obj/$1/query.o: runtime/shared/query.c
	$$(call say,CC,$$<)
	$$Q mkdir -p $$(@D) && $3 $$(CPPFLAGS) -std=gnu11 $$(WARN) $$(RUNTIME_FLAGS) $$(RUNTIME_RELEASE) \
	  $$(RUNTIME_FLAGS_$1) -c -o $$@ $$<
$O/obj/codegen/link_files_$1.o: $4 $O/obj/$1/query.o $(STUBS_$5:%=$O/obj/$1/%.stub)
$O/obj/codegen/link_files_$1.o: FILES := -DCY_FILE_runtime='"$4"' -DCY_FILE_query='"$O/obj/$1/query.o"' \
  $(foreach s,$(STUBS_$5),-DCY_FILE_$s='"$O/obj/$1/$s.stub"')
endef
# The runtime library of another architecture, always as released, and for tests a cyto-run, which runs in an emulator (of
# Windows: run_list).
CROSS_RUN := $(patsubst %,tools/%.c,cyto-run options options_text profile resident sizes statistics terminal values/npy \
  values/tensor_value values/value values/value_folder) tests/emulate/npy_only.c
define CROSS
$O/obj/$1/libcyto.a: $(patsubst %.c,$O/obj/$1/%.o,$(call runtime_of,$1))
	$$(call say,AR,$$@)
	$$Q rm -f $$@ && $2ar rcs $$@ $$^
$O/obj/$1/%.o: %.c
	$$(call say,CC,$$@)
	$$Q mkdir -p $$(@D) && $3 $$(CPPFLAGS) -std=gnu11 $$(WARN) -pthread $$(RUNTIME_FLAGS) $$(RUNTIME_RELEASE) \
	  $$(RUNTIME_FLAGS_$1) $$(call for_size,$$<) -c -o $$@ $$<
$O/tests/emulate/cyto-run-$1: $(CROSS_RUN:%.c=$O/obj/$1/%.o) $O/obj/$1/libcyto.a
	$$(call say,LINK,$$@)
	$$Q mkdir -p $$(@D) && $3 -pthread -o $$@ $$^ $(RUNTIME_LIBS)
$(call CARRIED,$1,$2,$3,$O/obj/$1/libcyto.a,$5)
endef
$(eval $(call CARRIED,$(ARCH),,$(CC),$(RUNTIME_LIB),linux))
$(foreach a,$(CROSS_ARCHES),$(eval $(call CROSS,$a,$(call tools_of,$a),$(call tools_of,$a)gcc,,$(call system,$a))))
$(ARCHES:%=$O/obj/codegen/link_files_%.o): $O/obj/codegen/link_files_%.o: codegen/link_files.S codegen/carried.h
	$(call say,AS,$@)
	$Q mkdir -p $(@D) && $(CC) -I. -DCY_ARCH=$* -DCY_ROWS=CY_CARRIED_$(call system,$*) $(or $(FILES),-DCY_ABSENT) -c -o $@ $<

# Other flags make other objects.
ALL_CFLAGS := $(CFLAGS)
.PHONY: always
$O/flags: always
	$Q mkdir -p $(@D) && echo '$(ALL_CFLAGS)' | cmp -s - $@ || echo '$(ALL_CFLAGS)' >$@

$O/obj/%.o: %.c $O/flags | $B/gen/onnx.pb-c.h
	$(call say,CC,$<)
	$Q mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

# ---- generated code ------------------------------------------------------------------------------------------------

$B/gen/onnx.pb-c.c: $(ONNX_PROTO) $B/config.mk
	$(call say,PROTOC,$@)
	$Q mkdir -p $(@D) && cp $(ONNX_PROTO) $B/gen/onnx.proto && protoc-c -I$B/gen --c_out=$B/gen $B/gen/onnx.proto
$B/gen/onnx.pb-c.h: $B/gen/onnx.pb-c.c ;

# What the sources of the compiler are, for keys of caches.
REVISION_OF := $(sort $(foreach e,.c .h .S .def .cuh,$(call below,$e,$(COMPILER_DIRS) runtime tools)))
$B/gen/revision.h: $(REVISION_OF)
	$Q mkdir -p $(@D) && printf '#define CYTOC_REVISION "%.16s"\n' "$$(cat $^ | sha256sum)" >$@
$O/obj/tools/driver/about.o: $B/gen/revision.h

$(PB_OBJ): $B/gen/onnx.pb-c.c $O/flags
	$(call say,CC,$<)
	$Q mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) -w -c -o $@ $<

# ---- fuzzing -------------------------------------------------------------------------------------------------------

FUZZ_TARGETS := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))
FUZZ_CC ?= $(firstword $(foreach c,clang-19 clang clang-20 clang-18 clang-17,$(shell command -v $c)))

ifeq ($(VARIANT),fuzz)
.PHONY: fuzz-run
fuzz-run: $(FUZZ_TARGETS:%=$O/tests/fuzz/%)
	$Q for t in $(FUZZ_TARGETS); do \
	  mkdir -p $O/corpus/$$t && echo "fuzz $$t for $(FUZZ_SECONDS) s" && \
	  $O/tests/fuzz/$$t -max_total_time=$(FUZZ_SECONDS) -timeout=60 -rss_limit_mb=4096 -verbosity=0 \
	    -print_final_stats=0 -artifact_prefix=$O/crash-$$t- $O/corpus/$$t || exit 1; done
$(FUZZ_TARGETS:%=$O/tests/fuzz/%): $O/tests/fuzz/%: $O/obj/tests/fuzz/%.o $(COMPILER_LIB)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(COMPILER_LIBS)
endif

fuzz:
	@[ -n "$(FUZZ_CC)" ] || { echo 'make fuzz needs clang (apt-get install clang)'; exit 1; }
	$Q $(MAKE) --no-print-directory fuzz-run VARIANT=fuzz CC='$(FUZZ_CC)'

# ---- the Python package ---------------------------------------------------------------------------------------------

# One wheel for every CPython from 3.9 on: native code is loaded by ctypes.
WHEEL_PYTHON := $B/wheel-venv/bin/python
$(WHEEL_PYTHON): python/requirements-wheel.txt
	$Q python3 -m venv $B/wheel-venv && $@ -m pip install -q --disable-pip-version-check -r $< && touch $@
.PHONY: wheel
wheel: all portable $O/portable/libcytoc.so $O/portable/libcytoc_onnxruntime.so $(WHEEL_PYTHON)
	$Q rm -rf $B/wheel $B/python dist && CYTOC_BUILD=$(abspath $O/portable) $(WHEEL_PYTHON) -m pip wheel -q \
	  --disable-pip-version-check --no-deps --no-build-isolation -w $B/wheel .
	$Q PATH=$(abspath $B/wheel-venv/bin):$$PATH $(WHEEL_PYTHON) -m auditwheel repair -w dist $B/wheel/*.whl >$B/wheel/log 2>&1 || \
	  { cat $B/wheel/log; exit 1; }
	$Q ls -l dist/*.whl

# ---- install, clean ------------------------------------------------------------------------------------------------

# What `pkg-config --cflags --libs cyto` answers to applications that open models, and of cytoc to those that compile them.
# $1: name, $2: description, $3: what else, $4: libraries of static ones
define pkg_config
prefix=$(PREFIX)
Name: $1
Description: $2
Version: $(CYTO_VERSION)
Cflags: -I$${prefix}/include
Libs: -L$${prefix}/lib -l$1 $3
Libs.private: $4
endef

# Man pages and completion: the tools write them from their tables of options.
TEXTS := man bash zsh fish
text_file = share/$(strip $(if $(filter man,$1),man/man1/$2.1) $(if $(filter bash,$1),bash-completion/completions/$2) \
  $(if $(filter zsh,$1),zsh/site-functions/_$2) $(if $(filter fish,$1),fish/vendor_completions.d/$2.fish))
text_folder = $(dir $(call text_file,$1,x))

install: all
	$Q install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib/pkgconfig include share/cyto)
	$Q install $(BINARIES) $(DESTDIR)$(PREFIX)/bin
	$Q install -m 644 $(RUNTIME_LIB) $(CYTOC_LIB) $(DESTDIR)$(PREFIX)/lib
	$Q $(foreach l,$(SHARED_LIBS),install -m 644 $l $(DESTDIR)$(PREFIX)/lib/$(notdir $l).$(CYTO_VERSION) && \
	  ln -sf $(notdir $l).$(CYTO_VERSION) $(DESTDIR)$(PREFIX)/lib/$(notdir $l).$(SO_VERSION) && \
	  ln -sf $(notdir $l).$(SO_VERSION) $(DESTDIR)$(PREFIX)/lib/$(notdir $l) && ) :
	$Q $(if $(ORT_PLUGIN),install -m 644 $(ORT_PLUGIN) $(DESTDIR)$(PREFIX)/lib)
	$Q $(foreach a,$(CROSS_ARCHES),install -D -m 644 $O/obj/$a/libcyto.a $(DESTDIR)$(PREFIX)/lib/cyto/$a/libcyto.a && ) :
	$(file >$O/cyto.pc,$(call pkg_config,cyto,Opens and runs models compiled by cytoc,$(RUNTIME_LIBS) -lpthread,))
	$(file >$O/cytoc.pc,$(call pkg_config,cytoc,Compiles ONNX models,,-lcyto $(COMPILER_LIBS) -lpthread))
	$Q install -m 644 $O/cyto.pc $(if $(LLVM_CONFIG),$O/cytoc.pc) $(DESTDIR)$(PREFIX)/lib/pkgconfig
	$Q install -m 644 tools/bench_*.py tools/verify/verify_python.py $(DESTDIR)$(PREFIX)/share/cyto
	$Q install -d $(DESTDIR)$(PREFIX)/lib/cmake/cyto
	$Q $(foreach f,cytoConfig cytoConfigVersion,sed 's/@VERSION@/$(CYTO_VERSION)/g; s/@SOVERSION@/$(SO_VERSION)/g; s/@ARCH@/$(ARCH)/g; \
	  s/@MAJOR@/$(word 1,$(subst ., ,$(CYTO_VERSION)))/g; s/@MINOR@/$(word 2,$(subst ., ,$(CYTO_VERSION)))/g' \
	  integrations/cmake/$f.cmake.in >$(DESTDIR)$(PREFIX)/lib/cmake/cyto/$f.cmake && ) :
	$Q $(foreach t,$(TOOLS),$(foreach f,$(TEXTS),install -d $(DESTDIR)$(PREFIX)/$(call text_folder,$f) && \
	  $O/$t --generate=$f >$(DESTDIR)$(PREFIX)/$(call text_file,$f,$t) && )) :
	$Q install -m 644 runtime/cyto.h runtime/cyto.hpp runtime/cyto_abi.h $(if $(LLVM_CONFIG),tools/driver/cytoc.h) $(DESTDIR)$(PREFIX)/include

# All that `make install` with the same PREFIX and DESTDIR writes; folders of others stay.
uninstall:
	$Q rm -f $(addprefix $(DESTDIR)$(PREFIX)/,$(patsubst %,bin/%,cytoc $(ALL_TOOLS)) \
	  $(foreach l,$(RUNTIME_LIB) $(CYTOC_LIB),lib/$(notdir $l)) \
	  $(foreach l,$(SHARED_LIBS),$(foreach v,$(CYTO_VERSION) $(SO_VERSION),lib/$(notdir $l).$v) lib/$(notdir $l)) \
	  lib/libcytoc_onnxruntime.so lib/pkgconfig/cyto.pc lib/pkgconfig/cytoc.pc include/cyto.h include/cyto.hpp include/cyto_abi.h include/cytoc.h \
	  $(foreach t,cytoc $(ALL_TOOLS),$(foreach f,$(TEXTS),$(call text_file,$f,$t))))
	$Q rm -rf $(addprefix $(DESTDIR)$(PREFIX)/,share/cyto lib/cyto lib/cmake/cyto)

# build/venv and the downloads stay: they are the slow part, and setup.sh keeps them right.
clean:
	$Q find $B -mindepth 1 -maxdepth 1 ! -name venv -exec rm -rf {} + 2>/dev/null || true

-include $(shell find $O/obj -name '*.d' 2>/dev/null)
