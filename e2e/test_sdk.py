# SPDX-License-Identifier: Apache-2.0
"""The openai package from PyPI as the client: what most users of the API see."""

import openai
import pytest

from stack import MODEL, SOON, Stack, until, words


@pytest.fixture
def stack(tmp_path):
    with Stack(tmp_path, events=False) as stack:
        yield stack


def client_of(stack):
    return openai.OpenAI(base_url=stack.url + "/v1", api_key="unused", max_retries=0)


def hello(**more):
    return {"model": MODEL, "messages": [{"role": "user", "content": "Say something."}], "max_tokens": 12,
            "extra_body": {"ignore_eos": True}, **more}


def test_everyday_calls(stack):
    with client_of(stack.up("--router-mode", "kv")) as client:
        assert [model.id for model in client.models.list()] == [MODEL]
        answer = client.chat.completions.create(**hello())
        assert answer.choices[0].message.content.strip() and answer.choices[0].finish_reason == "length"
        assert answer.usage.completion_tokens == 12
        assert answer.usage.prompt_tokens_details.cached_tokens == 0
        text = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=5)
        assert text.choices[0].text and text.usage.total_tokens == text.usage.prompt_tokens + 5
        text = client.completions.create(model=MODEL, prompt=[300, 301, 302], max_tokens=5)
        assert text.usage.prompt_tokens == 3


def test_streams(stack):
    with client_of(stack.up("--router-mode", "kv")) as client:
        chunks = list(client.chat.completions.create(**hello(stream=True, stream_options={"include_usage": True})))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]).strip()
        assert [c.choices[0].finish_reason for c in chunks[:-1] if c.choices[0].finish_reason] == ["length"]
        assert chunks[-1].usage.completion_tokens == 12 and not chunks[-1].choices
        chunks = list(client.completions.create(model=MODEL, prompt="Once", max_tokens=5, stream=True))
        assert "".join(chunk.choices[0].text for chunk in chunks)


def test_responses(stack):
    asked = {"model": MODEL, "input": "Say something.", "max_output_tokens": 12, "temperature": 0.5}
    with client_of(stack.up("--router-mode", "kv")) as client:
        answer = client.responses.create(**asked)
        assert answer.output_text.strip() and answer.status in ("completed", "incomplete")
        assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
        with client.responses.stream(**asked) as stream:
            said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert said.strip()
        with pytest.raises(openai.InternalServerError) as raised:
            client.responses.create(**asked, previous_response_id="resp_1")
        assert raised.value.status_code == 501


def test_many_kinds_of_messages(stack):
    with client_of(stack.up()) as client:
        answer = client.chat.completions.create(**hello(messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "What"}, {"type": "text", "text": "now?"}]},
            {"role": "assistant", "content": "This."},
            {"role": "user", "content": "Ünïcödé 🙂 </s> <|user|>"}]))
        assert answer.choices[0].message.content


@pytest.mark.parametrize("change,error", [
    ({"model": "gpt-17"}, openai.NotFoundError), ({"temperature": 9}, openai.BadRequestError),
    ({"messages": []}, openai.BadRequestError), ({"extra_body": {"wobble": 1}}, openai.BadRequestError)])
def test_errors_have_their_class(stack, change, error):
    with client_of(stack.up()) as client, pytest.raises(error) as raised:
        client.chat.completions.create(**hello(**change))
    assert raised.value.body["message"] and raised.value.status_code == raised.value.response.status_code


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_lost_worker_raises(stack, api):
    """Never a silent end: half an answer must not look like a whole one."""
    with client_of(stack.up(speedup=1)) as client:
        if api == "chat":
            stream = client.chat.completions.create(**hello(stream=True, max_tokens=10000))
        else:
            stream = client.completions.create(model=MODEL, prompt="Once", max_tokens=10000, stream=True,
                                               extra_body={"ignore_eos": True})
        next(stream)
        stack.worker.kill()
        with pytest.raises(openai.APIError) as raised:
            for chunk in stream:
                assert not chunk.choices[0].finish_reason
        assert str(raised.value)


