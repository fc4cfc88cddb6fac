#!/usr/bin/env python3
"""Programs and chat templates as jinja2 runs them under transformers' rules.

Writes tests/golden/jinja/programs.json (small programs, one per rule of the language) and
conversations.json (random conversations through the templates beside it). tests/unit/text/jinja/test_jinja.c
replays both:
  {"cases": [{"program": TEXT or "template": NAME, "vars": {...}, "rendered": TEXT or "error": TEXT}]}

--live N renders N new conversations and programs and runs PROGRAM, the built unit_text, on them.
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import transformers.utils.chat_template_utils as rules

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "jinja"
NOW = datetime.datetime(2025, 7, 1)


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


rules.datetime = Clock

# ---- programs ----

VARS = {
    "a": 7, "b": -3, "f": 2.5, "s": "Hello World", "u": "Grüße, Öl 日本 😀\tq\"'\\\n", "e": "", "t": True,
    "n": None, "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "d": {"x": 1, "y": "two", "z": [1, 2.0, None, True]},
    "p": [{"k": "u", "v": 1}, {"k": "a", "v": 2, "o": {"q": "Z"}}, {"k": "u", "v": 3}],
    "lines": "one\ntwo\n\nfour\r\nfive", "words": "  some words  here ",
}

EXPRESSIONS = """
a + b | a - b | a * b | a / b | a // b | a % b | b % a | a ** 2 | 2 ** -1 | a / 2.0 | f // 1 | f % 2 | -a | +b
- a ** 2 | 2 * 3 + 4 ~ 5 | 1 ~ 2 + 3 | a == 7.0 | 1 < 2 < 3 | 1 < 3 < 2 | a > b >= -3 | t == 1 | n == none
s == 'Hello World' | 'a' < 'b' | [1, 2] < [1, 3] | (1, 'a') == (1, 'a') | [1] == (1,) | {'x': 1} == {'x': 1.0}
'x' in d | 'q' in d | 3 in l | 9 not in l | 'World' in s | 'x' not in s | not t | not e or a | e and a | e or 'q'
n or false | none | true | false | True | None | nosuch | nosuch.x if false else 1 | (1 if e else 2) | (1 if e)
'a' 'b' "c" | 'a\\n\\tb\\'\\x41\\u00e9\\q' | 1_000 | 0x1f | 1e3 | 1.5e-7 | 1e16 | 123456789.125 | 0.1 + 0.2 | 1e22
1.0 | 100000000000000000.0 | 3.14159265358979 | 2.50 | -0.0 | 1/3 | 1e-5 | 0.0001 | 5e-324 | 1.7976931348623157e308
[] | [1, 'a', none, 2.0, t] | (1,) | () | (1, 2) | {} | {'a': 1, 2: 'b', none: [1]} | d | p | [u] | [s, "it's"] | ['a"b\\'c']
l[0] | l[-1] | l[9] | l[1:] | l[::-1] | l[:2] | l[-2:] | l[5:] | l[::2] | l[2:0:-1] | s[0] | s[-1] | s[2:5] | s[::-1] | u[7:9]
s[99] | d.x | d['y'] | d.nosuch | d['nosuch'] | d.z[1] | p[1].o.q | p.0.k | d.items()|list | d.keys()|list | d.values()|list | d.get('x')
d.get('no') | d.get('no', 5) | s.x | n.x | n['x'] | l.x | d.items | list
s|upper | s|lower | s|title | 'foo-bar (baz) it\\'s'|title | 'hELLO wORLD'|capitalize | words|trim | 'xxaxx'|trim('x')
s|length | u|length | l|length | d|length | e|length | nosuch|length | s|replace('l', 'L') | s|replace('l', 'L', 1)
'aaa'|replace('a', 'aa') | 'abc'|replace('', '-') | l|join | l|join(', ') | p|join('/', attribute='k') | u|list | d|list
l|first | l|last | []|first | s|first | s|last | l|sort | l|sort(reverse=true) | w|sort | w|sort(case_sensitive=true)
p|sort(attribute='k')|map(attribute='v')|list | w|unique|list | ['a','A','b']|unique|join | l|reverse|list | s|reverse
l|min | l|max | w|max | l|sum | p|sum(attribute='v') | p|sum('v', 10) | []|sum | d|items|list | d|dictsort | d|dictsort(reverse=true)
{'b': 1, 'A': 2}|dictsort | {'b': 1, 'A': 2}|dictsort(true) | {'b': 1, 'A': 2}|dictsort(by='value')
p|map(attribute='k')|list | p|map(attribute='o.q', default='-')|list | w|map('upper')|join(',') | w|map('replace', 'a', 'x')|list
p|selectattr('k', 'equalto', 'u')|list | p|selectattr('o')|list | p|selectattr('o', 'defined')|map(attribute='v')|list
p|rejectattr('k', '==', 'u')|list | p|rejectattr('o', 'undefined')|list | l|select('odd')|list | l|reject('gt', 1)|list | [0, 1, '']|select|list
l|select('in', [1, 2])|list | n|default('x') | nosuch|default('x') | e|default('x') | e|default('x', true) | nosuch|d | n|d('q', boolean=true)
'42'|int | '4.7'|int | 'x'|int | 'x'|int(3) | 'x'|int(default=-1) | '0x1f'|int(0, 16) | 4.9|int | -4.9|int | t|int | n|int | ' 12 '|int | '1_0'|int
'4.5'|float | 'x'|float | 3|float | 'x'|float(1.5) | 2.5|round | 3.5|round | 2.567|round(2) | 2.5|round(0, 'ceil') | 2.5|round(method='floor') | 7|round
a|abs | b|abs | f|abs | a|string | f|string | n|string | t|string | d|string | u|string | s|safe | '<a&"\\'>'|e | s|escape
lines|indent | lines|indent(2) | lines|indent(2, true) | lines|indent(2, blank=true) | lines|indent('> ') | 'a\\n'|indent | ''|indent
d|tojson | p|tojson | u|tojson | [1.5, none, true, 'é']|tojson | d|tojson(indent=2) | p|tojson(indent=4) | []|tojson(indent=2) | {}|tojson
d|tojson(separators=(',', ':')) | u|tojson(ensure_ascii=true) | {'b': 1, 'a': 2}|tojson(sort_keys=true) | {1: 2, none: 3, true: 4}|tojson | 'a/b<c>'|tojson
s.upper() | s.lower() | "they're bill's"|title | "they're bill's".title() | 'ÄB ß'.upper() | 'ß x'.title() | 'ÉCOLE'.lower() | 'éc'.capitalize()
words.strip() | words.lstrip() | words.rstrip() | 'xyx'.strip('x') | 'xyx'.lstrip('xy') | ' \\u00a0\\u3000a\\u2003 '.strip() | 'é日é'.strip('é')
words.split() | words.split(' ') | words.split(none, 1) | 'a,b,c'.split(',') | 'a,b,c'.split(',', 1) | 'a,b,c'.rsplit(',', 1) | ''.split() | ''.split(',')
'a,b,c'.split(',')[-1] | lines.splitlines() | lines.splitlines(true) | 'a-b-c'.partition('-') | 'a-b-c'.rpartition('-') | 'abc'.partition('x') | 'abc'.rpartition('x')
s.startswith('Hell') | s.endswith('x') | s.startswith(('x', 'H')) | s.find('o') | s.rfind('o') | s.find('q') | u.find('日') | s.index('W') | s.count('l') | s.count('')
s.replace('o', '0') | s.replace('o', '0', 1) | ', '.join(w) | s.removeprefix('Hello ') | s.removesuffix('ld') | 'abc'.isalpha() | 'ab1'.isalnum() | '12'.isdigit()
' '.isspace() | 'AB'.isupper() | 'ab'.islower() | ''.isalpha() | '1'.isupper() | l.index(1) | l.count(3) | 'a' * 3 | [1] * 2 | 3 * 'ab' | -1 * 'a' | [1] + [2] | (1,) + (2,)
a is number | t is number | t is boolean | a is integer | f is float | f is integer | s is string | u is not string | d is mapping | l is mapping | l is sequence
s is sequence | d is sequence | l is iterable | n is iterable | s is iterable | nosuch is defined | s is defined | nosuch is undefined | n is none | n is not none
a is odd | a is even | a is divisibleby 7 | a is divisibleby(2) | a is eq 7 | a is equalto(7) | a is gt 3 | a is lt(3) | a is in [7] | s is upper | 'AB' is upper | 'ab' is lower
t is true | t is false | 1 is true | n is sameas none | a is defined and b is defined | a is not defined or b | raise_exception is callable | a is ne 7 | a is ge 7 | a is le 7
range(3)|list | range(1, 4)|list | range(5, 0, -2)|list | range(3)|length | dict(a=1, b=2) | dict({'x': 1}, y=2) | namespace(a=1).a | strftime_now('%d %b %Y') | strftime_now('%Y-%m-%d %H:%M')
l|map('string')|join('') | [[1, 2], [3]]|map('length')|list | [[1, 2], [3]]|map('first')|list | [[1, 2], [3]]|sum(start=[]) | w|join|upper | (s ~ '!')|lower | s|upper ~ '!' | -1|abs | not a is none
a if t else b | a if not t else b if e else 'c' | [1, 2, 3][a - 6] | {'a': {'b': [1, {'c': 'deep'}]}}.a.b[1].c | d.z|length > 3 | l|length - 1 | (l|length) * 2 | 'abc'[1] ~ 'x' | loop is defined
s.nosuch() | nosuch.x | nosuch() | nosuch + 1 | 1 + 'a' | 'a' + 1 | 1 / 0 | 1 % 0 | l + 1 | 1 in 1 | n|length | 'a' < 1 | nosuch < 1 | s() | raise_exception('no: ' ~ a) | l.append(1) | d.update({'q': 1})
'x'.join([1]) | d.x.y.z | range(1000000) | [1, 'a']|sort | n|items | l|map('nosuch')|list | nosuch|tojson | s|int|string | []|min | l|tojson|length | 1 if true else nosuch.x.y | e.split('x')[1].z
"""
EXPRESSIONS += r"""
'%s' % 1 | '%s %s' % (1, 'a') | '%d%%' % 5 | '%5.2f|%-5s|%05d' % (f, 'ab', a) | '%x %X %o %#x' % (255, 255, 8, 255) | '%+d % d' % (a, a)
'%(x)s %(y)r' % d | '%s' % d | '%s' % (d,) | '%r %a' % ('a', 'b') | '%c%c' % (65, 'b') | '%e %g %G' % (f, 1e20, 1e-7) | '%.3s' % s | '%*d' % (5, a)
'%s' % () | '%d' % 'a' | '%s %s' % 1 | '%s' % (1, 2) | '%q' % 1 | '%(no)s' % d | '%' % 1 | '%d' % 3.9 | '%x' % 3.5 | '%s' % none | '%s' % l
'%s-%s'|format(a, b) | '%(q)s'|format(q=1) | '%s'|format(u) | '{}'.format(1) | '{} {}'.format(a, s) | '{1}{0}'.format(1, 2) | '{x}'.format(x=f)
'{:>5}|{:<5}|{:^5}|{:*^7}'.format(1, 'a', 'b', 'c') | '{:05d}'.format(a) | '{:,}'.format(1234567) | '{:.2f}'.format(f) | '{:x}'.format(255) | '{:d}'.format(a)
'{:+.1e}'.format(f) | '{:%}'.format(0.5) | '{!r}'.format('a') | '{{}}'.format() | '{0[x]} {0[z]}'.format(d) | '<|image_{i:d}|>'.format(i=a) | '{:_}'.format(1234567)
'{'.format() | '}'.format() | '{}'.format() | '{0}{}'.format(1, 2) | '{:d}'.format('a') | '{nope}'.format(a=1) | '{:>+5}'.format(7) | '{:,.2f}'.format(12345.678) | '{}'.format(none) | '{}'.format(t)
('<'|safe) + '<' | '<' + ('<'|safe) | (('<b>'|safe) + '&' + "'") + '"' | ('<'|e) + '<' | ('<'|safe)|e | ('<'|safe) ~ '<' | ('<'|safe|string) + '<' | ('<' ~ ('<'|safe)) + '<' | nosuch|safe | 1|safe + '<'
range(*[1, 4])|list | range(*l)|list | dict(**d) | dict(**{'q': 1}) | 'a,b'.split(*[',']) | dict(*[d], k=1) | range(*5)|list | dict(**l)
"""

PROGRAMS = [
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}"
    "{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }},{% endfor %}",
    "{% for x in [] %}a{% else %}none{% endfor %}", "{% for x in nosuch %}a{% else %}none{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}z{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d|dictsort %}{{ k }}{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for c in 'añb' %}[{{ c }}]{% endfor %}",
    "{% for x in l %}{% for y in w %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}.",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1,1,2] %}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in 5 %}{% endfor %}", "{% for a, b in l %}{% endfor %}", "{% for x in l recursive %}{{ x }}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set x %}a{{ a }}b{% endset %}{{ x }}", "{% set x | upper %}abc{% endset %}{{ x }}",
    "{% set x | replace('a', 'b') | upper %}aca{% endset %}{{ x }}", "{% set d.x = 3 %}{{ d.x }}",
    "{% if a > 3 %}x{% elif a > 1 %}y{% else %}z{% endif %}", "{% if e %}x{% elif n %}y{% else %}z{% endif %}",
    "{% if e %}x{% elif t %}y{% else %}z{% endif %}", "{% if l|select('odd') %}generator{% endif %}", "{% if [] %}x{% endif %}",
    "{% if t %}{% set q = 5 %}{% endif %}{{ q }}", "{% if e %}x{% else %}{% if t %}y{% endif %}{% endif %}",
    "{% macro m(x, y=2, z='c') %}{{ x }}{{ y }}{{ z }}{% endmacro %}{{ m(1) }}|{{ m(1, z=3) }}|{{ m(y=1, x='q') }}|{{ m() }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(q=2) }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% set g = 'global' %}{% macro m() %}{{ g }}{% set g = 'inner' %}{% endmacro %}{{ m() }}{{ g }}",
    "{% macro m(x) %}{% set y = x|upper %}{{ y }}{% endmacro %}{% set r = m('a') ~ m('b') %}{{ r }}{{ r|length }}",
    "{% macro m(x) %}[{{ x }}{{ caller() }}]{% endmacro %}{% call m(1) %}body{{ a }}{% endcall %}",
    "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(x, y=5) m() %}{{ x }}/{{ y }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}", "{% call 5 %}{% endcall %}",
    "{% macro m(x) %}{{ x }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, q=4) }}{{ m(1) }}",
    "{% macro m(x, y) %}{{ x }}{{ y }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'y': 1, 'x': 2}) }}{{ m(*[1], **{'y': 3}) }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(*[1, 2]) }}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(**{'z': 2}) }}",
    "{% with x = 1, y = 2 %}{{ x }}{{ y }}{% endwith %}{{ x }}", "{% filter upper %}abc{{ s }}{% endfilter %}",
    "{% generation %}x{{ a }}{% endgeneration %}y", "{% print a %}", "{{ a, b }}", "{% raw %}{{ a }}{% endraw %}",
    "a{%- raw -%} {{ x }} {%- endraw -%} b", "{# c #}x{#- c -#} y ", " a {{- ' b ' -}} c ", "a\n{{ 1 }}\nb\n", "a\n\n",
    "  {% if t %}\n  x\n  {% endif %}\ny", "a {% if t %} b {% endif %} c", "  {%+ if t %}\nx{% endif %}", "{% if t +%}\nx{% endif %}",
    "{% if t -%}\n\n  x\n\n  {%- endif %}\n  y", "\n  {# c #}\n  x\n\t{# d #}  \n", "x  {# c #}\n y", "{% if t %}\n\n\nx{% endif %}\n\n",
    "a\r\nb\r{% if t %}\r\nc{% endif %}\r\n", "{{ '{{' }}{{ '%}' }}{{ {'a': {'b': 1}}['a'] }}", "{{ \"a\" \n\n ~ 'b' }}", "}} %} #} {",
    "{% for x in l -%}\n  {{ x }}\n{%- endfor %}", "{% for x in l %}\n  {{ x }}\n{% endfor %}\n", "{{ [1, 2,] }}{{ (1, 2,) }}{{ {'a': 1,} }}",
    "{{ m }}{% set m = 3 %}{{ m }}", "{% set ns = namespace() %}{% set ns.a = [] %}{% set ns.a = ns.a + [1] %}{{ ns.a }}{{ ns.b }}",
    "{% for m in p %}{% set ns = namespace(k=m.k) %}{{ ns.k }}{% endfor %}", "{% set q = {'a': 1} %}{{ q.a }}{{ q['a'] }}",
    "{{ a }", "{% if a %}", "{% endif %}", "{% for %}{% endfor %}", "{{ a | nosuch }}", "{{ a is nosuch }}", "{% nosuch %}", "{{ 'a }}", "{{ (1 }}",
    "{# open", "{{ 1 +* }}", "{% set 1 = 2 %}", "{% break %}", "{% import 'x' as y %}", "{% include 'x' %}", "{% extends 'x' %}", "{{ a ! b }}",
    "{% if t %}a{% endfor %}", "{{ }}", "{% set x = %}", "{{ 1 2 }}", "{{ a..b }}", "{% macro 1() %}{% endmacro %}", "{{ ] }}",
]
# Features of jinja2 that the interpreter refuses by name.
OURS_REFUSED = {"{% for x in l recursive %}{{ x }}{% endfor %}"}


def run(template, variables):
    """{"rendered"} or {"error"}."""
    try:
        text = rules._compile_jinja_template(template).render(**variables)
    except RecursionError as e:
        return {"error": type(e).__name__}
    except Exception as e:  # whatever a template may raise
        return {"error": f"{type(e).__name__}: {e}"}
    return {"rendered": text}


def programs():
    texts = [e.strip() for line in EXPRESSIONS.strip().splitlines() for e in split_bars(line)]
    texts = ["{{ " + e.replace("\\\\", "\\") + " }}" for e in texts] + PROGRAMS
    for text in texts:
        if text in OURS_REFUSED:
            yield {"program": text, "error": "not supported"}
            continue
        result = run(text, VARS)
        if " at 0x" in result.get("rendered", "") or "<built-in" in result.get("rendered", ""):
            continue
        yield {"program": text, **result}


def split_bars(line):
    """Splits at ' | ' (a filter's bar has no blanks around it here)."""
    return line.split(" | ")


def write_cases(path, variables, cases):
    lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
    path.write_text(f'{{"vars": {json.dumps(variables, ensure_ascii=False)}, "cases": [\n{lines}\n]}}\n', encoding="utf-8")
    return len(cases)


# ---- conversations ----

WORDS = ["What", "is", "in", "the", "picture?", "Größe", "日本語の", "猫", "🐈\u200d⬛", "e\u0301", "\u00a0", "x\ty", "\n", "\n\n", "  ",
         "<image>", "</s>", "<|im_end|>", "<think>", "</think>", "[INST]", "{{ x }}", "{% if %}", "\\n", "'q'", '"d"', "&lt;", "<b>",
         "\u3000", "{'a': 1}", "١٢٣", "<tool_response>", "</tool_response>", "/nothink", "\r\n", "ß", "%s", "\x1c", "None"]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Wetter für <einen> Ort & 'Tag'",
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": ["integer", "null"]}},
                         "required": ["city"]}}}]
