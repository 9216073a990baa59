# SPDX-License-Identifier: Apache-2.0
# The Python environment of the end-to-end tests, remade when its pins change.

VENV       := $(BUILD)/venv
VENV_STAMP := $(VENV)/.stamp
PYTEST     := env BUILD=$(abspath $(BUILD)) PYTHONDONTWRITEBYTECODE=1 $(abspath $(VENV))/bin/python \
              -m pytest -p no:cacheprovider -c $(ROOT)/e2e/pytest.ini --rootdir=$(ROOT)/e2e

$(VENV_STAMP): e2e/requirements.txt
	@mkdir -p $(@D)
	$(call say,VENV,$(VENV))python3 -m venv --clear $(VENV)
	$(Q)$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

.PHONY: venv
venv: $(VENV_STAMP)

# Charts and CRDs against a bare API server: no root, no cluster, two minutes.
.PHONY: check-charts
check-charts: $(VENV_STAMP) $(BIN)/dynamo-operator ## CRDs and charts against an API server
	$(Q)$(PYTEST) -q -m 'not cluster' e2e/test_crds.py e2e/test_charts.py

# Frontend and workers as processes on loopback: no root, no cluster, eight minutes.
.PHONY: check-serving reference-venv
check-serving: $(VENV_STAMP) all reference-venv ## frontend, routing, explanations, worker loss, SDK and interop on loopback
	$(Q)$(PYTEST) -q $(addprefix e2e/test_,frontend.py routing.py queue.py replicas.py remote_indexer.py explain.py worker_loss.py sdk.py \
	    disagg.py router_service.py warm_restart.py migration.py metric_names.py combinations.py index_service.py select_service.py select_peers.py \
	    slot_service.py messages.py interop.py text_workers.py text_dialects.py embeddings.py trace.py spans.py tls.py policy_interop.py shared_cache.py events.py stock_engine.py bridge.py devices.py affinity.py shutdown.py llm_capi.py)

# Made before the tests enter the cluster's network, where no registry is reachable.
REFERENCES := 0.9.0 1.4.2 1.6.1
reference-venv:
	$(call say,VENV,ai-dynamo $(REFERENCES)){ for v in $(REFERENCES); do e2e/tools/reference-venv $$v || exit 1; done; } >/dev/null || \
	    echo 'no ai-dynamo here: its tests are left out'
	$(call say,VENV,mooncake)e2e/tools/mooncake-venv >/dev/null || echo 'no Mooncake here: its test is left out'
e2e-ready: reference-venv

# Not of `make test`: minutes to start, gigabytes to load.
.PHONY: e2e-vllm
e2e-vllm: $(VENV_STAMP) all ## the real vLLM, on CPUs, behind our frontend (T=dynamo for ai-dynamo's worker of it only)
	$(call say,VENV,vllm: the first time some 7 GB from the package index)e2e/tools/vllm-venv >/dev/null
	$(Q)$(PYTEST) -q e2e/engines/test_$(T)*.py
