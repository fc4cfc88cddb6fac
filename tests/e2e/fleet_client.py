"""A client in another language, against a fleet that runs: answers, what breaks them off, errors,
health, reflection.

usage: fleet_client.py HOST:PORT DESCRIPTOR_SET PICTURE FLEET PREFILL DECODE
       FLEET is where workers join the router, PREFILL and DECODE where they serve; exits 77 when Python
       lacks grpc or protobuf
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from contracts import Contracts, connect, failure  # exits with 77 without grpc
import grpc

WAIT_S = 120  # for anything that must come: machines may be busy

target, set_path, picture_path, fleet_address, prefill_address, decode_address = sys.argv[1:]
with open(picture_path, "rb") as f:
    picture = f.read()
contracts = Contracts(set_path)
inference = contracts.messages("fovea.inference.v1")
channel = connect(target)
router = contracts.stub(channel, "fovea.inference.v1.Inference")


def question(max_tokens, **more):
    turn = inference.Turn(role="user", text="what is it?", n_images=1)
    return inference.GenerateRequest(
        prompt=inference.Prompt(chat=inference.Chat(turns=[turn])), images=[inference.Image(data=picture)],
        max_tokens=max_tokens, ignore_eos=True, **more)


def fleet():
    return router.GetFleet(inference.GetFleetRequest(), timeout=WAIT_S)


def wait_until(what, holds):
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"not within {WAIT_S} s: {what}"
        time.sleep(0.05)


def idle():
    state = fleet()
    held = sum(w.load.bytes_granted + w.load.bytes_held for w in state.workers)
    return state.n_running + state.n_queued + held == 0


def begun(call):
    """Reads a stream until the first token has come; the request's id."""
    accepted = next(call).accepted
    assert accepted.request_id and len(accepted.abort_token) > 32
    while next(call).WhichOneof("event") != "tokens":
        pass
    return accepted


def an_answer_streams_in_order():
    events = list(router.Generate(question(24, digests=True), timeout=WAIT_S))
    kinds = [e.WhichOneof("event") for e in events]
    assert kinds[0] == "accepted" and kinds[-1] == "finished", kinds
    assert set(kinds[1:-1]) == {"tokens"}, kinds
    expected = 0
    for e in events[1:-1]:
        assert e.tokens.index == expected, (e.tokens.index, expected)
        expected += len(e.tokens.tokens)
    assert expected == 24, expected
    assert len(events) > 4, "tokens come one by one, not all at the end"
    accepted, finished = events[0].accepted, events[-1].finished
    report = finished.report
    assert finished.reason == 1, finished.reason  # LENGTH
    assert report.n_generated == 24 and report.n_images == 1
    assert report.n_visual > 0 and report.n_prompt == report.n_visual + report.n_text
    assert report.prefill_worker == accepted.prefill_worker and report.decode_worker == accepted.decode_worker
    assert 0 < report.bytes_raw <= report.bytes_bound <= accepted.bytes_bound
    assert report.transfer.transport == "grpc" and report.transfer.bytes_sent > 0
    assert report.seconds_first_token > 0


def the_same_request_gives_the_same_tokens():
    ask = lambda: [t.id for e in router.Generate(question(12), timeout=WAIT_S) for t in e.tokens.tokens]
    first = ask()
    assert len(first) == 12 and ask() == first


def of_parts(*parts, **more):
    """A question whose turn has these parts: texts, or None for an image."""
    turn = inference.Turn(role="user", **more)
    for p in parts:
        turn.parts.add(**({"image": inference.NextImage()} if p is None else {"text": p}))
    return inference.GenerateRequest(
        prompt=inference.Prompt(chat=inference.Chat(turns=[turn])), max_tokens=12, ignore_eos=True,
        images=[inference.Image(data=picture)] * parts.count(None))


def a_turn_has_text_and_images_in_any_order():
    answer = lambda request: list(router.Generate(request, timeout=WAIT_S))
    ids = lambda events: [t.id for e in events for t in e.tokens.tokens]
    assert ids(answer(of_parts(None, "what is it?"))) == ids(answer(question(12)))
    mixed = answer(of_parts("Here is one:", None, "and here another:", None, "what differs?"))
    assert mixed[-1].finished.report.n_images == 2, mixed[-1]
    assert len(ids(mixed)) == 12
    refused(of_parts("what is it?", text="twice"), grpc.StatusCode.INVALID_ARGUMENT, "use one form")
    empty = of_parts("what is it?")
    empty.prompt.chat.turns[0].parts.add()
    refused(empty, grpc.StatusCode.INVALID_ARGUMENT, "neither text, image nor video")
    misplaced = of_parts(None, "what is it?")
    del misplaced.images[:]
    refused(misplaced, grpc.StatusCode.INVALID_ARGUMENT, "the prompt places 1 image")


