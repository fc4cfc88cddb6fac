"""The fields that say which tokens an answer may have, what ends it, and what is returned of its prompt, against a
fleet that runs nano.

usage: gateway_rules.py HOST:PORT PICTURE
"""
import base64
import http.client
import json
import sys

address, picture_path = sys.argv[1:]
with open(picture_path, "rb") as f:
    picture = "data:image/png;base64," + base64.b64encode(f.read()).decode()


def post(path, body):
    connection = http.client.HTTPConnection(address, timeout=120)
    connection.request("POST", path, json.dumps(body))
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, text


def ask(path, body):
    status, text = post(path, body)
    assert status == 200, (status, text)
    return json.loads(text)


def complete(prompt="What is", **more):
    return ask("/v1/completions", dict(dict(prompt=prompt, temperature=0, max_tokens=8), **more))


def text_of(**more):
    return complete(**more)["choices"][0]["text"]


def chat(**more):
    parts = [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": "What number is printed?"}]
    return ask("/v1/chat/completions", dict(dict(messages=[{"role": "user", "content": parts}], temperature=0,
                                                 max_tokens=8), **more))


def stream(path, body):
    status, text = post(path, dict(body, stream=True))
    assert status == 200, text
    lines = [l[6:] for l in text.split("\n") if l.startswith("data: ")]
    assert lines[-1] == "[DONE]", lines[-2:]
    return [json.loads(l) for l in lines[:-1]]


def refused(field, words, path="/v1/completions", **more):
    status, text = post(path, dict(dict(prompt="What is", max_tokens=8), **more))
    error = json.loads(text)["error"]
    assert status == 400 and error["param"] == field and words in error["message"], (status, error)


def ids_of(**more):
    return complete(return_token_ids=True, **more)["choices"][0]["token_ids"]


def a_zero_is_a_value():
    answers = {text_of(temperature=100, top_p=0, seed=s, max_tokens=4, ignore_eos=True) for s in range(4)}
    assert len(answers) == 1, answers
    assert answers == {text_of(max_tokens=4, ignore_eos=True)}, answers
    refused("repetition_penalty", "must be above 0", repetition_penalty=0)
    assert text_of(min_p=0, top_k=0, presence_penalty=0, frequency_penalty=0, min_tokens=0) == text_of()


def ends_and_masks():
    free = ids_of(ignore_eos=True)
    assert len(free) == 8
    stopped = complete(stop_token_ids=[free[2]], return_token_ids=True)["choices"][0]
    first = free.index(free[2])
    assert stopped["token_ids"] == free[:first + 1] and stopped["finish_reason"] == "stop", stopped
    shown = complete(stop_token_ids=[free[2]], include_stop_str_in_output=True)["choices"][0]["text"]
    assert shown.startswith(stopped["text"]) and len(shown) > len(stopped["text"]), (shown, stopped)
    later = ids_of(stop_token_ids=[free[2]], min_tokens=first + 2)
    assert len(later) > first + 1 and free[2] not in later[:first + 2], later
    allowed = sorted(set(free[:2]))
    assert set(ids_of(allowed_token_ids=allowed, ignore_eos=True)) <= set(allowed)
    for seed in range(3):
        got = ids_of(allowed_token_ids=allowed, ignore_eos=True, temperature=2, top_k=50, seed=seed)
        assert set(got) <= set(allowed), got
    for first_only in (1, 8):  # the prefill worker's token, and the decode worker's
        biased = ids_of(logit_bias={str(free[0]): -100}, max_tokens=first_only)
        assert free[0] not in biased
    word = ask("/detokenize", {"tokens": [free[1]]})["prompt"].strip()
    assert word in text_of() and word not in text_of(bad_words=[word]), word
    assert ids_of(max_tokens=1, allowed_token_ids=[7], min_tokens=1) == [7]
    assert ids_of(allowed_token_ids=[2], min_tokens=4) == [2], "the last token that is left"


def special_tokens():
    forced = dict(allowed_token_ids=[1], ignore_eos=True, max_tokens=3)
    assert text_of(**forced) == ""
    assert text_of(skip_special_tokens=False, **forced) == "<s><s><s>"
    ended = complete(skip_special_tokens=False, allowed_token_ids=[2], max_tokens=3)["choices"][0]
    assert ended["text"] == "" and ended["finish_reason"] == "stop", ended


def stop_strings():
    text = text_of(ignore_eos=True)
    stop = text[4:7]
    whole = complete(stop=stop, logprobs=0, ignore_eos=True)["choices"][0]
    assert whole["text"] == text[:text.index(stop)] and whole["finish_reason"] == "stop", whole
    offsets = whole["logprobs"]["text_offset"]
    assert all(o < len(whole["text"]) for o in offsets), whole
    with_stop = text_of(stop=stop, include_stop_str_in_output=True, ignore_eos=True)
    assert with_stop == text[:text.index(stop) + len(stop)], with_stop
    chunks = stream("/v1/completions", dict(prompt="What is", temperature=0, max_tokens=8, stop=stop, logprobs=0,
                                            ignore_eos=True))
    chosen = [c["choices"][0] for c in chunks if c["choices"]]
    assert "".join(c.get("text") or "" for c in chosen) == whole["text"]
    listed = [o for c in chosen if c["logprobs"] for o in c["logprobs"]["text_offset"]]
    assert listed == offsets, (listed, offsets)


def offsets_are_of_the_text():
    choice = complete("USER: hi ASSISTANT:", max_tokens=3, logprobs=1)["choices"][0]
    at, text = choice["logprobs"]["text_offset"], choice["text"]
    assert at[0] == 0
    for i, token in enumerate(choice["logprobs"]["tokens"][:-1]):
        assert text[at[i]:at[i + 1]] == token, (choice, i)


def the_prompt_is_returned():
    plain = complete(return_token_ids=True)["choices"][0]
    echoed = complete(echo=True, logprobs=2, return_token_ids=True)["choices"][0]
    assert echoed["text"] == "What is" + plain["text"], (echoed, plain)
    assert echoed["token_ids"] == plain["token_ids"] and echoed["prompt_token_ids"] == plain["prompt_token_ids"]
    logprobs, n = echoed["logprobs"], len(plain["prompt_token_ids"])
    assert len(logprobs["tokens"]) == n + len(plain["token_ids"])
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert all(p < 0 for p in logprobs["token_logprobs"][1:])
    for token, own, top in list(zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]))[1:]:
        assert top[token] == own, "the token is among its alternatives"
    scored = complete(prompt_logprobs=2)["choices"][0]["prompt_logprobs"]
    assert scored[0] is None and len(scored) == n
    for i, id in enumerate(plain["prompt_token_ids"][1:], 1):
        assert abs(scored[i][str(id)]["logprob"] - logprobs["token_logprobs"][i]) < 1e-6
    only = complete(echo=True, max_tokens=0, logprobs=2)
    assert only["usage"]["completion_tokens"] == 0 and only["choices"][0]["text"] == "What is", only
    assert only["choices"][0]["logprobs"]["token_logprobs"] == logprobs["token_logprobs"][:n]
    # The prompt's last log-probability is that of the answer's first token after a shorter prompt.
    ids = plain["prompt_token_ids"] + plain["token_ids"]
    longer = complete(prompt=ids, prompt_logprobs=0)["choices"][0]["prompt_logprobs"]
    answer = complete(logprobs=0)["choices"][0]["logprobs"]["token_logprobs"]
    for i, p in enumerate(answer):
        assert abs(longer[n + i][str(ids[n + i])]["logprob"] - p) < 1e-4, (i, p, longer[n + i])
    named = complete(logprobs=1, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]
    assert named["tokens"] == [f"token_id:{id}" for id in plain["token_ids"]]
    streamed = stream("/v1/completions", dict(prompt="What is", temperature=0, max_tokens=8, echo=True, logprobs=2,
                                              return_token_ids=True))
    chosen = [c["choices"][0] for c in streamed if c["choices"]]
    assert "".join(c.get("text") or "" for c in chosen) == echoed["text"]
    assert [i for c in chosen for i in c.get("token_ids", [])] == echoed["token_ids"]
    assert [c["prompt_token_ids"] for c in chosen if "prompt_token_ids" in c] == [plain["prompt_token_ids"]]
    assert [t for c in chosen if c["logprobs"] for t in c["logprobs"]["tokens"]] == logprobs["tokens"]


