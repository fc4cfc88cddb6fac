"""instructor, unmodified: an object about an image in each of its modes for chats, by the Responses API, and in parts.

usage: with_instructor.py HOST:PORT PICTURE; exits with 77 without instructor
"""
from typing import Any, Literal

from client import QUESTION, base_url, name, picture_url, skip_without

try:
    import instructor
    import openai
    from pydantic import BaseModel
except ImportError as e:
    skip_without(e, "instructor")


class Square(BaseModel):
    """The square of the picture."""

    color: Literal["red", "green", "blue", "white"]
    size: Literal["small", "large"]


class Anything(BaseModel):
    color: Any = None


api = openai.OpenAI(base_url=base_url, api_key="unused")
question = [{"role": "user", "content": [{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {"url": picture_url}}]}]
how = {"model": name, "temperature": 0, "max_retries": 0}
for mode in "TOOLS", "TOOLS_STRICT", "JSON_SCHEMA":
    client = instructor.from_openai(api, mode=instructor.Mode[mode])
    got = client.create(response_model=Square, messages=question, **how)
    assert isinstance(got, Square), got
    print(mode, got, flush=True)
parts = list(client.create_partial(response_model=Square, messages=question, **how))
assert parts[-1].color == got.color and parts[-1].size == got.size, parts
# JSON asks for any object and has its schema in the prompt, which a tiny model does not follow: it is led to an end.
end = api.post("/../tokenize", body={"prompt": "}", "add_special_tokens": False}, cast_to=object)["tokens"][-1]
client = instructor.from_openai(api, mode=instructor.Mode.JSON)
print("JSON", client.create(response_model=Anything, messages=question, logit_bias={str(end): 100}, **how), flush=True)
client = instructor.from_openai(api, mode=instructor.Mode.RESPONSES_TOOLS)
got = client.create(response_model=Square, model=name, temperature=0, max_retries=0, messages=[{"role": "user", "content": [
    {"type": "input_text", "text": QUESTION}, {"type": "input_image", "image_url": picture_url}]}])
assert isinstance(got, Square), got
print("RESPONSES_TOOLS", got)
