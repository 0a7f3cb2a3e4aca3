# SPDX-License-Identifier: Apache-2.0
# portable.mk - programs and libraries for machines that have glibc and nothing else, and the Python wheel made of them.
#
# In:  objects of the product and of some tests.
# Out: portable (build/portable), wheel (dist/).

# Programs for machines that have glibc and nothing else: with LLVM and the other libraries in them where these come as
# archives. carry.py puts what is left beside them, into lib.
.PHONY: portable
PORTABLE := cytoc cyto-run cyto-bench cyto-compare cyto-tune node_run device_test
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
$O/portable/cyto-run $O/portable/cyto-bench $O/portable/cyto-compare $O/portable/cyto-tune: $O/portable/%: $O/obj/tools/%.o $(TOOLS_LIB) $(RUNTIME_LIB) $(PB_OBJ)
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
