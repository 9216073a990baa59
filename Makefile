# SPDX-License-Identifier: Apache-2.0
# Commutator: one non-recursive Makefile. `make help` lists the targets; V=1 shows the commands.
# Everything that a build makes goes below BUILD.

ROOT   := $(abspath $(dir $(lastword $(MAKEFILE_LIST))))
BUILD  ?= build
BIN    := $(BUILD)/bin
CC     ?= gcc
ifeq ($(origin CC),default)
CC     := gcc
endif
Q      := $(if $(V),,@)
say     = $(if $(V),,@printf '  %-7s %s\n' '$(1)' '$(2)';)
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

# --- flags -----------------------------------------------------------------------------------------

PACKAGES := libuv libcurl libcjson yaml-0.1 openssl libxxhash libpcre2-8 msgpack
WARN := -Wall -Wextra -Wshadow -Wundef -Wvla -Wstrict-prototypes -Wmissing-prototypes \
        -Wpointer-arith -Wcast-qual -Wwrite-strings -Wformat=2 -Wimplicit-fallthrough -Wswitch-enum
ifeq ($(CI),true)
WARN += -Werror
endif
HARDEN := -D_FORTIFY_SOURCE=2 -fstack-protector-strong
OPT    ?= -O2
ifdef SAN
OPT    := -O1
HARDEN := -fsanitize=$(SAN) -fno-sanitize-recover=all
endif
# The same objects make programs and shared libraries; hidden names keep calls among them direct in both.
SHARED := -fPIC -fvisibility=hidden
VERSION  := 0.1.0
CPPFLAGS += -I$(ROOT) -D_GNU_SOURCE -DCOMMUTATOR_VERSION='"$(VERSION)"'
CFLAGS   += -std=gnu11 $(OPT) -g -fno-omit-frame-pointer -ffunction-sections -fdata-sections $(WARN) $(HARDEN) $(SHARED)
LDFLAGS  += -pie -Wl,-z,relro,-z,now -Wl,--as-needed -Wl,--gc-sections $(if $(SAN),-fsanitize=$(SAN))
# Asked for late, so that `make deps` works on a machine that has no pkg-config yet.
PKG_CFLAGS = $(eval PKG_CFLAGS := $$(shell pkg-config --cflags $(PACKAGES)))$(PKG_CFLAGS)
PKG_LIBS   = $(eval PKG_LIBS := $$(shell pkg-config --libs $(PACKAGES)) -lnats -lzmq -lpthread -lm)$(PKG_LIBS)

# --- what there is -----------------------------------------------------------------------------------

