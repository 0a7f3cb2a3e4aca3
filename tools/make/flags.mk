# SPDX-License-Identifier: Apache-2.0
# flags.mk - how things are compiled: flags by variant, the libraries of LLVM, the architectures that there is a C compiler for.
#
# In:  VARIANT, B and O of the Makefile; LLVM_CONFIG of build/config.mk; CFLAGS_EXTRA, LDFLAGS_EXTRA, V.
# Out: CFLAGS, CPPFLAGS, LDFLAGS, LLVM_CPPFLAGS, LLVM_LIBS; Q and say, by which commands are shown; ARCH, CROSS_ARCHES;
#      RUNTIME_FLAGS, RUNTIME_RELEASE, for_size: of the runtime; link_shared: a shared library with a version.

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
# In instrumented code gcc's warnings about sizes and overlap are often wrong, so there they are no errors.
WARN := -Wall -Wextra $(if $(CI),$(if $(SAN),,-Werror))
# Everything can become part of a shared library, which shows only what its headers mark.
CFLAGS := -std=gnu11 $(OPT_$(VARIANT)) $(WARN) $(SANFLAGS) -pthread -fPIC -fvisibility=hidden $(CFLAGS_EXTRA)
CPPFLAGS := -I. -Iruntime -I$B/gen -MMD -MP
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

# The runtime goes into every compiled model: position independent, nothing visible that is not marked so, a section for
# each function, so that a model takes along what it calls, and without debug information and tables of unwinding (no
# exceptions pass through it), which would be copied into each of them.
RUNTIME_FLAGS := -fPIC -fvisibility=hidden -fno-plt
RUNTIME_FLAGS_aarch64 := -mno-outline-atomics # without functions of libgcc
RUNTIME_FLAGS_x86_64_windows := -funwind-tables -Wno-attributes # Windows knows no other way up the stack
RUNTIME_RELEASE := -O2 -g0 -ffunction-sections -fdata-sections -fno-unwind-tables -fno-asynchronous-unwind-tables
# What runs when a model is loaded or bound, a microsecond or less each time: for size.
SMALL := context context_bind context_memory context_run cpu error load model tensor values
for_size = $(if $(filter $(SMALL:%=runtime/%.c),$1),-Os)
$O/obj/runtime/%.o: CFLAGS += $(RUNTIME_FLAGS) $(RUNTIME_FLAGS_$(ARCH)) \
  $(if $(filter release,$(VARIANT)),$(RUNTIME_RELEASE))
$(SMALL:%=$O/obj/runtime/%.o): CFLAGS += $(if $(filter release,$(VARIANT)),-Os)
# Loops over voxels; every product and sum is rounded, on each machine.
$O/obj/runtime/pipeline/blend.o: CFLAGS += $(if $(filter release,$(VARIANT)),-O3) -ffp-contract=off
$O/obj/codegen/%.o $O/obj/tools/driver/about.o: CPPFLAGS += $(LLVM_CPPFLAGS)

# $1: the name behind lib, and what exported symbols begin with; $2: what is linked
define link_shared
$(call say,LINK,$@)
$Qecho '{ global: $1_*; local: *; };' >$O/$1.exports
$Q$(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F).$(SO_VERSION) -Wl,--version-script,$O/$1.exports $(if $(SANFLAGS),,-Wl,-z,defs) \
  -o $@ $2
$Qln -sf $(@F) $@.$(SO_VERSION)
endef
comma := ,
