"""Tools, reasoning and the Responses API against a fleet that runs nano, whose chat template is plain, or with a
template that has marks of tools and of reasoning and ends prompts inside the latter.

usage: gateway_responses.py HOST:PORT plain PICTURE
       gateway_responses.py HOST:PORT marked
"""
import base64
import http.client
import json
import sys

address, mode = sys.argv[1:3]
TOOL = {"name": "look", "description": "Looks at a thing.", "parameters": {"type": "object", "properties": {"what": {"type": "string"}}}}


def send(method, path, body=None):
    connection = http.client.HTTPConnection(address, timeout=120)
    connection.request(method, path, None if body is None else json.dumps(body))
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, text


def ask(method, path, body=None, status=200):
    got, text = send(method, path, body)
    assert got == status, (method, path, got, text)
    return json.loads(text)


def respond(text="What number is printed?", **more):
    return ask("POST", "/v1/responses", dict(dict(input=text, temperature=0, max_output_tokens=12), **more))


def words(response):
    return "".join(c["text"] for i in response["output"] if i["type"] == "message" for c in i["content"])


def cached(response):
    return response["usage"]["input_tokens_details"]["cached_tokens"]


def events(**more):
    status, text = send("POST", "/v1/responses", dict(dict(input="What is it?", temperature=0, max_output_tokens=12, stream=True), **more))
    assert status == 200, text
    all_of = [dict(l.split(": ", 1) for l in e.split("\n")) for e in text.split("\n\n") if e and not e.startswith(":")]
    data = [json.loads(e["data"]) for e in all_of]
    assert [e["event"] for e in all_of] == [d["type"] for d in data]
    assert [d["sequence_number"] for d in data] == list(range(len(data)))
    return data


