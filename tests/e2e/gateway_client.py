"""OpenAI's HTTP API against a fleet that runs: whole answers and streams, images, policies, errors, clients that
leave.

usage: gateway_client.py HOST:PORT GATEWAY_PROGRAM PICTURE
"""
import base64
import http.client
import json
import os
import subprocess
import sys
import time

WAIT_S = 120  # for anything that must come: machines may be busy

address, program, picture_path = sys.argv[1:]
with open(picture_path, "rb") as f:
    picture = "data:image/png;base64," + base64.b64encode(f.read()).decode()


def send(path, body=None, where=address, headers={}, method=None):
    connection = http.client.HTTPConnection(where, timeout=WAIT_S)
    text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
    connection.request(method or ("GET" if body is None else "POST"), path, text, headers)
    return connection, connection.getresponse()


def ask(path, body=None, status=200, **more):
    connection, reply = send(path, body, **more)
    text = reply.read()
    connection.close()
    assert reply.status == status, (reply.status, text)
    assert reply.headers["Content-Type"] == "application/json"
    return json.loads(text)


def question(text="what is it?", **more):
    parts = [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": text}]
    return dict(dict(messages=[{"role": "user", "content": parts}], temperature=0, max_tokens=12, ignore_eos=True),
                **more)


def events(reply):
    """The JSON of each event; the last one must be [DONE]."""
    assert reply.status == 200 and reply.headers["Content-Type"] == "text/event-stream", reply.read()
    lines = [l for l in reply.read().decode().split("\n") if l and l != ": keep-alive"]
    assert all(l.startswith("data: ") for l in lines) and lines[-1] == "data: [DONE]", lines[-3:]
    return [json.loads(l[6:]) for l in lines[:-1]]


def stream(body, path="/v1/chat/completions"):
    connection, reply = send(path, dict(body, stream=True))
    chunks = events(reply)
    connection.close()
    return chunks


def refused(body, param, words, status=400, path="/v1/chat/completions", **more):
    error = ask(path, body, status, **more)["error"]
    assert set(error) == {"message", "type", "param", "code"}, error
    assert error["param"] == param and words in error["message"], error
    assert not error["message"].startswith(f"{param}: {param}"), error


def idle():
    state = ask("/fovea/fleet")
    held = sum(w["load"].get(key, 0) for w in state["workers"] for key in ("bytes_granted", "bytes_held"))
    return not state.get("n_running") and not state.get("n_queued") and not held


def wait_until(what, holds):
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"not within {WAIT_S} s: {what}"
        time.sleep(0.05)


def the_fleet_is_healthy_and_has_a_model():
    assert ask("/health") == {"status": "ok"}
    (model,) = ask("/v1/models")["data"]
    assert model["object"] == "model" and model["max_model_len"] > 100
    table = ask("/fovea/model")
    assert table["name"] == model["id"] and {m["stage"] for m in table["methods"]} >= {"prune", "select", "pack"}


def counts(usage):  # without what depends on earlier requests and on times
    return {k: v for k, v in usage.items() if not k.endswith("_details")}


def a_stream_has_the_text_of_the_whole_answer():
    whole = ask("/v1/chat/completions", question(model=name))
    (choice,) = whole["choices"]
    assert whole["object"] == "chat.completion" and whole["model"] == name and choice["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 12 and whole["usage"]["prompt_tokens"] > 12, whole["usage"]
    assert "fovea" not in choice
    chunks = stream(question(stream_options={"include_usage": True}))
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])
    assert text == choice["message"]["content"], (text, choice)
    assert counts(chunks[-1]["usage"]) == counts(whole["usage"]) and chunks[-1]["choices"] == []
    last = chunks[-2]["choices"][0]
    assert last["finish_reason"] == "length" and last["fovea"]["report"]["n_images"] == 1
    assert len({c["id"] for c in chunks}) == 1 and len(chunks) > 5, "tokens come one by one"
    assert {c["model"] for c in chunks} == {name} == {ask("/v1/chat/completions", question())["model"]}


