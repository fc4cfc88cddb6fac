"""The package fovea (clients/python) against a fleet that runs.

usage: python_package.py HOST:PORT PICTURE; fovea and its generated messages are on PYTHONPATH; 77 without grpc
"""
import asyncio
import json
import sys
import types

try:
    import grpc
except ImportError as e:
    print(f"skip: {sys.executable}: {e} (package python3-grpcio)")
    sys.exit(77)

import fovea
import fovea.report
from fovea.inference.v1 import inference_pb2 as pb

target, picture = sys.argv[1:]
how = dict(images=[picture], max_tokens=8, ignore_eos=True)


def refused(call, *words):
    try:
        call()
    except ValueError as e:
        assert all(w in str(e) for w in words), e
        return
    raise AssertionError("it must be refused")


def dataclasses_have_the_fields_of_the_messages():
    for name, cls in [("Report", fovea.Report), *fovea.report._NESTED.items()]:
        assert {f.name for f in pb.DESCRIPTOR.message_types_by_name[name].fields} == set(cls.__dataclass_fields__), name


def policies_are_text_and_objects():
    for text in "exact", "preset=quality", "prune=vtw,layer=16/32;select=none", "preset=quality;evict=tova,keep=0.5":
        assert str(fovea.Policy.parse(text)) == text.replace("exact", "preset=exact")
    methods = client.methods()
    policy = methods.presets["quality"] | methods("prune", "vtw", layer=6)
    assert str(policy) == "preset=quality;prune=vtw,layer=6"
    assert "pack=svd" in client.ask("what?", policy=policy, **how).report.policy
    refused(lambda: methods("prune", "magic"), "magic", "vtw")
    refused(lambda: methods("evict", "tova", keep=7), "keep", "0..1")
    refused(lambda: methods("evict", "tova", keeps=1), "keeps", "keep")
    assert methods.conflicts[0][2]


def an_answer_streams_and_has_a_report():
    stream = client.generate("what is it?", policy="prune=vtw,layer=6", kept_tokens=True, n_logprobs=2, **how)
    text = "".join(stream)
    answer = stream.answer
    assert text == answer.text and answer.finish == "length" and len(answer.tokens) == 8
    assert len(answer.tokens[0].alternatives) == 2 and answer.tokens[0].logprob <= 0
    r = answer.report
    assert r.n_images == 1 and r.visual_tokens[5] == 144 and r.visual_tokens[6] == 0 and r.transfer.bytes_sent > 0
    assert len(r.kept[0].heads) == r.n_visual and r.stages[0].method == "vtw"
    return r


def reports_become_tables():
    try:
        import pandas
    except ImportError:  # what it is given is checked all the same
        pandas = sys.modules["pandas"] = types.ModuleType("pandas")
        pandas.DataFrame = lambda rows: types.SimpleNamespace(to_dict=lambda _: rows)
    rows = fovea.to_pandas([an_answer_streams_and_has_a_report(), fovea.Report()]).to_dict("records")
    assert rows[0]["n_visual"] == 144 and rows[0]["transfer_bytes_sent"] > 0 and rows[1]["n_visual"] == 0
    layers = client.ask("what?", policy="quality", **how).report.layers().to_dict("records")
    assert len(layers) == 12 and layers[3]["layer"] == 3 and layers[3]["rank_k"] > 0


def a_chat_goes_on():
    turns = [fovea.Turn("user", "what is it?", [picture]), fovea.Turn("assistant", "a square"), fovea.Turn("user", "and its color?")]
    first = client.ask(turns, max_tokens=4, ignore_eos=True, keep_ms=20000)
    assert first.conversation
    second = client.ask("and now?", conversation=first.conversation, max_tokens=4)
    assert second.report.n_prompt < first.report.n_prompt
    refused(lambda: client.ask(turns, images=[picture]), "Turn")


def a_video_goes_as_its_frames():
    video = fovea.Video([picture, picture], fps=2)
    answer = client.ask("what happens?", videos=[video], max_tokens=4, ignore_eos=True)
    plain = client.ask("what happens?", images=[picture, picture], max_tokens=4, ignore_eos=True)
    assert answer.report.n_images == 2 and answer.report.n_prompt > plain.report.n_prompt, "the frames have times"
    turn = fovea.Turn("user", "and now?", [picture], [fovea.Video([picture], seconds=[3.5]), fovea.Video([picture] * 2, native=True)])
    message = fovea.request.build([fovea.Turn("user", "x", [picture]), turn])
    assert [p.WhichOneof("kind") for p in message.prompt.chat.turns[1].parts] == ["image", "video", "image", "text"]
    assert message.prompt.chat.turns[1].parts[0].image.ahead == "<3.5 seconds>"
    assert (message.videos[0].first_image, message.videos[0].n_frames, list(message.videos[0].seconds)) == (2, 2, [0, 1]) and len(message.images) == 5
    refused(lambda: client.ask("what?", videos=[fovea.Video([picture], seconds=[1, 2])]), "1 frames and 2 times")
    refused(lambda: client.ask([turn], videos=[video]), "Turn")


