#!/usr/bin/env python3
"""Chats with tools, calls and reasoning as transformers renders them.

Writes tests/golden/chat_tools/: one NAME.jinja for each way in which checkpoints tell their models of tools, and
cases.json, which tests/unit/text/test_chat_tools.c replays:
  {"cases": [{"template": NAME, "tools": [...], "messages": [...], "rendered": TEXT}, ...]}
`messages` are those of OpenAI's API, whose arguments are texts.
"""
import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "chat_tools"

TEMPLATES = {
    "hermes": """{%- if tools %}
    {{- '<|im_start|>system\\nTools, one JSON a line:\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools>\\nCall with <tool_call>{"name": ..., "arguments": ...}</tool_call>.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content %}{{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}{%- endif %}
        {%- if message.content %}{{- message.content }}{%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- set f = call.function if call.function else call %}
            {{- '\\n<tool_call>\\n{"name": "' + f.name + '", "arguments": ' }}{{- f.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- else %}{{- '<think>\\n' }}{%- endif %}
{%- endif %}""",
    "xml": """{%- if tools %}{{- '<tools>' }}
    {%- for tool in tools %}{%- set f = tool.function %}{{- '\\n<function>' + f.name }}
        {%- if f.parameters is mapping and f.parameters.properties is mapping %}
            {%- for name, fields in f.parameters.properties | items %}{{- '\\n<parameter>' + name + ': ' + (fields.type | string) }}{%- endfor %}
        {%- endif %}
    {%- endfor %}{{- '\\n</tools>\\n' }}{%- endif %}
{%- for message in messages %}
    {{- message.role + ': ' + (message.content or '') + '\\n' }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>\\n<function=' + call.function.name + '>\\n' }}
        {%- for name, value in call.function.arguments | items %}
            {{- '<parameter=' + name + '>\\n' }}{{- value if value is string else value | tojson }}{{- '\\n</parameter>\\n' }}
        {%- endfor %}{{- '</function>\\n</tool_call>\\n' }}
    {%- endfor %}
{%- endfor %}
{%- if add_generation_prompt %}{{- 'assistant: ' }}{%- endif %}""",
    "mistral": """{{- bos_token }}{%- if tools %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{{- '[TOOL_RESULTS]{"content": ' + message.content | string + ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- elif message.tool_calls %}{{- '[TOOL_CALLS][' }}
        {%- for call in message.tool_calls %}
            {%- set out = call.function | tojson %}{{- out[:-1] }}{{- ', "id": "' + call.id + '"}' }}{{- ']' + eos_token if loop.last else ', ' }}
        {%- endfor %}
    {%- elif message.role == 'user' %}{{- '[INST]' + message.content + '[/INST]' }}
    {%- else %}{{- message.content + eos_token }}{%- endif %}
{%- endfor %}""",
}

TOOLS = [
    {"type": "function", "function": {"name": "look", "description": "Look at \"it\" <b>é</b>", "parameters": {
        "type": "object", "properties": {"what": {"type": "string", "enum": ["a", "b"]}, "n": {"type": "integer", "default": 3}},
        "required": ["what"]}}},
    {"type": "function", "function": {"name": "wait"}},
]


def call(number, name, arguments):
    return {"id": f"call{number:05}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


HISTORY = [
    {"role": "user", "content": "What is it?"},
    {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.\n", "tool_calls": [
        call(1, "look", {"what": "a <b>", "n": 2, "deep": {"x": [1.5, None, True]}}), call(2, "wait", {})]},
    {"role": "tool", "content": "a cat", "tool_call_id": "call00001"},
    {"role": "tool", "content": "12", "tool_call_id": "call00002"},
    {"role": "assistant", "content": "A cat."},
    {"role": "user", "content": "Thanks <tool_call>"},
]


def conversations():
    yield TOOLS, HISTORY[:1], {}
    yield TOOLS, HISTORY[:4], {}
    yield TOOLS[1:], HISTORY, {}
    yield None, HISTORY, {}
    yield TOOLS, HISTORY[:1], {"enable_thinking": False}


def parsed(message):
    """The message as clients of transformers have it: arguments are objects."""
    m = json.loads(json.dumps(message))
    for c in m.get("tool_calls", []):
        c["function"]["arguments"] = json.loads(c["function"]["arguments"])
    return m


def render(template, tools, messages, variables):
    out, _ = render_jinja_template(conversations=[[parsed(m) for m in messages]], tools=tools, chat_template=template,
                                   add_generation_prompt=True, bos_token="<s>", eos_token="</s>", **variables)
    return out[0]


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    cases = []
    for name, template in TEMPLATES.items():
        (OUT / f"{name}.jinja").write_text(template, encoding="utf-8")
        for tools, messages, variables in conversations():
            cases.append({"template": name, "tools": tools, "messages": messages, "variables": variables,
                          "rendered": render(template, tools, messages, variables)})
    lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
    (OUT / "cases.json").write_text('{"cases": [\n' + lines + "\n]}\n", encoding="utf-8")
    print(f"{len(cases)} cases in {OUT}")


if __name__ == "__main__":
    main()
