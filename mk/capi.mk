# SPDX-License-Identifier: Apache-2.0
# The C interface of the router as libraries, shared and static, one of each generation (router/epp/README.md). All objects are
# compiled for that in a tree of their own; those that generations differ in once for each.

CAPI             := $(BUILD)/lib/llm_capi
CAPI_GENERATIONS := plain ranks namespaces
CAPI_MAP         := router/epp/llm_capi.map
CAPI_HARDEN      := $(filter-out -fPIE,$(HARDEN)) -fPIC -fvisibility=hidden
CAPI_SHARED      := $(CAPI_GENERATIONS:%=$(CAPI)/%/libdynamo_llm_capi.so)

.PHONY: capi
capi: ## build/lib/llm_capi: the router's C interface, a library for each generation of it
	$(Q)$(MAKE) BUILD=$(BUILD)/pic HARDEN='$(CAPI_HARDEN)' CAPI='$(CAPI)' $(CAPI_SHARED) $(CAPI_SHARED:.so=.a)

ifeq ($(notdir $(BUILD)),pic)
CAPI_plain      := LLM_CAPI_PLAIN
CAPI_ranks      := LLM_CAPI_RANKS
CAPI_namespaces := LLM_CAPI_NAMESPACES
CAPI_C          := llm_capi llm_engine
capi_objects     = $(foreach c,$(CAPI_C),$(BUILD)/obj/$(1)/$(c).o) $(if $(filter plain,$(1)),$(call obj,router/epp/llm_pipeline.c))

define capi_rule
$(foreach c,$(CAPI_C),$(BUILD)/obj/$(1)/$(c).o): $(BUILD)/obj/$(1)/%.o: router/epp/%.c
	@mkdir -p $$(@D)
	$$(call say,CC,$$<)$$(CC) $$(CPPFLAGS) -DLLM_CAPI_GENERATION=$(CAPI_$(1)) $$(PKG_CFLAGS) $$(CFLAGS) -MMD -MP -c $$< -o $$@
-include $(foreach c,$(CAPI_C),$(BUILD)/obj/$(1)/$(c).d)

$(CAPI)/$(1)/libdynamo_llm_capi.so: $(call capi_objects,$(1)) $(call archive,router) $(call archive,lib) $(CAPI_MAP)
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)$$(CC) $$(CFLAGS) -shared $$(filter-out -pie,$$(LDFLAGS)) -Wl,-soname,$$(notdir $$@) \
	    -Wl,--version-script=$(CAPI_MAP) -Wl,-z,defs $$(filter %.o %.a,$$^) $$(PKG_LIBS) -o $$@

# One object with what it needs of ours, whose other names no program sees; what it needs of others is named beside it.
$(CAPI)/$(1)/libdynamo_llm_capi.a: $(call capi_objects,$(1)) $(call archive,router) $(call archive,lib) $(CAPI_MAP)
	@mkdir -p $$(@D)
	$$(call say,AR,$$@)rm -f $$@ && $$(LD) -r $$(filter %.o %.a,$$^) -o $(BUILD)/obj/$(1)/all.o && \
	    sed -n 's/^ *\([a-z_]*\);$$$$/\1/p' $(CAPI_MAP) > $(BUILD)/obj/$(1)/names && \
	    objcopy --keep-global-symbols=$(BUILD)/obj/$(1)/names $(BUILD)/obj/$(1)/all.o && \
	    $$(AR) rcs $$@ $(BUILD)/obj/$(1)/all.o && echo '$$(PKG_LIBS)' > $$(@:.a=.libs)
endef
$(foreach g,$(CAPI_GENERATIONS),$(eval $(call capi_rule,$(g))))
else
# What needs them is made again when they have changed, and not because somebody looked.
$(CAPI_SHARED): capi
	@:
endif

e2e-ready check-serving: capi
