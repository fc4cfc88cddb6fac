#!/usr/bin/env python3
"""Conversations as OpenAI's clients send them, rendered by fovea and by transformers' apply_chat_template.

  chat_live.py [--templates DIR]... [--conversations N] [--seed S] chat_render

Each of N random conversations (200 unless given) goes through every template: those of tests/golden/jinja, and the
*.jinja of each DIR, where published checkpoints' templates can be put that are not part of this repository.
chat_render, a program of the build, reads the body as a gateway does and renders it as a worker does. The
reference is transformers' render_jinja_template on the messages as docs/HTTP.md says that templates see them: null
members left out, arguments of tool calls as JSON, content as a text or as parts as the template takes it. Texts must
be equal byte for byte; where the template raises an exception, fovea's error must have its text. Ends with 1 when
anything differs.
"""
import argparse
import base64
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

os.environ["TZ"] = "UTC"
time.tzset()

import jinja2
import transformers.utils.chat_template_utils as rules
from jinja2 import nodes

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "jinja"
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
PICTURE = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()

# ---- how a template reads content ------------------------------------------------------------------


def is_content(node, names):
    while isinstance(node, nodes.Filter) or (isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)):
        node = node.node
    if isinstance(node, nodes.Name):
        return node.name in names
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    return isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and node.arg.value == "content"


def is_none(node):
    return isinstance(node, nodes.Const) and node.value is None


class Reading:
    """walks: it loops over content or takes a part of it; asks: it tests `is string`; nulls: it compares with none."""

    def __init__(self, text):
        tree = jinja2.Environment(extensions=["jinja2.ext.loopcontrols", Generation]).parse(text)
        names = {"content"}
        for a in tree.find_all(nodes.Assign):
            if isinstance(a.target, nodes.Name) and is_content(a.node, names):
                names.add(a.target.name)
        for a in tree.find_all(nodes.Assign):  # a name for something else too
            if isinstance(a.node, (nodes.Getattr, nodes.Getitem)) and not is_content(a.node, names):
                names -= {getattr(a.target, "name", "")} - {"content"}
        self.walks = any(is_content(f.iter, names) for f in tree.find_all(nodes.For)) or any(
            isinstance(g.arg, nodes.Const) and isinstance(g.arg.value, int) and is_content(g.node, names)
            for g in tree.find_all(nodes.Getitem))
        tests = [t for t in tree.find_all(nodes.Test) if is_content(t.node, names)]
        self.asks = any(t.name == "string" for t in tests)
        self.nulls = any(t.name == "none" for t in tests) or any(
            (is_none(c.expr) and is_content(c.ops[0].expr, names)) or (is_content(c.expr, names) and is_none(c.ops[0].expr))
            for c in tree.find_all(nodes.Compare))


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(["name:endgeneration"], drop_needle=True)).set_lineno(line)


# ---- the reference ---------------------------------------------------------------------------------


class Refused(Exception):
    pass


def content_of(reading, content):
    content = content or (None if isinstance(content, list) else content)  # an empty list is no content
    if content is None and reading.nulls:
        return None
    parts = reading.walks and not reading.asks
    if content is None:
        content = ""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if parts else content
    made = []
    for part in content:
        part = {"type": "text", "text": part} if isinstance(part, str) else part
        if part.get("text") is not None:
            made.append({"type": "text", "text": part["text"]})
        else:
            made.append({"type": "image"})
    if reading.walks:
        return made
    if any(p["type"] == "image" for p in made):
        raise Refused("no place for images")
    return "\n".join(p["text"] for p in made)


def message_of(reading, message):
    made = {"role": message["role"], "content": content_of(reading, message.get("content"))}
    made |= {k: v for k, v in message.items() if v is not None and k not in ("role", "content")}
    if message["role"] == "assistant" and made.get("tool_calls") == []:
        del made["tool_calls"]
    if message["role"] == "assistant" and "tool_calls" in made:
        made["tool_calls"] = json.loads(json.dumps(made["tool_calls"]))
        for call in made["tool_calls"]:
            arguments = call["function"].get("arguments")
            call["function"]["arguments"] = json.loads(arguments) if arguments else {}
    return made


def last_text(content):
    if isinstance(content, list):
        return next((p if isinstance(p, str) else p["text"] for p in reversed(content)
                     if isinstance(p, str) or p.get("text") is not None), None)
    return content


def ends_of(body):
    """(add_generation_prompt, continue_final_message)"""
    last = body["messages"][-1]
    opens, continues = body.get("add_generation_prompt"), body.get("continue_final_message")
    if continues is None:
        continues = (opens is None and last["role"] == "assistant" and last_text(last.get("content")) is not None
                     and last.get("tool_calls") is None)
    return (not continues if opens is None else opens), continues


