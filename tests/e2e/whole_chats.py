"""Chats that are sent whole each time, against a fleet: every turn finds what has run before, on the decode worker, and has
the digests of the same chat without a cache, and of a kept conversation.

usage: whole_chats.py HOST:PORT DESCRIPTOR_SET PICTURE TURNS
       exits 77 without grpc
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from contracts import Contracts, connect  # exits with 77 without grpc

target, set_path, picture_path, turns = sys.argv[1:]
with open(picture_path, "rb") as f:
    picture = f.read()
inference = Contracts(set_path).messages("fovea.inference.v1")
router = Contracts(set_path).stub(connect(target), "fovea.inference.v1.Inference")
image_token = router.GetModel(inference.GetModelRequest(), timeout=120).image_token


def ask(ids, image, n, **more):
    """The Finished, the ids and the digests of an answer of n tokens."""
    request = inference.GenerateRequest(prompt=inference.Prompt(ids=inference.TokenIds(id=ids)), max_tokens=n,
                                        ignore_eos=True, digests=True, **more)
    if image:
        request.images.add(data=picture)
    events = list(router.Generate(request, timeout=300))
    tokens = [t for e in events for t in e.tokens.tokens]
    assert len(tokens) == n, (len(tokens), n)
    return events[-1].finished, [t.id for t in tokens], [t.digest for t in tokens]


def chat(number, image, sampled):
    draw = random.Random(number)
    drawn = lambda n: [draw.choice([i for i in range(3, 90) if i != image_token]) for _ in range(n)]
    never = [inference.LogitBias(id=image_token, bias=-100)]
    how = {"sampling": inference.Sampling(temperature=0.9 * sampled, seed=number, logit_bias=never)}
    ids = drawn(70) + ([image_token] if image else [])
    conversation, ran = b"", 0
    for turn in range(int(turns)):
        question, n = drawn(draw.randrange(1, 40)), draw.randrange(2, 60)
        ids += question
        finished, answer, digests = ask(ids, image, n, **how)
        report = finished.report
        if turn > 0:
            assert report.n_prompt_cached == ran, (number, turn, report.n_prompt_cached, ran)
            assert report.cache_tier == "decode" and report.transfer.bytes_sent < 10000, report
            assert report.n_images_cached == report.n_images == image and report.seconds_prefill > 0, report
        assert report.bytes_text > 0 and report.n_generated == n and report.seconds_first_token > 0, report
        _, other, expected = ask(ids, image, n, cache_off=True, **how)
        assert (answer, digests) == (other, expected), (number, turn)
        kept = {"conversation": conversation} if turn else {}
        followed, other, expected = ask(question if turn else ids, image and not turn, n, cache_off=True, keep_ms=300000,
                                        **kept, **how)
        assert (answer, digests) == (other, expected), (number, turn, "in a kept conversation")
        conversation = followed.conversation
        ids += answer
        ran = report.n_prompt + n - 1
    return ids


for number in range(2):
    for image in 0, 1:
        chat(10 * number + image, image, number == 1)

# A long question is for the prefill worker; what it lacks is sent.
long = chat(50, 1, False) + [i for i in range(5, 90) if i != image_token] * 4
finished, answer, digests = ask(long, 1, 5)
assert finished.report.cache_tier == "prefill", finished.report
assert finished.report.transfer.tokens_kept > finished.report.n_visual, finished.report
_, other, expected = ask(long, 1, 5, cache_off=True)
assert (answer, digests) == (other, expected)
