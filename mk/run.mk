# SPDX-License-Identifier: Apache-2.0
# What a user runs: packages, the demo, its small brother, and all tests.

APT_PACKAGES := gcc g++ clang clang-format clang-tidy make pkg-config libclang-rt-14-dev libuv1-dev \
                libcurl4-openssl-dev libcjson-dev libyaml-dev libssl-dev libxxhash-dev libpcre2-dev \
                libmsgpack-dev libnats-dev libzmq3-dev libcmocka-dev python3 python3-venv jq curl \
                ca-certificates busybox-static binutils shellcheck

.PHONY: deps demo try e2e e2e-ready e2e-run test
deps: ## install the Debian packages that building and testing need
	$(Q)e2e/tools/apt-need $(APT_PACKAGES)

# Each of these may run on a machine that has nothing yet, so the packages come first.
demo: deps ## set up all it needs, run the main job on Kubernetes and show it
	$(Q)$(MAKE) image
	$(Q)BUILD=$(abspath $(BUILD)) e2e/demo/demo

try: ## the A/B comparison as processes on loopback: no Kubernetes, no root
	$(Q)$(MAKE) all
	$(Q)BUILD=$(abspath $(BUILD)) e2e/demo/try

# In the cluster's network, where pods and Services have addresses; its files are the machine's.
e2e: e2e-ready ## end-to-end tests, on the cluster (T=routing limits)
	$(Q)$(MAKE) e2e-run

e2e-ready: $(VENV_STAMP) $(IMAGE_TAR)
	$(Q)$(CLUSTER) up
	$(Q)$(CLUSTER) load $(IMAGE_TAR)

e2e-run:
	$(Q)T='$(T)' $(CLUSTER) in $(ROOT)/e2e/tools/run-e2e $(PYTEST) -q

test: deps ## set up all it needs, then run every test
	$(Q)BUILD=$(abspath $(BUILD)) e2e/tools/run-all