def a_cancelled_answer_leaves_the_fleet_idle():
    call = router.Generate(question(3000), timeout=WAIT_S)
    begun(call)
    assert fleet().n_running == 1
    call.cancel()
    assert failure(lambda: list(call)).code() == grpc.StatusCode.CANCELLED
    wait_until("idle after a cancelled call", idle)


def a_deadline_ends_an_answer():
    e = failure(lambda: list(router.Generate(question(3000), timeout=0.5)))
    assert e.code() == grpc.StatusCode.DEADLINE_EXCEEDED, e
    wait_until("idle after a deadline", idle)


def abort_ends_a_request_by_its_id():
    call = router.Generate(question(3000, request_id="python-17"), timeout=WAIT_S)
    accepted = begun(call)
    assert accepted.request_id == "python-17"
    e = failure(lambda: list(router.Generate(question(2, request_id="python-17"), timeout=WAIT_S)))
    assert e.code() == grpc.StatusCode.INVALID_ARGUMENT, e  # the name is taken
    for token, code in ("", grpc.StatusCode.INVALID_ARGUMENT), ("0" * 41, grpc.StatusCode.NOT_FOUND):
        guess = inference.AbortRequest(request_id="python-17", abort_token=token)
        assert failure(lambda: router.Abort(guess, timeout=WAIT_S)).code() == code
    right = inference.AbortRequest(request_id="python-17", abort_token=accepted.abort_token)
    router.Abort(right, timeout=WAIT_S)
    assert failure(lambda: list(call)).code() == grpc.StatusCode.ABORTED
    wait_until("idle after Abort", idle)
    e = failure(lambda: router.Abort(right, timeout=WAIT_S))
    assert e.code() == grpc.StatusCode.NOT_FOUND, e


def refused(request, code, words):
    e = failure(lambda: list(router.Generate(request, timeout=WAIT_S)))
    assert e.code() == code and words in e.details() and len(e.details()) > 20, e


def bad_requests_end_with_a_code_and_a_sentence():
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    refused(question(4, model="another"), grpc.StatusCode.NOT_FOUND, "another")
    refused(inference.GenerateRequest(), invalid, "prompt")
    two = question(4)
    two.images.add(data=picture)
    refused(two, invalid, "2")
    cut = question(4)
    cut.images[0].data = picture[:100]
    refused(cut, invalid, "image")
    wrong = question(4)
    wrong.policy.stages.add(stage="prune", method="magic")
    refused(wrong, invalid, "magic")
    refused(question(4, sampling=inference.Sampling(temperature=-1)), invalid, "temperature")
    raw = channel.unary_stream("/fovea.inference.v1.Inference/Generate")
    assert failure(lambda: list(raw(b"\xff\xff", timeout=WAIT_S))).code() == invalid


def the_model_says_what_may_be_asked():
    m = router.GetModel(inference.GetModelRequest(), timeout=WAIT_S)
    assert m.name and m.n_layer > 0 and m.n_image_tokens > 0 and m.limits.max_positions > 0
    assert {(x.stage, x.name) for x in m.methods} >= {("prune", "vtw"), ("select", "streaming")}
    first = router.Generate(question(2, model=m.fingerprint), timeout=WAIT_S)
    assert [e.WhichOneof("event") for e in first][-1] == "finished"


def tokens_of(request):
    return [t for e in router.Generate(request, timeout=WAIT_S) for t in e.tokens.tokens]


def tokens_have_their_bytes():
    alternatives = dict(n_logprobs=3, token_texts=True)
    events = list(router.Generate(question(16, **alternatives), timeout=WAIT_S))
    tokens = [t for e in events for t in e.tokens.tokens]
    said = "".join(e.tokens.text for e in events)
    shown = b"".join(t.text for t in tokens if len(t.text) < 3 or t.text[:1] != b"<")  # without special tokens
    whole = said.split("\ufffd")[0].strip()  # a bad byte changes those beside it
    assert whole and shown.decode(errors="replace").strip().startswith(whole), (shown, said)
    likeliest = tokens[0].alternatives[0]
    assert len(tokens[0].alternatives) == 3 and (likeliest.id, likeliest.text) == (tokens[0].id, tokens[0].text)
    assert not tokens_of(question(2, n_logprobs=1))[0].text


