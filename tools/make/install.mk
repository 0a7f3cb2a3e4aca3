# SPDX-License-Identifier: Apache-2.0
# install.mk - what `make install` writes and `make uninstall` takes away; `make clean`.
#
# In:  PREFIX, DESTDIR; binaries and libraries of the Makefile.

.PHONY: install uninstall clean

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
	$Q $(if $(TRITON_BACKEND),install -D -m 644 $(TRITON_BACKEND) -t $(DESTDIR)$(PREFIX)/lib/$(TRITON_PLACE))
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
	$Q install -m 644 runtime/cyto.h runtime/cyto.hpp runtime/cyto_abi.h runtime/cyto_pipeline.h $(if $(LLVM_CONFIG),tools/driver/cytoc.h) $(DESTDIR)$(PREFIX)/include

# All that `make install` with the same PREFIX and DESTDIR writes; folders of others stay.
uninstall:
	$Q rm -f $(addprefix $(DESTDIR)$(PREFIX)/,$(patsubst %,bin/%,cytoc $(ALL_TOOLS)) \
	  $(foreach l,$(RUNTIME_LIB) $(CYTOC_LIB),lib/$(notdir $l)) \
	  $(foreach l,$(SHARED_LIBS),$(foreach v,$(CYTO_VERSION) $(SO_VERSION),lib/$(notdir $l).$v) lib/$(notdir $l)) \
	  lib/libcytoc_onnxruntime.so lib/pkgconfig/cyto.pc lib/pkgconfig/cytoc.pc include/cyto.h include/cyto.hpp include/cyto_abi.h include/cyto_pipeline.h include/cytoc.h \
	  $(foreach t,cytoc $(ALL_TOOLS),$(foreach f,$(TEXTS),$(call text_file,$f,$t))))
	$Q rm -rf $(addprefix $(DESTDIR)$(PREFIX)/,share/cyto lib/cyto lib/cmake/cyto lib/$(TRITON_PLACE))

# build/venv and the downloads stay: they are the slow part, and setup.sh keeps them right.
clean:
	$Q find $B -mindepth 1 -maxdepth 1 ! -name venv -exec rm -rf {} + 2>/dev/null || true