def policies_come_in_three_ways():
    chat = "/v1/chat/completions"
    ways = [ask(chat, question(fovea_report=True, policy="prune=vtw,layer=6")),
            ask(chat, question(fovea_report=True), headers={"x-fovea-policy": "prune=vtw,layer=6"}),
            ask(chat, question(fovea_report=True, model=name + "@prune=vtw,layer=6"))]
    said = {w["choices"][0]["fovea"]["policy"] for w in ways}
    assert len(said) == 1 and "prune=vtw" in said.pop()
    report = ask(chat, question(fovea_report=True, kept_tokens=True))["choices"][0]["fovea"]["report"]
    assert report["bytes_raw"] > 0 and len(base64.b64decode(report["kept"][0]["heads"])) == report["n_visual"]


def choices_logprobs_and_seeds():
    both = ask("/v1/chat/completions", question(n=2, temperature=1, seed=5, logprobs=True, top_logprobs=2))
    assert [c["index"] for c in both["choices"]] == [0, 1] and both["usage"]["completion_tokens"] == 24
    assert both["choices"][0]["message"] != both["choices"][1]["message"]
    token = both["choices"][0]["logprobs"]["content"][0]
    assert len(token["top_logprobs"]) == 2 and bytes(token["bytes"]).decode(errors="replace") == token["token"]
    again = ask("/v1/chat/completions", question(n=2, temperature=1, seed=5, logprobs=True, top_logprobs=2))
    assert again["choices"] == both["choices"]
    chunks = stream(question(n=2, temperature=1, seed=5))
    for i, c in enumerate(both["choices"]):
        parts = [x["choices"][0] for x in chunks if x["choices"][0]["index"] == i]
        assert "".join(p["delta"].get("content", "") for p in parts) == c["message"]["content"]


def completions_and_tokens():
    prompt = "How many frogs?"
    ids = ask("/tokenize", {"prompt": prompt, "return_token_strs": True})
    assert ids["count"] == len(ids["tokens"]) == len(ids["token_strs"]) and "frogs" in "".join(ids["token_strs"])
    bare = ask("/tokenize", {"prompt": prompt, "add_special_tokens": False})["tokens"]
    assert ask("/detokenize", {"tokens": bare})["prompt"].strip() == prompt
    by_text = ask("/v1/completions", dict(prompt=prompt, temperature=0, max_tokens=6, logprobs=1))
    by_ids = ask("/v1/completions", dict(prompt=ids["tokens"], temperature=0, max_tokens=6, logprobs=1))
    assert by_text["choices"] == by_ids["choices"] and by_text["object"] == "text_completion"
    n = by_text["usage"]["completion_tokens"]
    assert len(by_text["choices"][0]["logprobs"]["tokens"]) == n
    chunks = stream(dict(prompt=prompt, temperature=0, max_tokens=6), "/v1/completions")
    assert "".join(c["choices"][0]["text"] for c in chunks) == by_text["choices"][0]["text"]


def prompts_of_a_list_are_as_if_sent_alone():
    prompts, same = ["A square is", "How many frogs?"], dict(temperature=1, seed=7, max_tokens=5, ignore_eos=True)
    both = ask("/v1/completions", dict(same, prompt=prompts, n=2))
    assert [c["index"] for c in both["choices"]] == [0, 1, 2, 3]
    alone = [ask("/v1/completions", dict(same, prompt=p, n=2)) for p in prompts]
    assert [c["text"] for c in both["choices"]] == [c["text"] for a in alone for c in a["choices"]]
    one, two = (counts(a["usage"]) for a in alone)
    assert counts(both["usage"]) == {k: one[k] + two[k] for k in one}
    ids = [ask("/tokenize", {"prompt": p})["tokens"] for p in prompts]
    by_ids = ask("/v1/completions", dict(same, prompt=ids, n=2))
    assert by_ids["choices"] == both["choices"]
    chunks = stream(dict(same, prompt=prompts), "/v1/completions")
    for i in range(2):
        text = "".join(c["choices"][0]["text"] for c in chunks if c["choices"][0]["index"] == i)
        assert text == both["choices"][2 * i]["text"], (i, text)


def the_tokenizer_is_described():
    said = ask("/tokenizer_info")
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "checkpoints", "nano")
    with open(os.path.join(folder, "tokenizer_config.json")) as f:
        config = json.load(f)
    with open(os.path.join(folder, "chat_template.jinja")) as f:
        assert said.pop("chat_template") == f.read()
    config.pop("chat_template", None)
    assert said == config, said
    assert ask(f"/tokenizer_info?model={ask('/v1/models')['data'][0]['id']}")["tokenizer_class"] == said["tokenizer_class"]
    refused(None, "model", "another", 404, path="/tokenizer_info?model=another")


