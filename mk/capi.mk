# SPDX-License-Identifier: Apache-2.0
# The C interface of the router as a library, shared and static; its objects are compiled for that in a tree of their own.

CAPI        := $(BUILD)/lib/libdynamo_llm_capi.so
CAPI_STATIC := $(CAPI:.so=.a)
CAPI_MAP    := router/epp/llm_capi.map
CAPI_HARDEN := $(filter-out -fPIE,$(HARDEN)) -fPIC -fvisibility=hidden

.PHONY: capi
capi: ## build/lib/libdynamo_llm_capi.so and .a, for endpoint pickers
	$(Q)$(MAKE) BUILD=$(BUILD)/pic HARDEN='$(CAPI_HARDEN)' CAPI='$(CAPI)' '$(CAPI)' '$(CAPI_STATIC)'

ifeq ($(notdir $(BUILD)),pic)
$(CAPI): $(call obj,router/epp/llm_capi.c) $(call archive,router) $(call archive,lib) $(CAPI_MAP)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) -shared $(filter-out -pie,$(LDFLAGS)) -Wl,-soname,$(notdir $(CAPI)) \
	    -Wl,--version-script=$(CAPI_MAP) -Wl,-z,defs $(filter %.o %.a,$^) $(PKG_LIBS) -o $@

# One object with what it needs of ours, whose other names no program sees; what it needs of others is named beside it.
$(CAPI_STATIC): $(call obj,router/epp/llm_capi.c) $(call archive,router) $(call archive,lib) $(CAPI_MAP)
	@mkdir -p $(@D)
	$(call say,AR,$@)rm -f $@ && $(LD) -r $(filter %.o %.a,$^) -o $(BUILD)/llm_capi_all.o && \
	    sed -n 's/^ *\([a-z_]*\);$$/\1/p' $(CAPI_MAP) > $(BUILD)/llm_capi.names && \
	    objcopy --keep-global-symbols=$(BUILD)/llm_capi.names $(BUILD)/llm_capi_all.o && \
	    $(AR) rcs $@ $(BUILD)/llm_capi_all.o && echo '$(PKG_LIBS)' > $(@:.a=.libs)
endif

e2e-ready check-serving: capi
