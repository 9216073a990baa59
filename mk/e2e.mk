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

# Frontend and workers as processes on loopback: no root, no cluster, four minutes.
.PHONY: check-serving reference-venv
check-serving: $(VENV_STAMP) all reference-venv ## frontend, routing, worker loss, SDK and interop on loopback
	$(Q)$(PYTEST) -q $(addprefix e2e/test_,frontend.py routing.py worker_loss.py sdk.py interop.py)

# Made before the tests enter the cluster's network, where no registry is reachable.
reference-venv:
	$(call say,VENV,ai-dynamo 0.9.0)e2e/tools/reference-venv >/dev/null || echo 'no ai-dynamo here: its tests are left out'
e2e: reference-venv