def the_tokens_of_images_are_counted():
    body = question(max_tokens=1)
    used = ask("/v1/chat/completions", body)["usage"]["prompt_tokens"]
    said = ask("/tokenize", {"messages": body["messages"]})
    assert said["count"] == len(said["tokens"]) == used > 144, (said["count"], used)
    far = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}
    refused({"messages": [{"role": "user", "content": [far]}]}, "messages[0].content[0].image_url.url", "not fetched",
            path="/tokenize")


def usage_comes_with_each_chunk_if_asked_for():
    chunks = stream(question(stream_options={"include_usage": True, "continuous_usage_stats": True}))
    usages = [c["usage"] for c in chunks]
    assert len({u["prompt_tokens"] for u in usages}) == 1 and usages[0]["prompt_tokens"] > 144, usages
    made = [u["completion_tokens"] for u in usages]
    assert made == sorted(made) and made[0] == 0 and made[-1] == 12, made


def tokens_kept_of_earlier_prompts_are_counted():
    def cached(**more):
        answer = ask("/v1/chat/completions", question(**more))
        assert answer["choices"][0]["message"] == plain["choices"][0]["message"], more
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    plain = ask("/v1/chat/completions", question(cache="off"))
    assert plain["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    cached()
    kept = cached(cache="on")
    assert 144 <= kept < plain["usage"]["prompt_tokens"], kept
    assert cached(cache="off") == 0
    assert cached(cache_salt="mine") == 0 and cached(cache_salt="mine") == kept and cached(cache_salt="other") == 0
    chunks = stream(question(stream_options={"include_usage": True, "continuous_usage_stats": True}))
    assert all(c["usage"]["prompt_tokens_details"]["cached_tokens"] == kept for c in chunks), chunks
    report = chunks[-2]["choices"][0]["fovea"]["report"]
    assert report["n_prompt_cached"] == kept and report["cache_tier"] == "decode" and report["seconds_saved"] > 0
    refused(question(cache="of"), "cache", '"on" or "off"')
    refused(question(cache_salt=""), "cache_salt", "1 to 256 bytes")
    refused(question(cache_salt="x" * 257), "cache_salt", "1 to 256 bytes")


def drafts_change_no_answer_and_are_counted():
    def drafted(**more):
        answer = ask("/v1/chat/completions", question(**{"max_tokens": 40, "ignore_eos": True, **more}))
        assert answer["choices"] == plain["choices"], more
        details = answer["usage"].get("completion_tokens_details", {})
        return details.get("accepted_prediction_tokens", 0), details.get("rejected_prediction_tokens", 0)

    plain = ask("/v1/chat/completions", question(max_tokens=40, ignore_eos=True, speculate=False))
    assert "completion_tokens_details" not in plain["usage"]
    said = plain["choices"][0]["message"]["content"]
    assert drafted(speculate=False, prediction={"type": "content", "content": said}) == (0, 0)
    right = [drafted(prediction={"type": "content", "content": said})[0] for _ in range(3)]
    parts = [{"type": "text", "text": said[:5]}, {"type": "text", "text": said[5:]}]
    right.append(drafted(prediction={"type": "content", "content": parts})[0])
    assert max(right) > 0, right
    drafted(prediction={"type": "content", "content": "something else altogether"})
    drafted(speculate=True)
    refused(question(speculate=1), "speculate", "true or false")
    refused(question(prediction="x"), "prediction", "must be an object")
    refused(question(prediction={"type": "text", "content": "x"}), "prediction.type", '"content"')
    refused(question(prediction={"type": "content", "content": [{"type": "image_url"}]}), "prediction.content[0].type", '"text"')
    refused(question(prediction={"type": "content", "content": "x" * 65537}), "prediction.content", "65536 bytes")


def what_has_no_effect_is_ignored():
    plain = ask("/v1/chat/completions", question())["choices"]
    more = question(metadata={"a": "b"}, tools=[{"type": "function", "function": {"name": "f"}}], tool_choice="auto", service_tier="auto",
                    response_format={"type": "text"}, max_tokens=12.0, modalities=["text"])
    assert ask("/v1/chat/completions", more)["choices"] == plain


def the_server_describes_itself():
    assert set(ask("/version")) == {"version"}
    for path in "/healthz", "/ping":
        assert ask(path) == {"status": "ok"}
    assert ask("/v1/models/" + name)["id"] == name
    paths = ask("/openapi.json")["paths"]
    fields = paths["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert {"messages", "stream", "policy", "temperature"} <= set(fields) and "/v1/models/{model}" in paths
    connection, reply = send("/metrics")
    assert reply.status == 200 and b'fovea_http_requests_total{route="chat",code="200"}' in reply.read()
    connection.close()
    for path in "/health", "/v1/models", "/":
        connection, reply = send(path, method="HEAD")
        assert reply.status == 200 and int(reply.headers["Content-Length"]) > 0 and reply.read() == b""
        connection.close()


def prompt_of(messages, **more):
    """The text that the turns become, without the BOS."""
    made = ask("/tokenize", dict(messages=messages, **more))["tokens"]
    return ask("/detokenize", {"tokens": made})["prompt"].removeprefix("<s>").strip()


def turn(role, content, **more):
    return dict(role=role, content=content, **more)


def the_template_decides_about_turns():
    text, dumped = {"type": "text", "text": "c", "cache_control": {"type": "ephemeral"}}, dict(refusal=None, audio=None, tool_calls=None)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [turn("user", "a"), turn("user", ["b", text]), turn("system", [text]), turn("assistant", "d", **dumped),
             turn("assistant", None, tool_calls=[call]), turn("tool", "e", tool_call_id="1"), turn("user", "f", name="Bob")]
    end = "USER: f ASSISTANT:"
    assert prompt_of(turns) == "USER: a USER: bc c ASSISTANT: d</s> ASSISTANT: </s> e " + end, prompt_of(turns)
    assert prompt_of(turns, add_generation_prompt=False).endswith("USER: f")
    assert prompt_of(turns + [turn("assistant", "The answer")]).endswith(end + " The answer")
    assert prompt_of(turns + [turn("assistant", "g")], add_generation_prompt=True).endswith("ASSISTANT: g</s> ASSISTANT:")
    assert ask("/v1/chat/completions", dict(messages=[turn("user", "")], max_tokens=2))["choices"], "an empty text is a turn too"
    begun = dict(messages=[turn("user", "what is it?"), turn("assistant", "It is")])
    same = dict(max_tokens=4, temperature=0, ignore_eos=True)
    joined = ask("/v1/completions", dict(same, prompt=ask("/tokenize", begun)["tokens"]))["choices"][0]["text"]
    goes_on = ask("/v1/chat/completions", dict(begun, **same))["choices"][0]["message"]["content"]
    assert goes_on == joined and joined.startswith(" "), (goes_on, joined)
    body = question(chat_template_kwargs={"enable_thinking": False}, reasoning_effort="low", add_special_tokens=False,
                    mm_processor_kwargs={"max_pixels": 100000})
    body["messages"] = turns + body["messages"] + [turn("assistant", "Two")]
    picture_part = body["messages"][-2]["content"][0]
    picture_part["image_url"] = "data:text/plain;base64," + picture.split(",")[1].rstrip("=") + "\n"
    answer = ask("/v1/chat/completions", body)["choices"][0]["message"]
    assert answer["role"] == "assistant" and not answer["content"].startswith("Two"), answer
    body["messages"] += [dict(answer, refusal=None), turn("user", "and then?")]
    assert ask("/v1/chat/completions", body)["choices"][0]["message"]["content"]


def a_conversation_is_kept_and_goes_on():
    first = ask("/v1/chat/completions", question(keep_ms=20000))["choices"][0]["fovea"]
    assert first["keep_ms"] == 20000
    more = dict(messages=[{"role": "user", "content": "and now?"}], temperature=0, max_tokens=4, ignore_eos=True)
    second = ask("/v1/chat/completions", dict(more, conversation=first["conversation"], fovea_report=True))
    assert second["choices"][0]["fovea"]["report"]["n_prompt"] < 40, "only the new text"
    refused(dict(more, conversation=first["conversation"]), None, "", 404)


def answers_have_the_form_that_was_asked_for():
    schema = {"type": "object", "additionalProperties": False, "required": ["color", "n", "tags"], "properties": {
        "color": {"enum": ["red", "green"]}, "n": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 4}}}}
    body = question(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
                    temperature=1.5, seed=3, max_tokens=300, n=2, min_tokens=290)
    choices = ask("/v1/chat/completions", body)["choices"]
    for choice in choices:  # min_tokens and ignore_eos do not keep a finished answer from ending
        value = json.loads(choice["message"]["content"])
        assert choice["finish_reason"] == "stop" and list(value) == ["color", "n", "tags"], choice
        assert value["color"] in ("red", "green") and 0 <= value["n"] <= 99, value
        assert all(len(t) <= 4 for t in value["tags"]) and len(value["tags"]) <= 2, value
    texts = ["", ""]
    for chunk in stream(body):
        for c in chunk["choices"]:
            texts[c["index"]] += c["delta"].get("content") or ""
    assert texts == [c["message"]["content"] for c in choices], (texts, choices)
    words = ["a cat", "a dog on a mat", "nothing"]
    for form in dict(guided_choice=words), dict(structured_outputs={"regex": "a cat|a dog on a mat|nothing"}), \
            dict(structured_outputs={"grammar": 'root ::= "a cat" | "a dog on a mat" | "nothing"'}):
        got = ask("/v1/chat/completions", question(max_tokens=60, **form))["choices"][0]
        assert got["message"]["content"] in words and got["finish_reason"] == "stop", got
    cut = ask("/v1/chat/completions", question(max_tokens=3, guided_choice=["x" * 200]))["choices"][0]
    assert cut["finish_reason"] == "length" and set(cut["message"]["content"]) == {"x"}, cut
    kept = ask("/v1/chat/completions", question(keep_ms=20000, max_tokens=4))["choices"][0]["fovea"]
    more = dict(messages=[{"role": "user", "content": "and now?"}], max_tokens=60, guided_choice=words,
                conversation=kept["conversation"])
    assert ask("/v1/chat/completions", more)["choices"][0]["message"]["content"] in words