def biases_and_penalties_hold_on_both_workers():
    free = [t.id for t in tokens_of(question(6))]
    bias = [inference.LogitBias(id=70, bias=100)]
    forced = inference.Sampling(logit_bias=bias)
    assert [t.id for t in tokens_of(question(6, sampling=forced))] == [70] * 6
    never = [inference.LogitBias(id=i, bias=-100) for i in sorted(set(free))]
    other = tokens_of(question(6, sampling=inference.Sampling(logit_bias=never)))
    assert not {t.id for t in other} & set(free), (free, other)
    # +100 wins against one occurrence's 2, and 50 occurrences are 100
    counted = inference.Sampling(logit_bias=bias, frequency_penalty=2)
    ids = [t.id for t in tokens_of(question(70, sampling=counted))]
    assert ids[:6] == [70] * 6 and ids.count(70) < 70, ids
    refused(question(2, sampling=inference.Sampling(min_p=2)), grpc.StatusCode.INVALID_ARGUMENT, "min_p")


def a_text_becomes_ids_and_ids_a_text():
    def tokenize(prompt, **more):
        return router.Tokenize(inference.TokenizeRequest(prompt=prompt, **more), timeout=WAIT_S)

    said = "How many frogs?"
    bare = tokenize(inference.Prompt(text=said), bare=True, texts=True)
    assert len(bare.id) > 1 and b"".join(bare.text).decode().strip() == said, bare
    assert router.Detokenize(inference.DetokenizeRequest(id=bare.id), timeout=WAIT_S).text.strip() == said
    assert len(tokenize(inference.Prompt(text=said)).id) >= len(bare.id)
    asked = question(1)
    model = router.GetModel(inference.GetModelRequest(), timeout=WAIT_S)
    chat = tokenize(asked.prompt)
    assert list(chat.id).count(model.image_token) == 1 and not chat.text
    # with its size, an image is as many tokens as in a prompt, which are one token for each of them otherwise
    sizes = lambda *list_of: [inference.ImageSize(w=w, h=h) for w, h in list_of]
    whole = tokenize(asked.prompt, image_sizes=sizes((640, 480)))
    n_image = list(whole.id).count(model.image_token)
    assert n_image == model.n_image_tokens and len(whole.id) == len(chat.id) - 1 + n_image, (n_image, len(whole.id))
    for wrong, words in ((sizes((0, 5)), "0 pixels"), (sizes((1 << 31, 5)), "sides"), (sizes(*[(9, 9)] * 257), "257"),
                         (sizes((9, 9), (9, 9)), "must be equal")):
        e = failure(lambda: tokenize(asked.prompt, image_sizes=wrong))  # pylint: disable=cell-var-from-loop
        assert e.code() == grpc.StatusCode.INVALID_ARGUMENT and words in e.details(), e
    # the same ids, as a prompt, have the same answer
    same = inference.GenerateRequest(prompt=inference.Prompt(ids=inference.TokenIds(id=chat.id)), images=asked.images,
                                     max_tokens=8, ignore_eos=True)
    assert [t.id for t in tokens_of(same)] == [t.id for t in tokens_of(question(8))]
    e = failure(lambda: tokenize(inference.Prompt(ids=inference.TokenIds(id=[1]))))
    assert e.code() == grpc.StatusCode.INVALID_ARGUMENT and "ids already" in e.details(), e
    e = failure(lambda: tokenize(inference.Prompt(text="x"), model="another"))
    assert e.code() == grpc.StatusCode.NOT_FOUND, e
    e = failure(lambda: router.Detokenize(inference.DetokenizeRequest(id=[1 << 30]), timeout=WAIT_S))
    assert e.code() == grpc.StatusCode.INVALID_ARGUMENT, e


def services(connection):
    Question = contracts.message("grpc.reflection.v1alpha.ServerReflectionRequest")
    info = contracts.stub(connection, "grpc.reflection.v1alpha.ServerReflection").ServerReflectionInfo
    (reply,) = info(iter([Question(list_services="*")]), timeout=WAIT_S)
    return {s.name for s in reply.list_services_response.service}


