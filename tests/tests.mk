# SPDX-License-Identifier: Apache-2.0
# tests.mk - programs and data of the tests, and the goals that run them (README.md beside this file).
#
# In:  the lists, flags and libraries of the Makefile.
# Out: tests, RUN_SUITES, check-SUITE, golden, same, where, bench, calibrate-cpu, carry, fuzz.

# ---- what there is

SRC_cudart := $(patsubst %,tests/cuda/%_test.c,model memory capture checks steps devices driver tools cudnn cublaslt search found triton)
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
SRC_ctest := $(filter-out tests/codegen/% tests/cuda/%,$(SRC_ctest))
endif

ctest_bin = $(patsubst tests/%.c,$O/tests/%,$1)
UNIT_TESTS := $(call ctest_bin,$(SRC_ctest) $(SRC_drivertest) $(SRC_rttest) $(if $(LLVM_CONFIG),$(SRC_cudart) $(SRC_device)))
EMULATOR_ROM := $(if $(filter x86_64,$(shell uname -m)),$O/tests/emulate/rom.bin)
CROSS_RUNS := $(patsubst %,$O/tests/emulate/cyto-run-%,$(filter-out %_windows,$(CROSS_ARCHES)))
WINDOWS_RUNS := $(if $(and $(filter x86_64_windows,$(CROSS_ARCHES)),$(filter release,$(VARIANT))), \
  $O/tests/windows/run_list $O/tests/windows/run_list.exe)
