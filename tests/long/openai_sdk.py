"""The openai Python SDK, unmodified, against a gateway: whole answers and streams, images, logprobs, n, errors,
cancellation, many at a time.

usage: openai_sdk.py HOST:PORT PICTURE; exits with 77 without the package openai
"""
import asyncio
import base64
import sys
import time

try:
    import openai
except ImportError as e:
    print(f"skip: {e} (tests/long/requirements.txt)")
    sys.exit(77)

WAIT_S = 120
address, picture_path = sys.argv[1:]
with open(picture_path, "rb") as f:
    picture = "data:image/png;base64," + base64.b64encode(f.read()).decode()
where = dict(base_url=f"http://{address}/v1", api_key="unused", max_retries=0, timeout=WAIT_S)
client = openai.OpenAI(**where)
name = client.models.list().data[0].id
chat = dict(model=name, temperature=0, max_tokens=12, extra_body={"ignore_eos": True}, messages=[
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": [{"type": "text", "text": "here:"}, {"type": "image_url", "image_url": {"url": picture}},
                                 {"type": "text", "text": "what is it?"}]}])


def failure(kind, **more):
    try:
        client.chat.completions.create(**{**chat, **more})
    except kind as e:
        return e
    raise AssertionError(f"{more} must fail")


def whole_answers_and_streams_are_the_same():
    client.chat.completions.create(**chat)  # from now on, its prompt is kept
    whole = client.chat.completions.create(**chat)
    assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 12, whole
    chunks = list(client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content and chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage == whole.usage and not chunks[-1].choices


def the_report_is_an_extra_field():
    body = {"ignore_eos": True, "policy": "quality", "fovea_report": True}
    answer = client.chat.completions.create(**{**chat, "extra_body": body})
    assert "pack=" in answer.choices[0].fovea["policy"] and answer.choices[0].fovea["report"]["n_images"] == 1
    answer = client.chat.completions.create(**{**chat, "extra_headers": {"x-fovea-policy": "quality"}}, stream=True)
    assert "pack=" in list(answer)[-1].choices[0].fovea["policy"]


def choices_and_logprobs_are_parsed():
    a = client.chat.completions.create(**{**chat, "temperature": 1}, n=2, seed=3, logprobs=True, top_logprobs=2)
    assert [c.index for c in a.choices] == [0, 1] and a.usage.completion_tokens == 24
    first = a.choices[0].logprobs.content[0]
    assert len(first.top_logprobs) == 2 and first.logprob <= 0 and isinstance(first.bytes, list)
    text = client.completions.create(model=name, prompt="one two", max_tokens=4, temperature=0, logprobs=1)
    assert len(text.choices[0].logprobs.tokens) == text.usage.completion_tokens


def settings_are_taken():
    a = client.chat.completions.create(**{**chat, "temperature": 0.8}, top_p=0.9, presence_penalty=0.5, user="me",
                                       frequency_penalty=0.5, logit_bias={"70": 5}, stop=["zzz"], seed=1)
    b = client.chat.completions.create(**{**chat, "temperature": 0.8}, top_p=0.9, presence_penalty=0.5, user="me",
                                       frequency_penalty=0.5, logit_bias={"70": 5}, stop=["zzz"], seed=1)
    assert a.choices == b.choices


tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


def fields_without_effect_are_ignored():
    plain = client.chat.completions.create(**chat).choices
    for more in (dict(metadata={"a": "b"}), dict(service_tier="auto"), dict(parallel_tool_calls=True), dict(store=True),
                 dict(safety_identifier="u"), dict(prompt_cache_key="k"), dict(verbosity="low"), dict(modalities=["text"]),
                 dict(prediction={"type": "content", "content": "x"}), dict(tools=tools),
                 dict(tools=tools, tool_choice="none"), dict(tools=tools, tool_choice="auto"),
                 dict(response_format={"type": "text"})):
        assert client.chat.completions.create(**chat, **more).choices == plain, more
    for more in (dict(priority=0), dict(request_id="r"), dict(cache_prompt=True), dict(keep_alive="5m"), dict(think=False),
                 dict(use_beam_search=False), dict(best_of=1), dict(length_penalty=1.0), dict(logits_processors=None)):
        body = {"ignore_eos": True, **more}
        assert client.chat.completions.create(**{**chat, "extra_body": body}).choices == plain, more


def models_prompts_and_usage():
    assert client.models.retrieve(name).id == name
    both = client.completions.create(model=name, prompt=["one", "two"], n=2, max_tokens=4, temperature=0)
    assert [c.index for c in both.choices] == [0, 1, 2, 3] and both.choices[0].text == both.choices[1].text
    options = {"include_usage": True, "continuous_usage_stats": True, "include_obfuscation": False}
    chunks = list(client.chat.completions.create(**chat, stream=True, stream_options=options))
    assert all(c.usage.prompt_tokens > 100 for c in chunks) and chunks[-1].usage.completion_tokens == 12


def errors_are_of_the_sdks_kinds():
    e = failure(openai.BadRequestError, temperature=-1)
    assert e.param == "temperature" and e.type == "invalid_request_error" and "0..100" in e.message, e
    assert failure(openai.NotFoundError, model="another").code == "model_not_found"
    assert failure(openai.BadRequestError, tools=tools, tool_choice={"type": "function", "function": {"name": "none"}}).param == "tool_choice"
    assert failure(openai.BadRequestError, response_format={"type": "xml"}).param == "response_format"


def responses_have_their_log_probabilities():
    ask = dict(model=name, input="what is it?", temperature=0, max_output_tokens=12, top_logprobs=2, truncation="auto",
               include=["message.output_text.logprobs"])
    part = client.responses.create(**ask).output[0].content[0]
    assert part.logprobs and all(len(l.top_logprobs) == 2 and l.logprob <= 0 for l in part.logprobs), part
    assert "".join(l.token for l in part.logprobs).strip() == part.text.strip(), part
    with client.responses.stream(**ask) as events:
        deltas = [l for e in events if e.type == "response.output_text.delta" for l in e.logprobs]
    assert [(l.token, l.logprob) for l in deltas] == [(l.token, l.logprob) for l in part.logprobs], deltas
    try:
        client.responses.create(model=name, input="hello", background=True)
        raise AssertionError("responses are not made in the background")
    except openai.BadRequestError as e:
        assert e.param == "background" and "stream" in e.message, e


def a_stream_that_is_closed_ends_its_work():
    from urllib.request import urlopen
    import json

    def running():
        return json.load(urlopen(f"http://{address}/fovea/fleet")).get("n_running", 0)

    stream = client.chat.completions.create(**{**chat, "max_tokens": 1500}, stream=True)
    next(iter(stream))
    assert running() == 1
    stream.close()
    end = time.monotonic() + WAIT_S
    while running():
        assert time.monotonic() < end, "it goes on"
        time.sleep(0.05)


def many_at_a_time_get_their_own_answers():
    async def run():
        async with openai.AsyncOpenAI(**where) as many:
            ask = lambda i: many.completions.create(model=name, prompt=f"number {i}", max_tokens=8, temperature=0)
            return await asyncio.gather(*(ask(i) for i in range(48)))

    alone = client.completions.create(model=name, prompt="number 7", max_tokens=8, temperature=0)
    answers = asyncio.run(run())
    assert answers[7].choices[0].text == alone.choices[0].text and len({a.id for a in answers}) == 48


for check in [whole_answers_and_streams_are_the_same, the_report_is_an_extra_field, choices_and_logprobs_are_parsed,
              settings_are_taken, fields_without_effect_are_ignored, models_prompts_and_usage,
              errors_are_of_the_sdks_kinds, responses_have_their_log_probabilities, a_stream_that_is_closed_ends_its_work,
              many_at_a_time_get_their_own_answers]:
    print(check.__name__, flush=True)
    check()
print("ok: openai", openai.__version__)