PARTS = {"llava", "llava_next_mistral", "llava_next_vicuna", "llava_next_llama3", "llava_next_chatml", "llava_onevision", "smolvlm",
         "idefics3", "video_llava"}
EITHER = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl", "mistral3", "pixtral", "gemma3"}


def phrase(r):
    return r.choice(["", " "]).join(r.choices(WORDS, k=r.choice([0, 1, 2, 4, 9])))


def content(r, name, role):
    if name not in PARTS and (name not in EITHER or r.random() < 0.3):
        return phrase(r)
    parts = [{"type": "image"}] * (r.choice([0, 1, 1, 3]) if role == "user" else 0)
    parts += [{"type": "text", "text": phrase(r)} for _ in range(r.choice([1, 1, 2]))]
    if role == "user" and r.random() < 0.2:
        r.shuffle(parts)
    return parts


def conversation(r, name):
    roles = ["system"] * r.choice([0, 1]) + ["user", "assistant"] * r.choice([0, 1, 1, 2]) + ["user"]
    if r.random() < 0.15:
        roles.append("assistant")
    if r.random() < 0.05:
        r.shuffle(roles)
    variables = {"messages": [{"role": role, "content": content(r, name, role)} for role in roles],
                 "tools": TOOLS if r.random() < 0.2 else None, "documents": None,
                 "add_generation_prompt": r.random() < 0.9, "eos_token": "</s>"}
    if r.random() < 0.9:
        variables["bos_token"] = "<s>"
    for key, values in {"add_vision_id": [True], "enable_thinking": [True, False], "reasoning_effort": ["high"],
                        "documents": [[{"title": "a", "text": phrase(r)}, {"title": "b", "text": "b"}]]}.items():
        if r.random() < 0.15:
            variables[key] = r.choice(values)
    return variables


