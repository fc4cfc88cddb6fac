"""outlines, unmodified: objects, choices, expressions and a grammar about an image, whole and streamed, as a model of vLLM and
as one of OpenAI.

usage: with_outlines.py HOST:PORT PICTURE; exits with 77 without outlines
"""
import re
from typing import Literal

from client import ANSWER, QUESTION, base_url, check, name, picture_path, skip_without

try:
    import openai
    import outlines
    import PIL.Image
    from outlines.inputs import Image
    from outlines.types import CFG, Regex
    from pydantic import BaseModel
except ImportError as e:
    skip_without(e, "outlines")


class Square(BaseModel):
    color: Literal["red", "green", "blue", "white"]
    size: Literal["small", "large"]


api = openai.OpenAI(base_url=base_url, api_key="unused")
question = [QUESTION, Image(PIL.Image.open(picture_path))]
how = {"temperature": 0}
vllm, of_openai = outlines.from_vllm(api, name), outlines.from_openai(api, name)
for model in vllm, of_openai:
    what = type(model).__name__
    check(model(question, **how), what)
    print(what, "object:", Square.model_validate_json(model(question, Square, **how)), flush=True)
    parts = list(model.stream(question, Square, **how))
    assert len(parts) > 1 and Square.model_validate_json("".join(parts)), parts

# A regular expression and a grammar hold the model to texts that it would not write by itself.
check(vllm(question, Literal["red", ANSWER], **how), "choice")
said = vllm(question, Regex("[0-9]{3}"), **how)
assert re.fullmatch("[0-9]{3}", said), said
print("expression:", said, flush=True)
said = vllm(question, CFG('root ::= "<" ("dark" | "light") ">"'), **how)
assert said in ("<dark>", "<light>"), said
print("grammar:", said)
