#!/usr/bin/env python3
"""Chat prompts as transformers renders them from Jinja templates.

Writes tests/golden/chat/: one NAME.jinja per template that the engine knows, in the form that
checkpoints ship it, and cases.json, which tests/unit/text/test_chat.c replays:
  {"cases": [{"template": NAME, "turns": [{"role", "text", "n_image"}], "rendered": TEXT}, ...]}
"""
import json
import pathlib
import random

from transformers.utils.chat_template_utils import render_jinja_template

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "chat"

IMAGES = (
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\\n' }}{% endfor %}"
)
TEXT = "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"

TEMPLATES = {
    # llava-hf/llava-1.5-*: the answer's text is marked for training, which renders as nothing
    "llava": "{% for message in messages %}"
    "{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}{% endif %}"
    "{# Render all images first #}" + IMAGES + "{# Render all text next #}"
    "{% if message['role'] != 'assistant' %}" + TEXT + "{{ content['text'] + ' '}}{% endfor %}"
    "{% else %}" + TEXT + "{% generation %}{{ content['text'] + ' '}}{% endgeneration %}{% endfor %}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}",
    # Vicuna 1.1 as LLaVA was trained on it
    "vicuna": "{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ 'USER: ' }}"
    "{% elif message['role'] == 'assistant' %}{{ 'ASSISTANT: ' }}{% endif %}"
    + IMAGES + TEXT + "{{ content['text'] }}{% endfor %}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% else %}{{ ' ' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}",
    "chatml": "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' }}" + IMAGES
    + TEXT + "{{ content['text'] }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "mistral": "{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ '<<SYS>>\\n' + message['content'][0]['text'] + '\\n<</SYS>>\\n\\n' }}"
    "{% elif message['role'] == 'user' %}{{ '[INST] ' }}" + IMAGES
    + TEXT + "{{ content['text'] }}{% endfor %}{{' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}"
    "{{ ' ' + message['content'][0]['text'] + '</s> '}}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}"
    "{% endfor %}",
}

WORDS = ["What is this?", "", "Two\nlines", " spaces around ", "naïve 猫 🐈", "{{ 7 * 7 }}", "100 %",
         "a \"quoted\" 'word'", "<b>&amp;</b>", "the left one, please"]


def turn(role, text, n_image=0):
    return {"role": role, "text": text, "n_image": n_image}


def fixed():
    yield [turn("user", "hi", 1)]
    yield [turn("user", "hi")]
    yield [turn("user", "which differ?", 3)]
    yield [turn("system", "Be brief."), turn("user", "hi", 1)]
    yield [turn("user", "one", 1), turn("assistant", "two"), turn("user", "three")]
    yield [turn("system", "S"), turn("user", "one", 1), turn("assistant", "two"),
           turn("user", "three", 2), turn("assistant", "four"), turn("user", "five")]


def drawn(rng):
    turns = [turn("system", rng.choice(WORDS))] if rng.random() < 0.4 else []
    for _ in range(rng.randrange(4)):
        turns += [turn("user", rng.choice(WORDS), rng.randrange(4)),
                  turn("assistant", rng.choice(WORDS))]
    return turns + [turn("user", rng.choice(WORDS), rng.randrange(4))]


def render(template, turns):
    messages = [{"role": t["role"], "content": [{"type": "image"}] * t["n_image"]
                 + [{"type": "text", "text": t["text"]}]} for t in turns]
    out, _ = render_jinja_template(conversations=[messages], chat_template=template,
                                   add_generation_prompt=True, bos_token="<s>", eos_token="</s>")
    return out[0]


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    cases = []
    for name, template in TEMPLATES.items():
        (OUT / f"{name}.jinja").write_text(template, encoding="utf-8")
        for turns in list(fixed()) + [drawn(rng) for _ in range(12)]:
            cases.append({"template": name, "turns": turns, "rendered": render(template, turns)})
    lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
    (OUT / "cases.json").write_text("{\"cases\": [\n" + lines + "\n]}\n", encoding="utf-8")
    print(f"{len(cases)} cases in {OUT}")


if __name__ == "__main__":
    main()
