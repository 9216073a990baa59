# SPDX-License-Identifier: Apache-2.0
# The test cluster and the container image.

CLUSTER   := env BUILD=$(abspath $(BUILD)) $(ROOT)/e2e/cluster/cluster
IMAGE_TAR := $(BUILD)/image/dynamo-dev.tar

.PHONY: cluster-up cluster-down image image-load
cluster-up: ## start the Kubernetes test cluster (installs and builds what it needs)
	$(Q)$(CLUSTER) up

cluster-down: ## stop the test cluster and remove its state
	$(Q)$(CLUSTER) down

$(IMAGE_TAR): $(PROGRAMS) $(CAPI_SHARED) $(shell find $(ROOT)/image $(wildcard $(ROOT)/examples/model) -type f)
	$(Q)$(ROOT)/image/build $(BIN) $@

image: $(IMAGE_TAR) ## make the container image build/image/dynamo-dev.tar

image-load: $(IMAGE_TAR) ## give the image to the running cluster
	$(Q)$(CLUSTER) load $<