def test_no_worker_raises(stack):
    with client_of(stack.up()) as client:
        stack.worker.kill()
        with pytest.raises(openai.APIStatusError):
            client.chat.completions.create(**hello())


def test_closing_a_stream_cancels_it(stack):
    with client_of(stack.up("--router-mode", "kv", speedup=1)) as client:
        stream = client.chat.completions.create(**hello(
            stream=True, max_tokens=5000, messages=[{"role": "user", "content": words(200)}]))
        next(stream)
        assert stack.loads()
        stream.close()
        until("nothing runs for it", lambda: not stack.loads(), SOON)
    assert stack.metric("dynamo_frontend_disconnected_clients") == 1


def test_several_choices(stack):
    """Prompts times n, each a request of its own to the workers, in the order of prompts."""
    with client_of(stack.up("--router-mode", "kv", workers=2)) as client:
        answer = client.chat.completions.create(**hello(n=3, temperature=1))
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        assert all(choice.message.content.strip() and choice.finish_reason == "length" for choice in answer.choices)
        one = client.chat.completions.create(**hello())
        assert answer.usage.prompt_tokens == one.usage.prompt_tokens and answer.usage.completion_tokens == 36

        text = client.completions.create(model=MODEL, prompt=["Once upon", [300, 301, 302]], n=2, max_tokens=5, temperature=1)
        assert [choice.index for choice in text.choices] == [0, 1, 2, 3] and all(choice.text for choice in text.choices)
        assert text.usage.completion_tokens == 20 and text.usage.prompt_tokens > 3

        chunks = list(client.completions.create(model=MODEL, prompt=["a", "b"], n=2, max_tokens=5, stream=True, temperature=1,
                                                stream_options={"include_usage": True}))
        assert len({chunk.id for chunk in chunks}) == 1 and chunks[-1].usage.completion_tokens == 20
        choices = [choice for chunk in chunks for choice in chunk.choices]
        assert sorted(choice.index for choice in choices if choice.finish_reason) == [0, 1, 2, 3]
        assert all("".join(c.text for c in choices if c.index == i) for i in range(4))
        chunks = list(client.chat.completions.create(**hello(n=2, temperature=1, stream=True)))
        assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1}
    assert sum(stack.decisions().values()) >= 3 + 1 + 4 + 4 + 2


@pytest.mark.parametrize("change", [{"n": 0}, {"n": 129}, {"n": 2, "temperature": 0}])
def test_choices_that_cannot_be(stack, change):
    with client_of(stack.up()) as client, pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**hello(**change))


def test_one_bad_choice_fails_the_answer(stack):
    """A prompt that does not fit: nothing of the others is left running."""
    with client_of(stack.up("--router-mode", "kv", speedup=1)) as client:
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as raised:
                client.completions.create(model=MODEL, prompt=["a", [300] * 40000, "b"], max_tokens=500, stream=stream)
            assert "context length" in str(raised.value)
        until("nothing runs for it", lambda: not stack.loads(), SOON)


def test_leaving_several_choices_cancels_them(stack):
    with client_of(stack.up("--router-mode", "kv", speedup=1)) as client:
        stream = client.chat.completions.create(**hello(stream=True, n=4, temperature=1, max_tokens=5000))
        next(stream)
        assert stack.loads()
        stream.close()
        until("nothing runs for it", lambda: not stack.loads(), SOON)
    assert stack.metric("dynamo_frontend_disconnected_clients") == 1


def test_a_lost_worker_fails_several_choices(stack):
    with client_of(stack.up("--migration-limit", "0", speedup=1)) as client:
        stream = client.chat.completions.create(**hello(stream=True, n=3, temperature=1, max_tokens=10000))
        next(stream)
        stack.worker.kill()
        with pytest.raises(openai.APIError):
            for chunk in stream:
                pass