def mistakes_are_named():
    refused(question(tool_choice="required"), "tool_choice", "no tools to call")
    refused(question(response_format={"type": "xml"}), "response_format", "json_schema")
    refused(question(guided_json={"type": "string", "not": {"type": "null"}}), None, "'not'")
    refused(question(guided_regex="(a"), None, "not closed")
    refused(question(best_of=2), "best_of", "not ranked")
    refused(question(max_tokens=1e300), "max_tokens", "1 to 2147483647")
    refused(question(temperature=-1), "temperature", "0..100")
    refused(question(model="another"), "model", "another", 404)
    refused(question(policy="prune=magic"), "policy", "magic")
    refused(question(policy="prune=vtw,layer=99"), "policy", "layers 0..")
    refused(question(stop=""), "stop", "1..256")
    refused("{", None, "not JSON")
    far = question()
    far["messages"][0]["content"][0]["image_url"]["url"] = "http://127.0.0.1/x.png"
    refused(far, "messages[0].content[0].image_url.url", "data:")
    broken = question()
    broken["messages"][0]["content"][0]["image_url"]["url"] = picture[:22 + 200]  # whole groups of base64, half an image
    refused(broken, None, "image")
    refused(question(chat_template="{{ 1 }}"), "chat_template", "--allow-chat-template")
    refused(question(chat_template_kwargs={"messages": []}), None, "cannot be a variable")
    refused(question(add_generation_prompt=True, continue_final_message=True), "continue_final_message", "together")
    refused(None, None, "unknown path", 404, path="/v1/other")
    refused(None, None, "use /v1/chat/completions", 404, path="/v1/v1/chat/completions/")
    refused(None, "model", "models: " + name, 404, path="/v1/models/org/other")
    refused(None, None, "method", 405)
    refused(question(), None, "host", 403, headers={"Host": "evil.example"})
    refused(question(), None, "origin", 403, headers={"Origin": "http://evil.example"})
    connection = http.client.HTTPConnection(address, timeout=WAIT_S)
    connection.putrequest("POST", "/v1/chat/completions")
    connection.putheader("Content-Length", str(1 << 32))
    connection.endheaders()
    reply = connection.getresponse()
    assert reply.status == 413 and "body-bytes" in json.loads(reply.read())["error"]["message"]
    connection.close()
    chat = question(stream=True, temperature=-1)  # a stream that fails before its first token is no stream
    refused(chat, "temperature", "0..100")


