"""A client whose requests are wrong: every failure is told to it as its own, no request is tried again, and no
worker is blamed. First a template of nine bytes with a syntax error, again and again; then requests of every
kind, mutated, from one seed.

usage: wrong_requests.py ROUTER SET PICTURE

ROUTER is where clients call, SET the contracts as a descriptor set, PICTURE a PNG. Exits with 77 without grpc.
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from contracts import Contracts, connect, failure  # exits with 77 without grpc
import grpc

WAIT_S = 120  # for anything that must come: machines may be busy
N_MUTATED, N_SAME = 400, 30
# Statuses that a wrong request may end with; NOT_FOUND is for a conversation that has ended.
TOLD = {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "NOT_FOUND"}

router, set_path, picture_path = sys.argv[1:4]
with open(picture_path, "rb") as f:
    picture = f.read()
contracts = Contracts(set_path)
m = contracts.messages("fovea.inference.v1")
stub = contracts.stub(connect(router), "fovea.inference.v1.Inference")

draw = random.Random(20)


def check_workers(after):
    for w in stub.GetFleet(m.GetFleetRequest(), timeout=WAIT_S).workers:
        assert w.n_failed == 0 and w.seconds_backoff == 0, f"blamed after {after}: {w}"


def chat(text="what is it?", template="", n_images=0):
    turns = [m.Turn(role="user", text=text, n_images=n_images)]
    return m.Prompt(chat=m.Chat(turns=turns, template=template))


def generate(prompt, **fields):
    fields = {"max_tokens": 2, "ignore_eos": True, **fields}
    return m.GenerateRequest(prompt=prompt, **fields)


def end_of(call):
    """The status, its sentence, and whether a worker has looked at the request: it answered, or has said whose
    fault it is."""
    try:
        reply = call()
        if hasattr(reply, "trailing_metadata"):
            for event in reply:
                if event.WhichOneof("event") == "finished":
                    assert event.finished.report.n_replays == 0, "it was tried again"
        return "OK", "", True
    except grpc.RpcError as e:
        origins = [v for k, v in e.trailing_metadata() or () if k == "fovea-origin"]
        assert origins in ([], ["caller"]), f"{e.code().name} of {origins}: {e.details()}"
        return e.code().name, e.details(), bool(origins)


# ---- mutations -----------------------------------------------------------------------------------------

TEMPLATES = ["{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:",
             "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ m['content'] | trim }}"
             "{% endfor %}{% if add_generation_prompt %}{{ bos_token ~ ns.n }}{% endif %}",
             "{% macro say(x, y='a') %}[{{ x }}{{ y }}]{% endmacro %}{{ say(messages[0].content, y='b') }}"]
PIECES = ["{%", "%}", "{{", "}}", "{#", "raw", "endfor", "|", "~", "'", "(", "[", "]", ")", "**", "//", " in ", " is ",
          "range(99999)", "messages", "loop", "nosuch", ".x", "[9]", "0", "{% raw %}", "{% include 'x' %}", "é", "\n"]
POLICIES = ["prune", "select", "pack", "condense", "evict", "expand"]
METHODS = ["fastv", "pdrop", "random", "snapkv", "svd", "quant", "latent", "minicache", "prumerge", "streaming", "vtw",
           "h2o", "tova", "kivi", "nosuch"]
PARAMS = ["layer", "keep", "ratio", "rank_k", "rank_v", "bits", "stride", "first", "gain", "tau", "budget", "nosuch"]


def broken(text):
    for _ in range(draw.randint(1, 4)):
        at = draw.randint(0, len(text))
        text = text[:at] + (draw.choice(PIECES) if draw.random() < .6 else "") + text[at + draw.randint(0, 5):]
    return text


def flipped(data):
    data = bytearray(data)
    for _ in range(draw.randint(1, 6)):
        data[draw.randint(33, len(data) - 1)] ^= 1 << draw.randint(0, 7)  # behind the header
    return bytes(data[:draw.randint(34, len(data))] if draw.random() < .3 else data)


def number():
    return draw.choice([0, 1, -1, 2, 3.5, 1e9, -1e30, float("nan"), float("inf"), draw.random(), draw.randint(0, 64)])


def policy():
    stages = [m.StagePolicy(stage=draw.choice(POLICIES), method=draw.choice(METHODS),
                            params=[m.Param(name=draw.choice(PARAMS), value=number())
                                    for _ in range(draw.randint(0, 3))])
              for _ in range(draw.randint(1, 2))]
    return m.Policy(stages=stages)


def sampling():
    bias = [m.LogitBias(id=draw.randint(0, 1 << draw.choice([4, 10, 31])), bias=number())
            for _ in range(draw.randint(0, 3))]
    return m.Sampling(temperature=number(), top_p=number(), top_k=draw.randint(0, 1 << 31), min_p=number(),
                      repetition_penalty=number(), presence_penalty=number(), logit_bias=bias)


def rules():
    return m.TokenRules(allowed_token_ids=ids(), stop_token_ids=ids(), min_tokens=draw.choice([0, 1, 2, 3, 1 << 31]),
                        bad_words=[draw.choice(["", "a", " the", "\u00e9" * 40, "x" * 300])
                                   for _ in range(draw.randint(0, 3))])


def with_rules():
    more = {} if draw.random() < .5 else {"prompt_logprobs": draw.choice([0, 1, 20, 21, 1 << 30])}
    if draw.random() < .5:
        more["truncate_prompt_tokens"] = draw.choice([0, 1, 4, 1 << 31])
    return generate(chat(), rules=rules(), special_tokens=True, include_stop=True, prompt_tokens=True,
                    token_texts=True, **more)


def ids():
    return [draw.randint(0, 1 << draw.choice([4, 8, 9, 12, 31])) for _ in range(draw.randint(0, 9))]


conversation = b""


def keep():
    """A conversation that a decode worker holds for a while."""
    global conversation
    for event in stub.Generate(generate(chat(), keep_ms=20000), timeout=WAIT_S):
        if event.WhichOneof("event") == "finished":
            conversation = event.finished.conversation
    assert conversation, "nothing was kept"


def with_template():
    return generate(chat(template=broken(draw.choice(TEMPLATES))))


def with_picture():
    return generate(chat(n_images=1), images=[m.Image(data=flipped(picture))])


def with_video():
    n = draw.randint(1, 3)
    video = m.Video(first_image=draw.randint(0, 2), n_frames=n, fps=number())
    return generate(chat(n_images=n), images=[m.Image(data=picture)] * n, videos=[video])


def with_policy():
    return generate(chat(n_images=1), images=[m.Image(data=picture)], policy=policy())


def with_ids():
    return generate(m.Prompt(ids=m.TokenIds(id=ids())))


def with_sampling():
    return generate(chat(), sampling=sampling(), stop=[draw.choice(["", "a", "\n", "é" * 40])])


def with_turns():
    turns = [m.Turn(role=draw.choice(["user", "assistant", "system", "x"]), text=draw.choice(["", "a", "é"]),
                    n_images=draw.choice([0, 0, 0, 1, 9])) for _ in range(draw.randint(0, 3))]
    return generate(m.Prompt(chat=m.Chat(turns=turns)))


def with_follow_up():
    if draw.random() < .5:
        keep()
    prompt = draw.choice([chat(template=broken(draw.choice(TEMPLATES))), m.Prompt(ids=m.TokenIds(id=ids())), chat(""),
                          chat("a" * draw.choice([1, 99999])), m.Prompt(text="")])
    return generate(prompt, conversation=conversation, sampling=sampling() if draw.random() < .2 else None)


MUTATIONS = [with_template, with_picture, with_video, with_policy, with_ids, with_sampling, with_rules, with_turns,
             with_follow_up]


def mutated(i):
    if i % 10 == 8:
        request = m.TokenizeRequest(prompt=chat(template=broken(draw.choice(TEMPLATES))))
        return request, lambda: stub.Tokenize(request, timeout=WAIT_S)
    if i % 10 == 9:
        request = m.DetokenizeRequest(id=ids())
        return request, lambda: stub.Detokenize(request, timeout=WAIT_S)
    request = MUTATIONS[i % 10]()
    return request, lambda: stub.Generate(request, timeout=WAIT_S)


def run():
    for _ in range(N_SAME):
        e = failure(lambda: list(stub.Generate(generate(chat(template="{% raw %}")), timeout=WAIT_S)))
        assert e.code() == grpc.StatusCode.INVALID_ARGUMENT, e
        assert "{% raw %} has no end" in e.details(), e.details()
    check_workers("{% raw %}")
    keep()
    reached, seen = 0, {}
    for i in range(N_MUTATED):
        request, call = mutated(i)
        status, why, by_worker = end_of(call)
        assert status in TOLD, f"request {i} ends with {status}: {why}\n{str(request)[:2000]}"
        reached += by_worker
        seen[status] = seen.get(status, 0) + 1
        if i % 20 == 0:
            check_workers(f"request {i}")
    check_workers("all")
    assert reached >= .3 * N_MUTATED, f"{reached} of {N_MUTATED} requests have reached a worker: {seen}"
    assert seen.get("INVALID_ARGUMENT", 0) >= .2 * N_MUTATED, seen
    assert list(stub.Generate(generate(chat()), timeout=WAIT_S)), "a good request is answered"
    print(f"{reached} of {N_MUTATED} requests have reached a worker: {seen}")


run()
