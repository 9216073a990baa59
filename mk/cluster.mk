# SPDX-License-Identifier: Apache-2.0
# The test cluster and the container image. Needs ROOT, BUILD and BIN.
CLUSTER := BUILD=$(BUILD) $(ROOT)/e2e/cluster/cluster
IMAGE_TAR := $(BUILD)/image/dynamo-dev.tar

.PHONY: cluster-up cluster-down image image-load

cluster-up:    ## Start the Kubernetes test cluster (root; installs and builds what it needs)
	@$(CLUSTER) up

cluster-down:  ## Stop the test cluster and remove its state
	@$(CLUSTER) down

image: all     ## Build the container image as a tar, without a registry
	@$(ROOT)/image/build $(BIN) $(IMAGE_TAR)

image-load: image  ## Build the image and give it to the running cluster
	@$(CLUSTER) load $(IMAGE_TAR)
