# SPDX-License-Identifier: Apache-2.0
# carried.mk - what cytoc carries as bytes: preludes of kernels, and for each architecture the runtime and what the linker wants.
#
# In:  ARCH, CROSS_ARCHES and tools_of of flags.mk; sources of the runtime.
# Out: build/obj/codegen/link_files_ARCH.o; build/obj/ARCH/libcyto.a; for tests a cyto-run of each other architecture.

# The compiler carries as bytes the prelude of CUDA kernels and, for each architecture that there is a C compiler for, the
# files of codegen/carried.h for the linker.
$O/obj/codegen/cuda/prelude.o: codegen/cuda/prelude.cuh codegen/cuda/prelude_matrix.cuh
$O/obj/codegen/%.o: codegen/%.S
	$(call say,AS,$<)
	$Q mkdir -p $(@D) && $(CC) -c -o $@ $<

STUBS_linux := libm libpthread libdl libc
STUBS_windows := kernel32 ucrtbase
stub_linux = CC='$3' NM=$2nm OBJDUMP=$2objdump tools/make/stub.sh
stub_windows = TOOLS=$2 tools/make/stub_windows.sh
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
$O/obj/$1/%.o: %.c | $B/gen/version.h
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