def reference(text, reading, body):
    opens, continues = ends_of(body)
    if opens and continues:
        raise Refused("both")
    if continues and last_text(body["messages"][-1].get("content")) is None:
        raise Refused("nothing to continue")
    variables = dict(SPECIAL)
    if body.get("reasoning_effort") is not None:
        variables["reasoning_effort"] = body["reasoning_effort"]
    variables |= body.get("chat_template_kwargs") or {}
    messages = [message_of(reading, m) for m in body["messages"]]
    rendered, _ = rules.render_jinja_template([messages], chat_template=text, add_generation_prompt=opens,
                                              continue_final_message=continues, **variables)
    return rendered[0]


# ---- conversations ---------------------------------------------------------------------------------

WORDS = ["What", "is", "in", "the", "picture?", "Größe", "日本語の", "🐈\u200d⬛", "\u00a0", "x\ty", "\n", "\n\n", "  ", "<image>", "</s>",
         "<|im_end|>", "<think>", "</think>", "[INST]", "{{ x }}", "{% if %}", "'q'", '"d"', "&lt;", "\u3000", "{'a': 1}", "\r\n", "%s",
         "<tool_response>", "/nothink", "\x1c", "None", "ß", "<|assistant|>", "$", "\u2028"]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Wetter für <einen> Ort & 'Tag'\n\nZwei Zeilen",
          "parameters": {"type": "object", "required": ["city"], "properties": {
              "city": {"type": "string", "description": "A \"city\""}, "days": {"type": ["integer", "null"], "default": 3},
              "unit": {"type": "string", "enum": ["c", "f", None]}, "where": {"type": "object", "additionalProperties": False, "properties": {
                  "x": {"type": "number", "minimum": -1.5}, "y": {"anyOf": [{"type": "number"}, {"type": "string"}]}}},
              "tags": {"type": "array", "items": {"type": "string"}}, "many": {"type": "array", "items": {"type": "object", "properties": {}}}}},
          "return": {"type": "string", "description": "the weather"}}},
         {"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}},
         {"type": "function", "function": {"name": "g"}}]
VARIABLES = {"tools": [TOOLS, TOOLS[:1], TOOLS[1:2], []],"enable_thinking": [True, False], "add_vision_id": [True], "thinking": [True, False], "custom": [[1, 2.5, {"a": None}]],
             "date_string": ["1 Jan 2026"], "tools_in_user_message": [False], "documents": [[{"title": "t", "text": "x"}]],
             "model_identity": ["You are a test."], "preserve_thinking": [True], "bos_token": ["<|bos|>"]}


def phrase(r):
    return r.choice(["", " "]).join(r.choices(WORDS, k=r.choice([0, 1, 2, 4, 9])))


