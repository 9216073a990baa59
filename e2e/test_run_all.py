# SPDX-License-Identifier: Apache-2.0
"""`run-all`, ended while stages run, leaves nothing running: what it starts beside them is in groups of its own."""

import contextlib
import os
import shutil
import signal
import subprocess

import pytest

from conftest import ROOT
from stack import PATIENCE, until

# Each stage says that it runs, then ends only by a signal; the tests among them tidy up first.
MAKEFILE = """
.PHONY: lint e2e-ready check-asan e2e-run fuzz
lint: ; @true
e2e-ready: ; @true
check-asan: ; @exec ./stage asan
e2e-run: ; @exec ./stage $(PART)
fuzz: ; @exec ./stage fuzz
"""
STAGE = """#!/usr/bin/env python3
import os, pathlib, signal, sys
path = pathlib.Path(sys.argv[1])
fresh = path.with_suffix(".fresh")
fresh.write_text(str(os.getpid()))
try:
    fresh.rename(path)
    signal.pause()
finally:
    path.with_suffix(".tidy").touch()
"""


@pytest.fixture
def tree(tmp_path):
    tools = tmp_path / "e2e/tools"
    tools.mkdir(parents=True)
    shutil.copy(ROOT / "e2e/tools/run-all", tools)
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "stage").write_text(STAGE)
    (tmp_path / "stage").chmod(0o755)
    return tmp_path


def alive(pid):
    with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize("stages, running", [("lint asan e2e", ("asan", "nodes")), ("lint e2e fuzz", ("nodes", "others", "fuzz"))])
@pytest.mark.parametrize("ignored", [False, True], ids=["", "interrupts-ignored"])
def test_a_signal_ends_all_groups(tree, stages, running, ignored):
    """Also where interrupts are ignored, as by what a script puts into the background."""
    def prepare():
        signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")} | {"STAGES": stages}
    with subprocess.Popen([tree / "e2e/tools/run-all"], env=env, preexec_fn=prepare, start_new_session=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as program:
        until(f"{running} run", lambda: all((tree / name).exists() for name in running))
        program.terminate()
        said = program.communicate(timeout=PATIENCE)[0]
    assert program.returncode == 128 + signal.SIGTERM, said
    for name in running:
        until(f"{name} has ended", lambda: not alive(int((tree / name).read_text())))
        assert (tree / name).with_suffix(".tidy").exists(), f"{name} was killed\n{said}"
    assert "Killed" not in said