def answers_have_their_form():
    ask = lambda **more: client.ask("what is it?", images=[picture], max_tokens=200, **more).text
    schema = {"type": "object", "properties": {"color": {"enum": ["red", "blue"]}}, "required": ["color"], "additionalProperties": False}
    for form in schema, json.dumps(schema):
        assert json.loads(ask(json_schema=form))["color"] in ("red", "blue")
    assert ask(json_schema={"const": 7}) == "7"
    assert ask(regex="[ab]{3}x").strip("ab") == "x"
    assert ask(choice=["a square", "a circle"]) in ("a square", "a circle")
    assert ask(grammar='start: "<" /[0-9]{2}/ ">"')[3] == ">"
    assert fovea.request.build("x", json_object=True).rules.constraint.json_object
    tag = {"triggers": ["<a>"], "structures": [{"begin": "<a>", "schema": {"type": "object"}, "end": "</a>"}]}
    assert json.loads(fovea.request.build("x", structural_tag=tag).rules.constraint.structural_tag) == tag
    assert not fovea.request.build("x").rules.HasField("constraint")
    refused(lambda: ask(regex="a", choice=["b"]), "regex and choice")
    refused(lambda: ask(choice="yes"), "list")
    try:
        ask(regex="(a")
        raise AssertionError("it must be refused")
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.INVALID_ARGUMENT and "not closed" in e.details(), e


def tools_and_variables_reach_the_template():
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    message = fovea.request.build("x", tools=[tool], variables={"enable_thinking": False})
    assert json.loads(message.prompt.chat.variables) == {"tools": [tool], "enable_thinking": False}
    assert fovea.request.build("x").prompt.chat.variables == ""
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": {}}}
    turns = [fovea.Turn("user", "x"), fovea.Turn("assistant", None, members={"tool_calls": [call]}),
             fovea.Turn("tool", "a cat", members={"tool_call_id": "1"})]
    called, told = fovea.request.build(turns).prompt.chat.turns[1:]
    assert called.no_content and json.loads(called.members) == {"tool_calls": [call]} and json.loads(told.members)["tool_call_id"] == "1"
    plain = client.ask("what is it?", max_tokens=4, ignore_eos=True)
    assert client.ask("what is it?", max_tokens=4, ignore_eos=True, variables={"unused": 1}).text == plain.text
    refused(lambda: fovea.request.build([fovea.Turn("assistant", None, [picture])]), "needs a text")


def questions_with_one_reply():
    ids = client.tokenize("How many frogs?", bare=True)
    assert client.detokenize(ids).strip() == "How many frogs?"
    assert client.model().name == client.models()[0].name and len(client.fleet().workers) == 2
    stream = client.generate("what?", images=[picture], max_tokens=1500, ignore_eos=True)
    next(iter(stream))
    client.abort(stream.answer)
    try:
        for _ in stream:
            pass
        raise AssertionError("it was aborted")
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.ABORTED, e


def the_same_with_asyncio():
    async def run():
        async with fovea.AsyncClient(target) as many:
            stream = many.generate("what is it?", **how)
            text = "".join([piece async for piece in stream])
            others = await asyncio.gather(*(many.ask("what is it?", **how) for _ in range(4)))
            assert text == stream.answer.text == others[3].text and stream.answer.report.n_visual == 144
            assert str((await many.methods()).presets["quality"]) == "preset=quality"
            assert await many.detokenize(await many.tokenize("frogs", bare=True)) and (await many.models()) and (await many.fleet()).workers

    asyncio.run(run())


with fovea.Client(target, timeout=120) as client:
    for check in [dataclasses_have_the_fields_of_the_messages, policies_are_text_and_objects, reports_become_tables, a_chat_goes_on, a_video_goes_as_its_frames, answers_have_their_form,
                  tools_and_variables_reach_the_template,
                  questions_with_one_reply, the_same_with_asyncio]:
        print(check.__name__, flush=True)
        check()
print("ok")
