"""LangChain's ChatOpenAI, unmodified: an image in both of its forms, a stream, the next turn, objects about an image
by a schema and by tools, and the Responses API.

usage: with_langchain.py HOST:PORT PICTURE; exits with 77 without langchain-openai
"""
from typing import Literal

from client import QUESTION, base_url, check, name, picture, picture_url, skip_without

try:
    from langchain_core.messages import HumanMessage
    from langchain_openai import ChatOpenAI
    from pydantic import BaseModel
except ImportError as e:
    skip_without(e, "langchain")

chat = ChatOpenAI(base_url=base_url, api_key="unused", model=name, temperature=0)
first = HumanMessage([{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {"url": picture_url}}])
answer = chat.invoke([first])
check(answer.content, "invoke")
assert answer.usage_metadata["input_tokens"] > 144 and answer.response_metadata["finish_reason"] == "stop", answer
block = HumanMessage([{"type": "image", "base64": picture, "mime_type": "image/png"}, {"type": "text", "text": QUESTION}])
check("".join(piece.content for piece in chat.stream([block])), "stream")
following = chat.invoke([first, answer, HumanMessage("What is the number?")])
assert following.content and following.usage_metadata["input_tokens"] > answer.usage_metadata["input_tokens"], following
check(chat.batch([[first], [block]])[1].content, "batch")


class Square(BaseModel):
    """The square of the picture."""

    color: Literal["red", "green", "blue", "white"]
    size: Literal["small", "large"]


for method in "json_schema", "function_calling":
    square = chat.with_structured_output(Square, method=method).invoke([first])
    assert isinstance(square, Square), (method, square)
    print(method, square, flush=True)
strict = chat.with_structured_output(Square, method="function_calling", strict=True, include_raw=True).invoke([first])
assert strict["parsed"] and strict["raw"].tool_calls[0]["name"] == "Square", strict
called = chat.bind_tools([Square], tool_choice="any").invoke([first])
assert called.tool_calls[0]["args"]["size"] in ("small", "large"), called
responses = ChatOpenAI(base_url=base_url, api_key="unused", model=name, temperature=0, use_responses_api=True)
check(responses.invoke([first]).text, "responses")
assert isinstance(responses.with_structured_output(Square, method="json_schema").invoke([first]), Square)