def the_page_is_its_own_and_knows_where_tokens_are():
    connection, reply = send("/")
    assert reply.status == 200 and b"<script type" in reply.read() and reply.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy, policy
    connection.close()
    (span,) = ask(f"/fovea/layout?w=640&h=480&model={name}")["spans"]
    assert (span["n"], span["left"], span["top"], span["width"], span["height"]) == (144, 80, 0, 480, 480), span
    assert ask("/fovea/model?model=" + name)["name"] == name
    refused(None, None, "1..", path="/fovea/layout")
    refused(None, "model", "another", 404, path="/fovea/layout?w=1&h=1&model=another")


def a_client_that_leaves_ends_its_work():
    long = question(max_tokens=1500, n=2)
    connection, reply = send("/v1/chat/completions", dict(long, stream=True))
    assert reply.read(100).startswith(b"data: ")
    connection.sock.close()
    reply.close()
    wait_until("idle after a stream was broken off", idle)
    connection = http.client.HTTPConnection(address, timeout=WAIT_S)
    connection.request("POST", "/v1/chat/completions", json.dumps(long))
    wait_until("the whole answer is being made", lambda: not idle())
    connection.close()
    wait_until("idle after its client has gone", idle)


def a_connection_serves_many_requests():
    connection = http.client.HTTPConnection(address, timeout=WAIT_S)
    for body in (question(max_tokens=2), question(max_tokens=2, stream=True), question(temperature=-1)) * 2:
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        reply = connection.getresponse()
        assert reply.status in (200, 400) and reply.read()
    connection.close()


