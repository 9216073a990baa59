# SPDX-License-Identifier: Apache-2.0
# The C interface of the router as libraries, shared and static, one of each generation (router/epp/README.md). They are made of
# the objects of the programs; those that generations differ in are compiled once for each.

CAPI             := $(BUILD)/lib/llm_capi
CAPI_GENERATIONS := plain ranks namespaces
CAPI_MAP         := router/epp/llm_capi.map
CAPI_SHARED      := $(CAPI_GENERATIONS:%=$(CAPI)/%/libdynamo_llm_capi.so)
CAPI_plain       := LLM_CAPI_PLAIN
CAPI_ranks       := LLM_CAPI_RANKS
CAPI_namespaces  := LLM_CAPI_NAMESPACES
CAPI_C           := llm_capi llm_engine
capi_made         = $(BUILD)/obj/llm_capi/$(1)
capi_objects      = $(CAPI_C:%=$(capi_made)/%.o) $(if $(filter plain,$(1)),$(call obj,router/epp/llm_pipeline.c))

.PHONY: capi
capi: $(CAPI_SHARED) $(CAPI_SHARED:.so=.a) ## build/lib/llm_capi: the router's C interface, a library for each generation of it

define capi_rule
$(CAPI_C:%=$(capi_made)/%.o): $(capi_made)/%.o: router/epp/%.c Makefile
	@mkdir -p $$(@D)
	$$(call say,CC,$$<)$$(CC) $$(CPPFLAGS) -DLLM_CAPI_GENERATION=$(CAPI_$(1)) $$(PKG_CFLAGS) $$(CFLAGS) -MMD -MP -c $$< -o $$@
-include $(CAPI_C:%=$(capi_made)/%.d)

$(CAPI)/$(1)/libdynamo_llm_capi.so: $(capi_objects) $(call archive,router) $(call archive,lib) $(CAPI_MAP)
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)$$(CC) $$(CFLAGS) -shared $$(filter-out -pie,$$(LDFLAGS)) -Wl,-soname,$$(notdir $$@) \
	    -Wl,--version-script=$(CAPI_MAP) -Wl,-z,defs $$(filter %.o %.a,$$^) $$(PKG_LIBS) -o $$@

# One object with what it needs of ours, whose other names no program sees; what it needs of others is named beside it.
$(CAPI)/$(1)/libdynamo_llm_capi.a: $(capi_objects) $(call archive,router) $(call archive,lib) $(CAPI_MAP)
	@mkdir -p $$(@D)
	$$(call say,AR,$$@)rm -f $$@ && $$(LD) -r $$(filter %.o %.a,$$^) -o $(capi_made)/all.o && \
	    sed -n 's/^ *\([a-z_]*\);$$$$/\1/p' $(CAPI_MAP) > $(capi_made)/names && \
	    objcopy --keep-global-symbols=$(capi_made)/names $(capi_made)/all.o && \
	    $$(AR) rcs $$@ $(capi_made)/all.o && echo '$$(PKG_LIBS)' > $$(@:.a=.libs)
endef
$(foreach g,$(CAPI_GENERATIONS),$(eval $(call capi_rule,$(g))))

e2e-ready check-serving: capi
