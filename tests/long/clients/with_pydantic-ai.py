"""pydantic-ai, unmodified: an agent that calls a tool and answers, and objects about an image by tools, natively and prompted,
over chats and the Responses API.

usage: with_pydantic-ai.py HOST:PORT PICTURE; exits with 77 without pydantic-ai
"""
from typing import Literal

from client import QUESTION, base_url, check, name, picture_path, skip_without

try:
    from pydantic import BaseModel
    from pydantic_ai import Agent, BinaryContent, ModelSettings, NativeOutput, ToolOutput
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
except ImportError as e:
    skip_without(e, "pydantic-ai")


class Square(BaseModel):
    color: Literal["red", "green", "blue", "white"]
    size: Literal["small", "large"]


with open(picture_path, "rb") as f:
    question = [QUESTION, BinaryContent(f.read(), media_type="image/png")]
settings = ModelSettings(temperature=0)
for kind in OpenAIChatModel, OpenAIResponsesModel:
    model = kind(name, provider=OpenAIProvider(base_url=base_url, api_key="unused"))
    check(Agent(model, model_settings=settings).run_sync(question).output, kind.__name__)
    for output in ToolOutput, NativeOutput:
        said = Agent(model, output_type=output(Square), model_settings=settings, retries=0).run_sync(question)
        assert isinstance(said.output, Square) and said.usage.input_tokens > 144, said
        print(kind.__name__, output.__name__, said.output, flush=True)

    looked = []
    agent = Agent(model, output_type=ToolOutput(Square), model_settings=settings, retries=0)

    @agent.tool_plain
    def look(where: Literal["left", "right"]) -> str:
        """Looks at a side of the picture."""
        looked.append(where)
        return "white"

    said = agent.run_sync(question).output
    assert looked and set(looked) <= {"left", "right"} and isinstance(said, Square), (looked, said)
    print(kind.__name__, "after", len(looked), "calls:", said, flush=True)