def without_a_router_it_is_unavailable_also_to_pages_elsewhere():
    site = "https://app.example"
    own = subprocess.Popen([program, "--router", "127.0.0.1:9", "--listen", "127.0.0.1:0", "--log", "error",
                            "--allow-origin", site], stdout=subprocess.PIPE, text=True)
    try:
        where = own.stdout.readline().split()[-1]
        for path, body in ("/health", None), ("/v1/models", None), ("/v1/chat/completions", question()):
            error = ask(path, body, 503, where=where)["error"]
            assert error["type"] == "server_error" and "127.0.0.1" not in error["message"], error
        asked = {"Origin": site, "Access-Control-Request-Method": "POST"}
        for method, path, status in ("OPTIONS", "/v1/models", 200), ("GET", "/v1/models", 503):
            connection, reply = send(path, where=where, headers=asked, method=method)
            assert reply.status == status and reply.headers["Access-Control-Allow-Origin"] == site, reply.headers
            assert ("Access-Control-Allow-Headers" in reply.headers) == (method == "OPTIONS"), reply.headers
            connection.close()
        connection, reply = send("/v1/models", where=where, headers={"Origin": site + "x"}, method="OPTIONS")
        assert reply.status == 403 and "Access-Control-Allow-Origin" not in reply.headers
        connection.close()
        own.terminate()
        assert own.wait(WAIT_S) == 0
    finally:
        own.kill()


name = ask("/v1/models")["data"][0]["id"]
for check in [the_fleet_is_healthy_and_has_a_model, a_stream_has_the_text_of_the_whole_answer,
              policies_come_in_three_ways, choices_logprobs_and_seeds, completions_and_tokens,
              prompts_of_a_list_are_as_if_sent_alone, the_tokenizer_is_described, the_tokens_of_images_are_counted,
              usage_comes_with_each_chunk_if_asked_for, tokens_kept_of_earlier_prompts_are_counted,
              drafts_change_no_answer_and_are_counted, what_has_no_effect_is_ignored, the_server_describes_itself,
              the_template_decides_about_turns,
              a_conversation_is_kept_and_goes_on, answers_have_the_form_that_was_asked_for, mistakes_are_named,
              the_page_is_its_own_and_knows_where_tokens_are, a_client_that_leaves_ends_its_work,
              a_connection_serves_many_requests, without_a_router_it_is_unavailable_also_to_pages_elsewhere]:
    print(check.__name__, flush=True)
    check()
print("ok")