def a_response_is_what_a_chat_answers(picture):
    parts = [{"type": "input_image", "image_url": picture}, {"type": "input_text", "text": "What number is printed?"}]
    first = respond([{"role": "user", "content": parts}])
    chat = ask("POST", "/v1/chat/completions", {"temperature": 0, "max_tokens": 12, "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": "What number is printed?"}]}]})
    assert words(first) == chat["choices"][0]["message"]["content"] != "", (first, chat)
    assert first["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]
    kept = chat["usage"]["prompt_tokens_details"]["cached_tokens"]
    again = respond([{"role": "user", "content": parts}])
    whole = events(input=[{"role": "user", "content": parts}])[-1]["response"]
    assert 144 <= kept == cached(again) == cached(whole) and words(again) == words(whole) == words(first), (kept, again, whole)
    assert cached(first) == 0 and cached(ask("GET", "/v1/responses/" + again["id"])) == kept
    return first


def one_continues_it(first, picture):
    second = respond("And now?", previous_response_id=first["id"])
    turn = lambda role, content: {"role": role, "content": content}
    image = [{"type": "input_image", "image_url": picture}, {"type": "input_text", "text": "What number is printed?"}]
    whole = respond([turn("user", image), turn("assistant", words(first)), turn("user", "And now?")])
    assert words(second) == words(whole) and second["usage"]["input_tokens"] == whole["usage"]["input_tokens"], (second, whole)
    assert ask("GET", "/v1/responses/" + second["id"]) == second
    items = ask("GET", "/v1/responses/" + first["id"] + "/input_items")["data"]
    assert items[0]["content"][0]["image_url"] == picture and items[0]["content"][1]["text"] == "What number is printed?"
    assert ask("DELETE", "/v1/responses/" + first["id"])["deleted"]
    ask("GET", "/v1/responses/" + first["id"], status=404)
    ask("POST", "/v1/responses", {"input": "x", "previous_response_id": first["id"]}, 404)
    assert words(respond("So?", previous_response_id=second["id"])) is not None


def a_stream_has_the_same_text():
    got = events()
    text = "".join(e["delta"] for e in got if e["type"] == "response.output_text.delta")
    assert text == words(got[-1]["response"]) == words(respond("What is it?")), got
    assert got[0]["type"] == "response.created" and got[-1]["type"] in ("response.completed", "response.incomplete")


def log_probabilities_are_those_of_a_chat():
    chat = ask("POST", "/v1/chat/completions", {"temperature": 0, "max_tokens": 12, "logprobs": True, "top_logprobs": 2, "messages": [
        {"role": "user", "content": "What is it?"}]})["choices"][0]["logprobs"]["content"]
    more = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    part = respond("What is it?", **more)["output"][0]["content"][0]
    got = events(**more)
    entries = part["logprobs"]
    rest = chat[len(entries):]  # the end of the sequence, which has no text
    assert entries == chat[:len(entries)] and len(rest) <= 1 and len(entries[0]["top_logprobs"]) == 2, (part, chat)
    assert "".join(l["token"] for l in entries).strip() == part["text"].strip() != "", part
    assert [l for e in got if e["type"] == "response.output_text.delta" for l in e["logprobs"]] == entries, got
    assert got[-1]["response"]["output"][0]["content"] == [part], got
    assert respond("What is it?")["output"][0]["content"][0]["logprobs"] == []


def a_call_can_be_required():
    enum = lambda *words: {"type": "object", "properties": {"w": {"$ref": "#/$defs/W"}}, "required": ["w"],
                           "additionalProperties": False, "$defs": {"W": {"enum": list(words)}}}
    functions = [{"name": "paint", "parameters": enum("red", "blue")}, {"name": "wait", "parameters": enum("long", "short")}]
    legal = {"paint": ("red", "blue"), "wait": ("long", "short")}
    tools = [{"type": "function", "function": f} for f in functions]
    body = {"messages": [{"role": "user", "content": "What now?"}], "tools": tools, "max_tokens": 500, "seed": 3}
    for choice, names in ("required", legal), ({"type": "function", "function": {"name": "wait"}}, ["wait"]):
        a = ask("POST", "/v1/chat/completions", dict(body, tool_choice=choice))["choices"][0]
        f = a["message"]["tool_calls"][0]["function"]
        assert a["finish_reason"] == "tool_calls" and a["message"]["content"] is None, a
        assert f["name"] in names and json.loads(f["arguments"])["w"] in legal[f["name"]], f
    a = respond("What now?", tools=[dict(f, type="function") for f in functions], tool_choice="required", max_output_tokens=500)
    call = a["output"][0]
    assert call["type"] == "function_call" and json.loads(call["arguments"])["w"] in legal[call["name"]], a
    refused = dict(body, tool_choice="required", tools=[{"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"a": {"if": {}, "then": {}}}}}}])
    assert "'if'" in ask("POST", "/v1/chat/completions", refused, 400)["error"]["message"]


def plain(path):
    with open(path, "rb") as f:
        picture = "data:image/png;base64," + base64.b64encode(f.read()).decode()
    assert ask("GET", "/fovea/model").get("tool_parser", "") == ""
    one_continues_it(a_response_is_what_a_chat_answers(picture), picture)
    a_stream_has_the_same_text()
    log_probabilities_are_those_of_a_chat()
    a_call_can_be_required()


def marked():
    model = ask("GET", "/fovea/model")
    assert (model["tool_parser"], model["reasoning_parser"]) == ("hermes", "think"), model
    messages = [{"role": "user", "content": "hi"}]
    count = lambda **more: ask("POST", "/tokenize", dict(messages=messages, **more))["count"]
    tools = [{"type": "function", "function": TOOL}]
    strict = [{"type": "function", "function": dict(TOOL, strict=True)}]
    assert count(tools=tools) > count(tools=[]) == count(), "the template has the tools"
    for more, thinks in ({}, True), ({"chat_template_kwargs": {"enable_thinking": False}}, False):
        for extra in {}, {"tools": tools}, {"tools": strict}:
            a = ask("POST", "/v1/chat/completions", dict(messages=messages, max_tokens=6, ignore_eos=True, temperature=0, **more, **extra))
            message, usage = a["choices"][0]["message"], a["usage"]
            assert ("reasoning_content" in message) == thinks and (message["content"] == "") == thinks, message
            assert usage["completion_tokens_details"]["reasoning_tokens"] == (6 if thinks else 0), usage
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [862, 7]}}}}
    forced = {"tools": tools, "tool_choice": {"type": "function", "function": {"name": "look"}}}
    for extra in form, forced, {"structured_outputs": {"choice": ["862", "7"]}}:
        a = ask("POST", "/v1/chat/completions", dict(messages=messages, max_tokens=8, temperature=0, **extra))
        message = a["choices"][0]["message"]
        assert message["reasoning_content"] and not message["content"] and "tool_calls" not in message, message
        assert a["choices"][0]["finish_reason"] == "length", "an answer does not end inside its reasoning"
        a = ask("POST", "/v1/chat/completions", dict(messages=messages, max_tokens=64, temperature=0, chat_template_kwargs={"enable_thinking": False}, **extra))
        message = a["choices"][0]["message"]
        begins = message["tool_calls"][0]["function"]["arguments"] if "tool_calls" in message else message["content"]
        assert "reasoning_content" not in message and (begins in ("862", "7") or extra is forced and begins[:1] == "{"), message
    response = respond("hi", ignore_eos=True, tools=[dict(TOOL, type="function")])
    assert [i["type"] for i in response["output"]] == ["reasoning"] and response["status"] == "incomplete", response
    kinds = [e["type"] for e in events(ignore_eos=True)]
    assert "response.reasoning_text.delta" in kinds and "response.output_text.delta" not in kinds, kinds


plain(sys.argv[3]) if mode == "plain" else marked()