# Layers from the bottom up; a library may use those before it.
AREAS   := lib router worker operator bench
C_ALL   := $(sort $(wildcard $(foreach a,$(AREAS),$(a)/*.c $(a)/*/*.c)))
TEST_C  := $(filter %_test.c,$(C_ALL))
FUZZ_C  := $(filter %_fuzz.c,$(C_ALL))
BENCH_C := $(filter %_bench.c,$(C_ALL))
LIB_C   := $(filter-out $(TEST_C) $(FUZZ_C) $(BENCH_C),$(C_ALL))
CMD_C   := $(wildcard cmd/*/*.c)
CMDS    := $(notdir $(patsubst %/,%,$(sort $(dir $(CMD_C)))))
obj      = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
archive  = $(BUILD)/lib/$(1).a
# Archives in link order: users first.
ARCHIVES := $(foreach a,bench operator worker router lib,$(if $(filter $(a)/%,$(LIB_C)),$(call archive,$(a))))
PROGRAM  = $(BIN)/$(if $(filter kubectl-%,$(1)),$(1),dynamo-$(1))
PROGRAMS := $(foreach c,$(CMDS),$(call PROGRAM,$(c)))
TESTS    := $(TEST_C:%.c=$(BUILD)/test/%)
BENCHES  := $(BENCH_C:%.c=$(BUILD)/bench/%)
FUZZERS  := $(FUZZ_C:%.c=$(BUILD)/fuzz/%)
# T=lib/base/json limits `check`, `fuzz` and `bench` to what starts with it.
pick     = $(if $(T),$(foreach x,$(1),$(if $(strip $(foreach t,$(T),$(findstring /$(t),/$(x)))),$(x))),$(1))

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST) | sort

.PHONY: all
all: $(PROGRAMS) ## build every program into build/bin

# --- compiling ---------------------------------------------------------------------------------------

# No fused multiply-add where routes are decided: a seeded decision has the same bits everywhere.
$(BUILD)/obj/router/sched/%.o $(BUILD)/obj/lib/base/portable_math.o: CFLAGS += -ffp-contract=off

# Other flags make other objects, and the flags are here.
$(BUILD)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) $(PKG_CFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

define archive_rule
$(call archive,$(1)): $(call obj,$(filter $(1)/%,$(LIB_C)))
	@mkdir -p $$(@D)
	$$(call say,AR,$$@)rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach a,$(AREAS),$(eval $(call archive_rule,$(a))))

define program_rule
$(call PROGRAM,$(1)): $(call obj,$(filter cmd/$(1)/%,$(CMD_C))) $(ARCHIVES)
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)$$(CC) $$(CFLAGS) $$(LDFLAGS) $$^ $$(PKG_LIBS) -o $$@
endef
$(foreach c,$(CMDS),$(eval $(call program_rule,$(c))))

$(TESTS): $(BUILD)/test/%: $(BUILD)/obj/%.o $(ARCHIVES)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(PKG_LIBS) -lcmocka -lcjson -o $@

$(BENCHES): $(BUILD)/bench/%: $(BUILD)/obj/%.o $(ARCHIVES)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(PKG_LIBS) -o $@

$(FUZZERS): $(BUILD)/fuzz/%: $(BUILD)/obj/%.o $(ARCHIVES)
	@mkdir -p $(@D)
	$(call say,LD,$@)clang $(CFLAGS) $(LDFLAGS) -fsanitize=fuzzer $^ $(PKG_LIBS) -lcjson -o $@

-include $(patsubst %.o,%.d,$(call obj,$(C_ALL) $(CMD_C)))

# --- checking ----------------------------------------------------------------------------------------

.PHONY: check check-asan check-tsan fuzz fuzzers bench
check: $(call pick,$(TESTS)) ## unit tests (T="lib/base router/kv" limits)
	$(Q)e2e/tools/run-tests $^

check-asan: ## unit tests under address and undefined-behaviour sanitizers
	$(Q)$(MAKE) BUILD=$(BUILD)/asan SAN=address,undefined check

check-tsan: ## unit tests under the thread sanitizer
	$(Q)TSAN_OPTIONS="suppressions=$(ROOT)/e2e/tools/tsan.supp $$TSAN_OPTIONS" $(MAKE) BUILD=$(BUILD)/tsan SAN=thread check

# Fuzzers are built by clang with everything instrumented, in a tree of their own.
fuzz: ## each fuzzer for FUZZ_SECONDS (60), corpora in e2e/corpus
	$(Q)$(MAKE) BUILD=$(BUILD)/fuzzing CC=clang SAN=address,undefined,fuzzer-no-link fuzz-run
fuzz-build: ## only build the fuzzers
	$(Q)$(MAKE) BUILD=$(BUILD)/fuzzing CC=clang SAN=address,undefined,fuzzer-no-link fuzzers
fuzzers: $(call pick,$(FUZZERS))
.PHONY: fuzz-run fuzz-build
fuzz-run: $(call pick,$(FUZZERS))
	$(Q)e2e/tools/run-fuzzers $(or $(FUZZ_SECONDS),60) $^

bench: all $(call pick,$(BENCHES)) ## benchmarks, one line per case, and build/bench.jsonl
	$(Q)e2e/tools/run-bench $(BUILD) $(call pick,$(BENCHES))

.PHONY: lint format
lint: ## include edges, banned calls, lengths, formatting of what changed
	$(Q)e2e/tools/lint

format: ## clang-format every C file
	$(Q)clang-format -i $$(git ls-files '*.c' '*.h')

-include mk/*.mk

.PHONY: clean
clean: ## remove build/
	$(Q)rm -rf $(BUILD)
