# SPDX-License-Identifier: Apache-2.0
# The C interface of the router as a shared library; its objects are compiled for that in a tree of their own.

CAPI        := $(BUILD)/lib/libdynamo_llm_capi.so
CAPI_MAP    := router/epp/llm_capi.map
CAPI_HARDEN := $(filter-out -fPIE,$(HARDEN)) -fPIC -fvisibility=hidden

.PHONY: capi
capi: ## build/lib/libdynamo_llm_capi.so, for endpoint pickers
	$(Q)$(MAKE) BUILD=$(BUILD)/pic HARDEN='$(CAPI_HARDEN)' CAPI='$(CAPI)' '$(CAPI)'

ifeq ($(notdir $(BUILD)),pic)
$(CAPI): $(call obj,router/epp/llm_capi.c) $(call archive,router) $(call archive,lib) $(CAPI_MAP)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) -shared $(filter-out -pie,$(LDFLAGS)) -Wl,-soname,$(notdir $(CAPI)) \
	    -Wl,--version-script=$(CAPI_MAP) -Wl,-z,defs $(filter %.o %.a,$^) $(PKG_LIBS) -o $@
endif

e2e check-serving: capi
