# SPDX-License-Identifier: Apache-2.0
"""A frontend that starts again knows what its workers hold: from its file, completed by what they tell of since."""

import pytest

from stack import COMPLETIONS, MODEL, Stack, decision_for, until

BLOCKS = 20
PROMPT = list(range(5000, 5000 + 16 * BLOCKS))
FLAGS = ("--router-mode", "kv")


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path) as stack:
        yield stack


def cached(stack, prompt=PROMPT):
    """Blocks that the router knew its chosen worker to hold."""
    answer = stack.request("POST", COMPLETIONS, stack.body(prompt, COMPLETIONS))
    assert answer.status == 200, answer.body
    return decision_for(stack, answer).selected["cached"]


def up(stack):
    stack.folder.joinpath("index").mkdir()
    stack.up(*FLAGS, workers=2, DYN_ROUTER_INDEX_DIR=stack.folder / "index", DYN_ROUTER_INDEX_PERIOD="1s")
    assert cached(stack) == 0
    until("the prompt's blocks are indexed",
          lambda: (stack.metric("commutator_router_index_blocks", model=MODEL) or 0) >= BLOCKS)


def again(stack, workers=2):
    stack.frontend(*FLAGS, DYN_ROUTER_INDEX_DIR=stack.folder / "index", DYN_ROUTER_INDEX_PERIOD="1s")
    stack.ready(workers)


def dumps(stack):
    return stack.metric("commutator_router_kv_recoveries_total", kind="dump") or 0


def test_a_graceful_stop_leaves_all(stack):
    up(stack)
    assert stack.front.stop() == 0
    again(stack)
    assert cached(stack) == BLOCKS
    assert stack.metric("commutator_router_index_restored_blocks") >= BLOCKS
    assert dumps(stack) == 0


def test_what_came_after_the_file_was_written_is_asked_for(stack):
    up(stack)
    written = lambda: stack.metric("commutator_router_index_writes_total", outcome="ok") or 0
    begun = written()
    until("the index is in its file", lambda: written() >= begun + 2)  # the next one may have begun before
    before = stack.folder.joinpath("index").glob("*.index").__next__().read_bytes()
    later = [token + 9000 for token in PROMPT]
    assert cached(stack, later) == 0
    until("its blocks are indexed",
          lambda: (stack.metric("commutator_router_index_blocks", model=MODEL) or 0) >= 2 * BLOCKS)
    stack.front.kill()
    stack.folder.joinpath("index").glob("*.index").__next__().write_bytes(before)
    again(stack)
    assert cached(stack) == BLOCKS
    until("what came since is known, too", lambda: cached(stack, later) == BLOCKS)
    assert dumps(stack) == 0


def test_workers_that_are_gone_leave_nothing(stack):
    up(stack)
    assert stack.front.stop() == 0
    assert stack.worker.stop() == 0
    stack.worker = stack.mocker(workers=2)
    again(stack)
    assert cached(stack) == 0


def test_a_damaged_file_is_passed_over(stack):
    up(stack)
    assert stack.front.stop() == 0
    file = next(stack.folder.joinpath("index").glob("*.index"))
    file.write_bytes(file.read_bytes()[:-100] + b"\0" * 100)
    again(stack)
    stack.front.wait_log("starting without the kept index")
    until("the workers told what they hold", lambda: dumps(stack) > 0)
