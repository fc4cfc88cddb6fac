"""LangChain's ChatOpenAI, unmodified: an image in both of its forms, a stream, the next turn.

usage: with_langchain.py HOST:PORT PICTURE; exits with 77 without langchain-openai
"""
from client import QUESTION, base_url, check, name, picture, picture_url, skip_without

try:
    from langchain_core.messages import HumanMessage
    from langchain_openai import ChatOpenAI
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
