"""smolagents, unmodified: agents that call a tool about an image and answer, by calls and by code in JSON, whole and streamed.

usage: with_smolagents.py HOST:PORT PICTURE; exits with 77 without smolagents

Its prompts have thousands of tokens, so the checkpoint has random weights and room for them: the test checks that each step has
the form of a tool's schema, and that the loop ends.
"""
import json
from typing import Literal

from client import QUESTION, base_url, name, picture_path, skip_without

try:
    import openai
    import PIL.Image
    from smolagents import ActionStep, CodeAgent, OpenAIModel, ToolCallingAgent, tool
    from smolagents.utils import AgentMaxStepsError
except ImportError as e:
    skip_without(e, "smolagents")

looked = []


@tool
def look(side: Literal["left", "right"]) -> str:
    """Looks at a side of the picture.

    Args:
        side: The side.
    """
    looked.append(side)
    return "white"


@tool
def final_answer(color: Literal["red", "green", "blue", "white"]) -> str:
    """Ends the task.

    Args:
        color: The color of the square.
    """
    return color


def run(agent):
    """Returns the answer and the steps that led to it, none of which failed, and whether the model had to be told to answer."""
    said = agent.run(QUESTION, images=[picture])
    steps = [step for step in agent.memory.steps if isinstance(step, ActionStep)]
    told = isinstance(steps[-1].error, AgentMaxStepsError)
    steps = steps[:-1] if told else steps
    assert steps and all(step.error is None and step.token_usage.input_tokens > 1000 for step in steps), [step.error for step in steps]
    return said, steps, told


picture = PIL.Image.open(picture_path)
how = {"model_id": name, "api_base": base_url, "api_key": "unused", "temperature": 0}
model = OpenAIModel(max_tokens=200, **how)
for stream in False, True:
    options = {"model": model, "stream_outputs": stream, "verbosity_level": 0}
    said, steps, told = run(ToolCallingAgent(tools=[final_answer], max_steps=1, **options))
    assert said in ("red", "green", "blue", "white") and not told, said
    print("calls, streamed:" if stream else "calls:", said, flush=True)

    looked.clear()
    said, steps, told = run(ToolCallingAgent(tools=[look, final_answer], max_steps=4, **options))
    calls = [call for step in steps for call in step.tool_calls]
    assert [call.arguments["side"] for call in calls if call.name == "look"] == looked, calls
    assert told or calls[-1].name == "final_answer" and said == calls[-1].arguments["color"], (said, calls)
    print(len(looked), "looks, then", "no answer" if told else said, flush=True)

# The agent's own schema has two strings of any length, which random weights do not end: they are led to the end.
quote = openai.OpenAI(base_url=base_url, api_key="unused").post("/../tokenize", cast_to=object, body={
    "prompt": '"', "add_special_tokens": False})["tokens"][-1]
model = OpenAIModel(max_tokens=200, logit_bias={str(quote): 100}, **how)
agent = CodeAgent(tools=[], model=model, max_steps=1, use_structured_outputs_internally=True, verbosity_level=0)
said, steps, told = run(agent)
assert set(json.loads(steps[0].model_output)) == {"thought", "code"} and told, steps[0].model_output
print("code:", steps[0].model_output)
