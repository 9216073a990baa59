# SPDX-License-Identifier: Apache-2.0
# The Python environment of the end-to-end tests, remade when its pins change.

VENV := $(BUILD)/venv
VENV_STAMP := $(VENV)/.stamp
PYTEST := env BUILD=$(abspath $(BUILD)) PYTHONDONTWRITEBYTECODE=1 \
	$(VENV)/bin/python -m pytest -p no:cacheprovider -c $(ROOT)/e2e/pytest.ini --rootdir=$(ROOT)/e2e

$(VENV_STAMP): $(ROOT)/e2e/requirements.txt
	$(Q)echo "  VENV    $(VENV)"
	$(Q)python3 -m venv --clear $(VENV)
	$(Q)$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps -r $<
	$(Q)touch $@

.PHONY: venv
venv: $(VENV_STAMP)