def conversations(seed, per_template):
    r = random.Random(seed)
    for path in sorted(GOLDEN.glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        for _ in range(per_template):
            variables = conversation(r, path.stem)
            yield {"template": path.stem, "vars": variables, **run(template, variables)}


def write(directory, seed, per_template):
    write_cases(directory / "programs.json", VARS, list(programs()))
    n = write_cases(directory / "conversations.json", {}, list(conversations(seed, per_template)))
    print(f"{n} conversations, seed {seed}")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    a.add_argument("--live", type=int, metavar="N", help="check N new conversations with PROGRAM")
    a.add_argument("--seed", type=int, help="of the conversations (default: 1; with --live: random)")
    a.add_argument("program", nargs="?", help="the built unit_text")
    a = a.parse_args()
    if a.live is None:
        write(GOLDEN, 1 if a.seed is None else a.seed, 12)
        return 0
    seed = random.SystemRandom().randrange(1 << 31) if a.seed is None else a.seed
    with tempfile.TemporaryDirectory() as tmp:
        for path in GOLDEN.glob("*.jinja"):
            shutil.copy(path, tmp)
        write(pathlib.Path(tmp), seed, -(-a.live // len(list(GOLDEN.glob("*.jinja")))))
        return subprocess.run([a.program, "--filter", "jinja/*jinja2*"], env=os.environ | {"FOVEA_JINJA_GOLDEN": tmp},
                              check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
