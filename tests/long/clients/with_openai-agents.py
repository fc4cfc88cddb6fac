"""OpenAI's Agents SDK, unmodified: an agent that calls a tool, reads what it gives and ends with an answer, an object
about an image, and a stream, over the Responses API (its default) and over chats.

usage: with_openai-agents.py HOST:PORT PICTURE; exits with 77 without openai-agents
"""
import asyncio
from typing import Literal

from client import QUESTION, base_url, check, name, picture_url, skip_without

try:
    import openai
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
    from pydantic import BaseModel
except ImportError as e:
    skip_without(e, "openai-agents")

set_tracing_disabled(True)
client = openai.AsyncOpenAI(base_url=base_url, api_key="unused", max_retries=0)
question = [{"role": "user", "content": [{"type": "input_text", "text": QUESTION}, {"type": "input_image", "image_url": picture_url, "detail": "auto"}]}]
looked = []


class Square(BaseModel):
    color: Literal["red", "green", "blue", "white"]
    size: Literal["small", "large"]


@function_tool
def look(where: Literal["left", "right"]) -> str:
    """Looks at a side of the picture."""
    looked.append(where)
    return "white"


async def run(kind):
    model = kind(model=name, openai_client=client)
    plain = Agent(name="plain", model=model, model_settings=ModelSettings(temperature=0))
    said = await Runner.run(plain, question)
    check(said.final_output, kind.__name__)
    streamed = Runner.run_streamed(plain, question)
    kinds = [e.type async for e in streamed.stream_events()]
    assert streamed.final_output == said.final_output and "raw_response_event" in kinds, kinds

    shaped = Agent(name="shaped", model=model, model_settings=ModelSettings(temperature=0), output_type=Square)
    square = (await Runner.run(shaped, question)).final_output
    assert isinstance(square, Square), square

    looked.clear()
    caller = Agent(name="caller", model=model, tools=[look], model_settings=ModelSettings(temperature=0, tool_choice="required", max_tokens=200))
    said = await Runner.run(caller, question)  # it asks for a call once, and then for an answer
    items = [i.type for i in said.new_items]
    assert looked and set(looked) <= {"left", "right"}, said
    assert items == ["tool_call_item", "tool_call_output_item", "message_output_item"], items
    print(kind.__name__, square, looked, repr(said.final_output), flush=True)


async def run_all():
    for kind in OpenAIResponsesModel, OpenAIChatCompletionsModel:
        await run(kind)


asyncio.run(run_all())
