# SPDX-License-Identifier: Apache-2.0
# Builds cytoc, its runtime library and the tools; `make help` lists the targets.  Beside it: tools/make/*.mk (flags, generated
# code, the runtimes that cytoc carries, portable programs, installing) and tests/tests.mk.
#
# In:  the sources by folder (every *.c of a folder belongs to it: nothing to add here for a new file), build/config.mk
#      from tools/setup.sh (what was found on this machine), and an optional config.mak of your own (CC, CFLAGS_EXTRA ..).
# Out: release binaries in build/; those of another variant in a folder of their own: build/asan (SAN=1), build/tsan
#      (SAN=thread), build/debug (DEBUG=1), build/fuzz.  build/venv and build/gen are shared by all of them.
#
# The first run installs what is missing: build/config.mk is an included file with a rule, so make writes it by
# tools/setup.sh and then starts over.  Link order says who may know whom: see docs/architecture.md.

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
CYTO_VERSION := 0.2.0-dev
FUZZ_SECONDS ?= 60

QUIET_GOALS := clean help
ifneq ($(filter-out $(QUIET_GOALS),$(or $(MAKECMDGOALS),all)),)
include $B/config.mk
endif
include tools/make/flags.mk

# ---- what there is -------------------------------------------------------------------------------------------------

# Every file with this ending below these folders.
below = $(foreach d,$2,$(wildcard $(foreach in,* */* */*/*,$d/$(in)$1)))
# Fuzzing reads models and text: that needs no more.
COMPILER_DIRS := frontend ir $(if $(filter fuzz,$(VARIANT)),,passes codegen)
LLVM_DIRS := codegen/cpu
ALL_TOOLS := cyto-run cyto-bench cyto-compare cyto-tune

SRC_compiler := $(call below,.c,$(COMPILER_DIRS))
SRC_asm := $(filter-out codegen/link_files.S,$(call below,.S,$(COMPILER_DIRS)))
SRC_runtime := $(filter-out runtime/os/os_windows% runtime/shared/%,$(call below,.c,runtime))
# There is CUDA on Linux alone; library.c knows ELF.
SRC_runtime_windows := $(filter-out runtime/cuda/% runtime/shared/% runtime/os/os_linux.c runtime/library.c,$(call below,.c,runtime))
runtime_of = $(or $(SRC_runtime_$(call system,$1)),$(SRC_runtime))
SRC_tools := $(filter-out $(ALL_TOOLS:%=tools/%.c) tools/driver/%,$(call below,.c,tools))
# The compiler as a library; of the other tools it takes what runs models to calibrate them.
SRC_driver := $(if $(filter fuzz,$(VARIANT)),,$(filter-out tools/driver/main.c,$(wildcard tools/driver/*.c)))
TOOLS := cytoc $(patsubst tools/%.c,%,$(wildcard $(ALL_TOOLS:%=tools/%.c)))
SRC_plugin := $(wildcard integrations/onnxruntime/*.c integrations/shared/*.c)

ifeq ($(LLVM_CONFIG),)
SRC_compiler := $(filter-out $(LLVM_DIRS:%=%/%),$(SRC_compiler))
TOOLS := $(filter-out cytoc,$(TOOLS))
endif

obj = $(patsubst %.c,$O/obj/%.o,$1)

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
BINARIES := $(TOOLS:%=$O/%)

# ---- goals ---------------------------------------------------------------------------------------------------------

.PHONY: all help setup demo check
.DELETE_ON_ERROR:
.SECONDARY:
.SUFFIXES:

all: $(BINARIES) $(RUNTIME_LIB) $(COMPILER_LIB) $(CYTOC_LIB) $(SHARED_LIBS) $(ORT_PLUGIN)
ifeq ($(LLVM_CONFIG),)
	@echo 'LLVM 17 or newer was not found: built without cytoc (apt-get install llvm-19-dev, then make setup)'
endif

help:
	@cat tools/make/help.txt

setup:
	$Q tools/setup.sh

$B/config.mk: tools/setup.sh tests/requirements.txt
	$Q tools/setup.sh

check: tests $B/test-tools
	$Q $(RUN_SUITES)

demo: all
	$Q $(MAKE) --no-print-directory -C examples/digits demo BUILD=$(abspath $O)

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

# Libraries that are not needed are left out.
$O/cyto-run $O/cyto-bench $O/cyto-tune: $(PB_OBJ)
$O/cyto-run $O/cyto-bench $O/cyto-compare $O/cyto-tune: $O/%: $O/obj/tools/%.o $(TOOLS_LIB) $(RUNTIME_LIB)
	$(call say,LINK,$@)
	$Q $(CC) $(LDFLAGS) -Wl,--as-needed -o $@ $^ -lprotobuf-c -ljansson -lz $(RUNTIME_LIBS)

# Other flags make other objects.
ALL_CFLAGS := $(CFLAGS)
.PHONY: always
$O/flags: always
	$Q mkdir -p $(@D) && echo '$(ALL_CFLAGS)' | cmp -s - $@ || echo '$(ALL_CFLAGS)' >$@

$O/obj/%.o: %.c $O/flags | $B/gen/onnx.pb-c.h $B/gen/version.h
	$(call say,CC,$<)
	$Q mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

include $(addprefix tools/make/,generated.mk carried.mk portable.mk triton.mk install.mk) tests/tests.mk

-include $(shell find $O/obj -name '*.d' 2>/dev/null)