def image(r):
    return r.choice([{"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}}, {"type": "image_url", "image_url": PICTURE}])


def part(r):
    return r.choice([{"type": "text", "text": phrase(r)}, {"text": phrase(r), "cache_control": {"type": "ephemeral"}, "type": "text"},
                     {"type": "input_text", "text": phrase(r), "annotations": None}, phrase(r)])


def content(r, role):
    shape = r.random()
    if shape < 0.55:
        return phrase(r)
    parts = [part(r) for _ in range(r.choice([0, 1, 1, 2, 3]))]
    if role == "user" or r.random() < 0.15:
        parts += [image(r) for _ in range(r.choice([0, 1, 1, 2]))]
        r.shuffle(parts)
    return parts


def calls(r):
    return [{"id": f"call_{r.randrange(10 ** 8):09d}"[:9], "type": "function",
             "function": {"name": r.choice(["get_weather", "f"]), "arguments": r.choice(
                 ['{"city": "Köln", "days": 2}', "{}", '{"a": [1.5, null, true, "x\\n"], "b": {"c": "<|im_end|>"}}', ""])}}
            for _ in range(r.choice([1, 1, 2]))]


def turn(r, role):
    message = {"role": role, "content": content(r, role)}
    if role == "assistant":
        if r.random() < 0.3:  # an answer's own model_dump()
            message |= {"refusal": None, "annotations": None, "audio": None, "function_call": None, "tool_calls": None}
        if r.random() < 0.25:
            message |= {"tool_calls": calls(r)}
            message["content"] = r.choice([None, "", message["content"]])
        if r.random() < 0.2:
            message[r.choice(["reasoning_content", "reasoning"])] = phrase(r)
        if r.random() < 0.05:
            message["content"] = None
    if role == "tool":
        message |= {"tool_call_id": "call_1234", "content": r.choice(['{"degrees": 3}', phrase(r), message["content"]])}
    if r.random() < 0.1:
        message["name"] = r.choice(["Bob", "get_weather", None])
    if r.random() < 0.05:
        message["extra"] = {"n": 1.0, "list": [None]}
    return message


def without_images(body):
    """The conversation for a template that takes text: its images are gone, except for one conversation in ten."""
    def kept(content):
        return [p for p in content if isinstance(p, str) or p.get("image_url") is None] if isinstance(content, list) else content
    return body | {"messages": [m | {"content": kept(m["content"])} for m in body["messages"]]}


def conversation(r):
    roles = r.choice([["system"], ["developer"], [], []]) + ["user"]
    for _ in range(r.choice([0, 0, 1, 2])):
        roles += r.choice([["assistant", "user"], ["assistant", "tool", "assistant", "user"], ["user"], ["assistant", "user", "system", "user"]])
    if r.random() < 0.25:
        roles.append("assistant")
    if r.random() < 0.08:
        r.shuffle(roles)
    if r.random() < 0.03:
        roles.append(r.choice(["tool", "moderator", "system"]))
    body = {"messages": [turn(r, role) for role in roles]}
    if r.random() < 0.2:
        body["add_generation_prompt"] = r.choice([True, False])
    if r.random() < 0.15:
        body["continue_final_message"] = r.choice([True, True, False])
    if r.random() < 0.1:
        body["reasoning_effort"] = r.choice(["low", "high"])
    if r.random() < 0.4:
        body["chat_template_kwargs"] = {k: r.choice(VARIABLES[k]) for k in r.sample(sorted(VARIABLES), r.choice([0, 1, 2, 3])) + r.choice([[], [], ["tools"]])}
    return body


# ---- comparison ------------------------------------------------------------------------------------


def expected(text, reading, body):
    """("text", TEXT), ("raised", WORDS of raise_exception) or ("error", what it was)."""
    try:
        return "text", reference(text, reading, body)
    except jinja2.exceptions.TemplateError as e:
        raised = type(e) is jinja2.exceptions.TemplateError
        return ("raised" if raised else "error"), str(e.message or "")
    except Exception as e:  # whatever a template may raise
        return "error", f"{type(e).__name__}: {e}"


def differs(want, got):
    kind, words = want
    if kind == "text":
        return got.get("text") != words
    if kind == "raised":
        return words.strip()[:300] not in got.get("error", "")
    return "error" not in got


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    a.add_argument("--templates", action="append", type=pathlib.Path, default=[], metavar="DIR")
    a.add_argument("--conversations", type=int, default=200, metavar="N")
    a.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    a.add_argument("--show", type=int, default=5, help="differences to print (default 5)")
    a.add_argument("program", nargs="?", help="the built chat_render")
    a = a.parse_args()
    paths = [p for d in [GOLDEN] + a.templates for p in sorted(d.glob("*.jinja"))]
    r = random.Random(a.seed)
    bodies = [conversation(r) for _ in range(a.conversations)]
    lines, wants = [], []
    with tempfile.TemporaryDirectory() as tmp:
        pathlib.Path(tmp, "tokenizer_config.json").write_text(json.dumps(SPECIAL))
        for path in paths:
            text = path.read_text(encoding="utf-8")
            reading = Reading(text)
            for i, body in enumerate(bodies):
                body = body if reading.walks or i % 10 == 0 else without_images(body)
                lines.append(json.dumps({"template": text, "dir": tmp, "body": json.dumps(body, ensure_ascii=r.random() < .5)}))
                wants.append((path, body, expected(text, reading, body)))
        made = subprocess.run([a.program], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout
    wrong, kinds = collections.Counter(), collections.Counter()
    answers = made.split("\n")[:-1]
    assert len(answers) == len(wants), (len(answers), len(wants))
    for (path, body, want), line in zip(wants, answers):
        got = json.loads(line)
        kinds[want[0]] += 1
        if not differs(want, got):
            continue
        wrong[path.name] += 1
        if sum(wrong.values()) <= a.show:
            print(f"{path.name}\n  body: {json.dumps(body, ensure_ascii=False)}\n  want: {want}\n  got:  {got}\n")
    print(f"{len(bodies)} conversations, {len(paths)} templates, seed {a.seed}: {kinds['text']} texts, {kinds['raised']} raised, "
          f"{kinds['error']} other errors; {sum(wrong.values())} differ {dict(wrong) or ''}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