def every_program_is_healthy_and_lists_its_services():
    Ask = contracts.message("grpc.health.v1.HealthCheckRequest")
    common = {"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
    programs = [(target, {"fovea.inference.v1.Inference"}),
                (fleet_address, {"fovea.fleet.v1.Fleet"}),
                (prefill_address, {"fovea.handoff.v1.Prefill"}),
                (decode_address, {"fovea.handoff.v1.Handoff", "fovea.handoff.v1.Decode"})]
    for address, own in programs:
        with connect(address) as connection:
            health = contracts.stub(connection, "grpc.health.v1.Health")
            for name in ["", *own]:
                assert health.Check(Ask(service=name), timeout=WAIT_S).status == 1, (address, name)
            e = failure(lambda: health.Check(Ask(service="no.Such"), timeout=WAIT_S))
            assert e.code() == grpc.StatusCode.NOT_FOUND, e
            if address == target:
                assert services(connection) == own | common, (address, services(connection))
            else:  # for members of the fleet, who know what is there
                assert failure(lambda: services(connection)).code() == grpc.StatusCode.UNIMPLEMENTED


def the_fleets_state_tells_nothing_of_who_or_where():
    state = fleet()
    assert sorted(w.role for w in state.workers) == [1, 2] and all(w.state == 1 for w in state.workers)
    names = [b"prefill-0", b"decode-0", prefill_address.encode(), decode_address.encode()]
    raw = channel.unary_unary("/fovea.inference.v1.Inference/GetFleet")(b"", timeout=WAIT_S)
    assert not any(n in raw for n in names), raw


def clients_cannot_join_the_fleet():
    join = channel.stream_stream("/fovea.fleet.v1.Fleet/Join")
    e = failure(lambda: list(join(iter([b""]), timeout=WAIT_S)))
    assert e.code() == grpc.StatusCode.UNIMPLEMENTED, e


def a_stranger_at_the_fleets_door_learns_nothing():
    Report, Command = contracts.message("fovea.fleet.v1.WorkerReport"), contracts.message("fovea.fleet.v1.Command")
    with connect(fleet_address) as door:
        join = door.stream_stream("/fovea.fleet.v1.Fleet/Join", Report.SerializeToString, Command.FromString)

        def tries(*reports):
            heard = []
            e = failure(lambda: heard.extend(join(iter(reports), timeout=WAIT_S)))
            assert e.code() == grpc.StatusCode.UNAUTHENTICATED, e
            return heard, e.details()

        hello = Report()
        hello.hello.nonce = bytes(32)
        introduction = Report()
        i = introduction.introduction
        i.name, i.role, i.address, i.incarnation, i.proof = "decode-0", 2, "127.0.0.1:9", bytes(16), bytes(32)
        heard, said = tries(hello, introduction)
        assert [c.WhichOneof("command") for c in heard] == ["challenge"], heard
        i.name = "nobody-has-this"
        assert tries(hello, introduction)[1] == said
        assert tries(introduction) == ([], said)
        assert tries(Report()) == ([], said)


def strangers_cannot_call_workers():
    Handoff = contracts.messages("fovea.handoff.v1")
    unauthenticated = grpc.StatusCode.UNAUTHENTICATED
    with connect(prefill_address) as p, connect(decode_address) as d:
        prefill = contracts.stub(p, "fovea.handoff.v1.Prefill")
        handoff, decode = contracts.stub(d, "fovea.handoff.v1.Handoff"), contracts.stub(d, "fovea.handoff.v1.Decode")
        asked = Handoff.PrefillRequest(request=question(4, request_id="x"), decode_address=decode_address)
        calls = [lambda m: list(prefill.Prefill(asked, timeout=WAIT_S, metadata=m)),
                 lambda m: handoff.Open(Handoff.OpenRequest(request_id="x"), timeout=WAIT_S, metadata=m),
                 lambda m: list(handoff.Pair(iter([Handoff.PairRequest()]), timeout=WAIT_S, metadata=m)),
                 lambda m: prefill.Tokenize(inference.TokenizeRequest(), timeout=WAIT_S, metadata=m),
                 lambda m: prefill.Detokenize(inference.DetokenizeRequest(), timeout=WAIT_S, metadata=m),
                 lambda m: decode.Forget(Handoff.ForgetRequest(conversation=bytes(16)), timeout=WAIT_S, metadata=m),
                 lambda m: list(decode.Decode(Handoff.DecodeRequest(conversation=bytes(16)), timeout=WAIT_S, metadata=m))]
        forged = "1 " + "0" * 32 + " 1000 30000 x  " + "0" * 64
        said = {failure(lambda: call(m)).code() for call in calls for m in (None, [("fovea-call-token", forged)])}
        assert said == {unauthenticated}, said
        guessed = Handoff.DecodeRequest(ticket=Handoff.Ticket(id=bytes(16), epoch=1), max_tokens=2)
        e = failure(lambda: list(decode.Decode(guessed, timeout=WAIT_S)))
        assert e.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ABORTED), e


for check in [
        an_answer_streams_in_order, the_same_request_gives_the_same_tokens, a_turn_has_text_and_images_in_any_order,
        a_cancelled_answer_leaves_the_fleet_idle,
        a_deadline_ends_an_answer, abort_ends_a_request_by_its_id, bad_requests_end_with_a_code_and_a_sentence,
        the_model_says_what_may_be_asked, tokens_have_their_bytes, biases_and_penalties_hold_on_both_workers,
        a_text_becomes_ids_and_ids_a_text, every_program_is_healthy_and_lists_its_services,
        the_fleets_state_tells_nothing_of_who_or_where, clients_cannot_join_the_fleet,
        a_stranger_at_the_fleets_door_learns_nothing, strangers_cannot_call_workers]:
    print(check.__name__, flush=True)
    check()
print("ok: grpcio", grpc.__version__)
