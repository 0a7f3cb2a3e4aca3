# SPDX-License-Identifier: Apache-2.0
# generated.mk - code that is made while building: the reader of ONNX's protobuf, the version, the hash of the sources.
#
# In:  ONNX_PROTO of build/config.mk; sources below COMPILER_DIRS, runtime, tools.
# Out: build/gen.

$B/gen/onnx.pb-c.c: $(ONNX_PROTO) $B/config.mk
	$(call say,PROTOC,$@)
	$Q mkdir -p $(@D) && cp $(ONNX_PROTO) $B/gen/onnx.proto && protoc-c -I$B/gen --c_out=$B/gen $B/gen/onnx.proto
$B/gen/onnx.pb-c.h: $B/gen/onnx.pb-c.c ;

# Another version makes those objects again that say it: .d files name them.
$B/gen/version.h: always
	$Q mkdir -p $(@D) && echo '#define CYTO_VERSION "$(CYTO_VERSION)"' | cmp -s - $@ || \
	  echo '#define CYTO_VERSION "$(CYTO_VERSION)"' >$@

# What the sources of the compiler are, for keys of caches.
REVISION_OF := $(sort $(foreach e,.c .h .S .def .cuh,$(call below,$e,$(COMPILER_DIRS) runtime tools)))
$B/gen/revision.h: $(REVISION_OF)
	$Q mkdir -p $(@D) && printf '#define CYTOC_REVISION "%.16s"\n' "$$(cat $^ | sha256sum)" >$@
$O/obj/tools/driver/about.o $O/obj/tools/bench/bench_report.o: $B/gen/revision.h

$(PB_OBJ): $B/gen/onnx.pb-c.c $O/flags
	$(call say,CC,$<)
	$Q mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) -w -c -o $@ $<