COUNTED := $(if $(filter x86_64,$(ARCH)),$(if $(filter release,$(VARIANT)),$O/tests/onnxruntime/counted.so))
FAILING_ALLOC := $(if $(filter release,$(VARIANT)),$O/tests/failing_alloc.so)
RUN_BINS := $(if $(LLVM_CONFIG),$O/tests/threads/run_many $O/tests/grown/run_steps)
NODE_RUN := $(patsubst tests/onnx/%.c,$O/tests/%,$(wildcard tests/onnx/*_run.c))

# ---- goals

.PHONY: tests check-cuda same where golden bench calibrate-cpu carry fuzz

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

# SINCE: what CI has before the change, if git knows it.
SINCE ?= $(if $(CI_BASE),$(shell git rev-parse -q --verify '$(CI_BASE)^{commit}' 2>/dev/null))
# T=PATTERN: only what has that in its name, whichever suite and language (a regular expression). SINCE=COMMIT: behind it what takes
# long, as far as changes since then concern it.
RUN_SUITES = $B/venv/bin/python tests/run_all.py --build $O --variant $(VARIANT) $(if $T,--only '$T') $(if $(SINCE),--since '$(SINCE)')

check-%: tests $B/test-tools
	$Q $(RUN_SUITES) $*

# What takes longer still: the table LONG of run_all.py.
.PHONY: check-long
check-long: tests $B/test-tools
	$Q $(RUN_SUITES) --long

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

# What a machine with a GPU and no build tools is sent (CARRY= gives options: tests/cuda/carry/carry.py).
carry: tests portable $B/test-tools
	$Q $B/venv/bin/python tests/cuda/carry/carry.py --build $O $(CARRY)

bench: all
	$Q $B/venv/bin/python tests/bench/run.py --build $O

# Fits codegen/cpu/machine.def to this CPU: make calibrate-cpu prints the row, CALIBRATE=--write changes it.
calibrate-cpu: all
	$Q $B/venv/bin/python tests/bench/calibrate_cpu.py --build $O $(CALIBRATE)

# ---- programs

# Tests that refer to data of a library want its address there, not a copy in the program.
$O/obj/tests/rt/%.o: CFLAGS += -fPIC
$O/obj/tests/cuda/%.o $O/obj/tests/codegen/%.o: CPPFLAGS += $(LLVM_CPPFLAGS)

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
SHIM_HEADERS := tests/cuda/shim/shim.h tests/cuda/shim/shim_map.h codegen/cuda/prelude.cuh
$(SHIM_OBJECT): tests/cuda/shim/shim.c tests/cuda/shim/shim_matrix.c tests/cuda/shim/shim_tensor.c $(SHIM_HEADERS)
	$(call say,CC,$@)
	$Q mkdir -p $(@D) && $(SHIM_CC) -o $@ $(filter %.c,$^)
$O/tests/cuda/kernels_test: | $(SHIM_OBJECT)
# How they are compiled: -Og takes half of the time of -O1, and what comes of it runs nearly as fast.
SHIM_FLAGS := -std=gnu11 -mf16c -Og -w -fno-strict-aliasing $(if $(filter asan,$(VARIANT)),-fsanitize=address) \
  -shared -fPIC -I. -include tests/cuda/shim/shim.h
# What every one of kernels that came as PTX is linked with, too.
SHIM_PTX_OBJECT := $O/tests/cuda/mock/shim_ptx.o
SHIM_DEFINES := -DCY_SHIM_OBJECT='"$(SHIM_OBJECT)"' -DCY_SHIM_PTX_OBJECT='"$(SHIM_PTX_OBJECT)"' \
  -DCY_SHIM_FLAGS='"$(SHIM_FLAGS)"'
$O/obj/tests/cuda/kernels_test.o $O/obj/tests/cuda/ptx_test.o: CPPFLAGS += $(SHIM_DEFINES)
$(SHIM_PTX_OBJECT): tests/cuda/shim/shim_ptx.c tests/cuda/shim/shim_traffic.c tests/cuda/shim/shim_ptx.h $(SHIM_HEADERS)
	$(call say,CC,$@)
	$Q mkdir -p $(@D) && $(SHIM_CC) -ffp-contract=off -frounding-math -o $@ $(filter %.c,$^)
$O/tests/cuda/ptx_test: | $(SHIM_OBJECT) $(SHIM_PTX_OBJECT)

# The CUDA runtime's test: whole models, with mocks of NVIDIA's libraries under their names.
CUDA_MOCKS := $O/tests/cuda/mock/libcuda.so.1 $O/tests/cuda/mock/lib64/libnvrtc.so.13 \
  $O/tests/cuda/mock/cudnn/libcudnn.so.9 $O/tests/cuda/mock/cublas/libcublasLt.so.13
$(call ctest_bin,$(SRC_cudart)): $O/tests/%: $O/obj/tests/%.o $(RUNTIME_LIB) \
  | $(CUDA_MOCKS) $O/cytoc $O/cyto-run $O/cyto-bench $O/cyto-tune
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -o $@ $^ $(RUNTIME_LIBS)

# The program is the server, whose functions the backend finds in it.
$O/tests/cuda/triton_test: LDFLAGS += -rdynamic
$O/tests/cuda/triton_test: | $(TRITON_BACKEND)

$O/tests/cuda/mock/libcuda.so.1: $(patsubst %,tests/cuda/mock/mock_%.c,cuda memory stream module) tests/cuda/mock/mock_internal.h \
  tests/cuda/mock/mock_cuda.h tests/cuda/shim/shim_map.h tests/check.h | $(SHIM_OBJECT) $(SHIM_PTX_OBJECT)
MOCK_LIBRARY := tests/cuda/mock/mock_library.h tests/cuda/mock/mock_cuda.h
$O/tests/cuda/mock/lib64/libnvrtc.so.13: tests/cuda/mock/mock_nvrtc.c
$O/tests/cuda/mock/cudnn/libcudnn.so.9: tests/cuda/mock/mock_cudnn.c tests/cuda/mock/mock_cudnn.h $(MOCK_LIBRARY) \
  runtime/half.h runtime/cuda/cudnn_numbers.h
$O/tests/cuda/mock/cublas/libcublasLt.so.13: tests/cuda/mock/mock_cublaslt.c tests/cuda/mock/mock_cublaslt.h $(MOCK_LIBRARY) \
  runtime/half.h runtime/cuda/cublaslt_numbers.h
$(CUDA_MOCKS):
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) -I. -Iruntime -std=gnu11 -O2 -g $(WARN) $(SANFLAGS) $(SHIM_DEFINES) -fPIC -shared \
	  -Wl,-soname,$(@F) -o $@ $(filter %.c,$^) -ldl -lm

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
