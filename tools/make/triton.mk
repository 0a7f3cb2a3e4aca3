# SPDX-License-Identifier: Apache-2.0
# triton.mk - the backend for Triton Inference Server (docs/triton.md).
#
# Out: backends/cytoc/libtriton_cytoc.so of the build's folder; `tritonserver --backend-directory=build/backends` finds it.

.PHONY: triton

SRC_triton := $(wildcard integrations/triton/*.c integrations/shared/*.c)
TRITON_BACKEND := $(if $(filter fuzz,$(VARIANT)),,$O/backends/cytoc/libtriton_cytoc.so)
# Below PREFIX/lib.
TRITON_PLACE := tritonserver/backends/cytoc

all: $(TRITON_BACKEND)

triton: $(TRITON_BACKEND) $(filter %/libcytoc.so,$(SHARED_LIBS))

# The functions of Triton's interface are the server's, and stay open here. As threads of the runtime do, it stays when the
# server closes it.
$O/backends/cytoc/libtriton_cytoc.so: $(call obj,$(SRC_triton)) $(RUNTIME_LIB)
	$(call say,LINK,$@)
	$Q mkdir -p $(@D) && $(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--exclude-libs,ALL,-z,nodelete -o $@ $^ \
	  -ljansson -lz $(RUNTIME_LIBS)
