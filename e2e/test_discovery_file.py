# SPDX-License-Identifier: Apache-2.0
"""Discovery through a folder that somebody deletes under living workers."""

import contextlib
import shutil

from stack import Stack, until


def delete(folder):
    """Again if a worker has written a record anew between two steps of it."""
    while folder.exists():
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
            return


def test_deleted_folder_takes_no_healthy_worker(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        stack.mocker(workers=2)
        dead = stack.mocker()
        stack.frontend("--discovery-keep", "8s")
        stack.ready(3)
        before = set(stack.instances())
        dead.kill()
        delete(stack.kv / "v1")
        stack.front.wait_log("discovery is down")
        stack.front.wait_log("discovery is up")
        assert stack.workers() == 3
        stack.chat("Hello")
        until("the living ones write themselves again", lambda: stack.metric("commutator_discovery_kept_workers") == 1)
        until("the dead one is given up", lambda: stack.workers() == 2)
        assert set(stack.instances()) < before
        assert stack.metric("commutator_discovery_records", state="restored") > 0