def the_prompt_of_a_chat_with_an_image():
    a = chat(prompt_logprobs=1, return_token_ids=True, n=2)
    ids, scored = a["prompt_token_ids"], a["prompt_logprobs"]
    assert len(ids) == a["usage"]["prompt_tokens"] == len(scored)
    assert sum(s is not None for s in scored) > 3 and scored[0] is None
    assert all(c["token_ids"] for c in a["choices"])
    assert a["choices"][0]["message"] == chat()["choices"][0]["message"]
    dropped = chat(prompt_logprobs=0, policy="prune=vtw,layer=2")
    assert any(s is not None for s in dropped["prompt_logprobs"])
    chunks = stream("/v1/chat/completions", dict(messages=[{"role": "user", "content": "hi"}], temperature=0,
                                                 max_tokens=4, return_token_ids=True))
    assert [c["prompt_token_ids"] for c in chunks if "prompt_token_ids" in c], chunks
    assert sum(len(c["choices"][0].get("token_ids", [])) for c in chunks if c["choices"]) > 0


def prompts_are_cut():
    long = "one two three four five six seven eight"
    ids = complete(long, return_token_ids=True)["choices"][0]["prompt_token_ids"]
    cut = complete(long, truncate_prompt_tokens=5, return_token_ids=True)["choices"][0]
    assert cut["prompt_token_ids"] == [ids[0]] + ids[-4:], (cut, ids)
    assert complete(long, truncate_prompt_tokens=-1)["choices"][0]["text"] == text_of(prompt=long)
    by_ids = complete(ids, truncate_prompt_tokens=3, return_token_ids=True)["choices"][0]
    assert by_ids["prompt_token_ids"] == ids[-3:]
    far = complete([ids[1]] * 3000, truncate_prompt_tokens=100, return_token_ids=True)["choices"][0]
    assert len(far["prompt_token_ids"]) == 100
    status, text = post("/v1/chat/completions", {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": picture}}]}], "max_tokens": 2, "truncate_prompt_tokens": 9})
    assert status == 400 and "never cut" in text, text


def choices_conversations_and_many_at_a_time():
    a = complete(n=3, temperature=1, seed=5, bad_words=["the"], min_tokens=3, max_tokens=6, return_token_ids=True)
    assert [len(c["token_ids"]) >= 3 for c in a["choices"]] == [True] * 3
    kept = ask("/v1/chat/completions", dict(messages=[{"role": "user", "content": "hi"}], temperature=0, max_tokens=4,
                                            keep_ms=30000, ignore_eos=True))
    handle = kept["choices"][0]["fovea"]["conversation"]
    more = ask("/v1/chat/completions", dict(messages=[{"role": "user", "content": "and?"}], temperature=0,
                                            max_tokens=4, conversation=handle, allowed_token_ids=[7, 9],
                                            ignore_eos=True, return_tokens_as_token_ids=True, logprobs=True))
    names = {t["token"] for t in more["choices"][0]["logprobs"]["content"]}
    assert names <= {"token_id:7", "token_id:9"}, names


def wrong_values_are_named():
    refused("min_tokens", "must be 0..8", min_tokens=9)
    refused("allowed_token_ids", "more than 32768", allowed_token_ids=[1] * 40000)
    refused("stop_token_ids", "the vocabulary has", stop_token_ids=[10 ** 6])
    refused("bad_words[0]", "1 to 256", bad_words=["x" * 2000000])
    refused("bad_words", "more than 256", bad_words=["x"] * 257)
    refused("bad_words", "has no tokens", bad_words=["  "])
    refused("prompt_logprobs", "0 to 20", prompt_logprobs=21)
    refused("truncate_prompt_tokens", "-1", truncate_prompt_tokens=0)


for case in (a_zero_is_a_value, ends_and_masks, special_tokens, stop_strings, offsets_are_of_the_text,
             the_prompt_is_returned, the_prompt_of_a_chat_with_an_image, prompts_are_cut,
             choices_conversations_and_many_at_a_time, wrong_values_are_named):
    case()
    print(case.__name__, flush=True)
