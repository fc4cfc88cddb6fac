"""Requests and answers, the same for both clients."""
from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

from .inference.v1 import inference_pb2 as pb
from .policy import Policy
from .report import Report
from .form import constraint, json_text

SERVICE = "/fovea.inference.v1.Inference/"
FINISH = {1: "length", 2: "eos", 3: "stop"}
CONFIG = {  # docs/CLIENTS.md
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [{
        "name": [{"service": "fovea.inference.v1.Inference"}],
        "waitForReady": True,
        "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.2s", "maxBackoff": "2s", "backoffMultiplier": 2,
                        "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]}}]}
OPTIONS = [("grpc.service_config", json.dumps(CONFIG)), ("grpc.keepalive_time_ms", 20000),
           ("grpc.max_reconnect_backoff_ms", 2000), ("grpc.max_receive_message_length", 64 << 20)]

Image = Union[bytes, "os.PathLike[str]", str]  # a file's bytes, or its path


@dataclasses.dataclass(frozen=True)
class Video:
    """Frames of a video, as files of images of one size. A model that reads videos (Model.video_token is not 0) takes
    them as one video with native=True; for any other model each frame is an image after its time."""

    frames: Sequence[Image]
    fps: float = 1  # of these frames, not of the file that they are from
    seconds: Sequence[float] = ()  # when each frame is; else frame i is at i / fps
    native: bool = False

    def times(self) -> List[float]:
        if self.seconds and len(self.seconds) != len(self.frames):
            raise ValueError(f"a video has {len(self.frames)} frames and {len(self.seconds)} times")
        if not self.frames or not self.fps > 0:
            raise ValueError("a video needs at least one frame, and an fps above 0")
        return list(self.seconds) or [i / self.fps for i in range(len(self.frames))]


@dataclasses.dataclass(frozen=True)
class Turn:
    """A message of a chat. Videos and then images stand before its text."""

    role: str  # any that the model's template takes: "system", "user", "assistant", "tool"
    text: Optional[str]  # None: no content, as of an assistant that only calls tools
    images: Sequence[Image] = ()
    videos: Sequence[Video] = ()
    members: Optional[Mapping[str, Any]] = None  # more of the message for the template: name, tool_calls, tool_call_id

    def files(self) -> List[Image]:
        """The images of its message, in order."""
        return [f for v in self.videos for f in v.frames] + list(self.images)

    def message(self) -> Any:
        more = {"role": self.role, "members": json_text(self.members)}
        if self.text is None:
            if self.images or self.videos:
                raise ValueError("a turn with images or videos needs a text, which may be empty")
            return pb.Turn(no_content=True, **more)
        if not self.videos:
            return pb.Turn(text=self.text, n_images=len(self.images), **more)
        parts = [p for v in self.videos for p in _video_parts(v)]
        parts += [pb.Part(image=pb.NextImage()) for _ in self.images]
        return pb.Turn(parts=parts + [pb.Part(text=self.text)], **more)


def _video_parts(video: Video) -> List[Any]:
    if video.native:
        return [pb.Part(video=pb.NextVideo())]
    return [pb.Part(image=pb.NextImage(ahead=f"<{t:.1f} seconds>")) for t in video.times()]


def _videos(turns: Sequence[Turn]) -> List[Any]:
    """The messages of native videos, whose frames are among the images of all turns."""
    out, first = [], 0
    for turn in turns:
        for video in turn.videos:
            if video.native:
                out.append(pb.Video(first_image=first, n_frames=len(video.frames), fps=video.fps, seconds=video.times()))
            first += len(video.frames)
        first += len(turn.images)
    return out


@dataclasses.dataclass(frozen=True)
class Token:
    id: int
    logprob: float
    alternatives: Tuple[Tuple[int, float], ...]  # ids and log-probabilities


@dataclasses.dataclass
class Answer:
    text: str = ""
    tokens: List[Token] = dataclasses.field(default_factory=list)
    finish: str = ""  # "length", "eos" or "stop"; "" until it is complete
    report: Report = dataclasses.field(default_factory=Report)
    conversation: bytes = b""  # with keep_ms: continue it with generate(..., conversation=answer.conversation)
    request_id: str = ""
    abort_token: str = ""

    def take(self, event: Any) -> str:
        """Adds an event; the text that it brings."""
        kind = event.WhichOneof("event")
        if kind == "accepted":
            self.request_id, self.abort_token = event.accepted.request_id, event.accepted.abort_token
        elif kind == "tokens":
            for t in event.tokens.tokens:
                self.tokens.append(Token(t.id, t.logprob, tuple((a.id, a.logprob) for a in t.alternatives)))
            self.text += event.tokens.text
            return str(event.tokens.text)
        elif kind == "finished":
            self.finish = FINISH.get(event.finished.reason, "")
            self.report = Report.of(event.finished.report)
            self.conversation = event.finished.conversation
        return ""


def _bytes(image: Image) -> bytes:
    if isinstance(image, bytes):
        return image
    with open(image, "rb") as f:
        return f.read()


def build(prompt: Union[str, Sequence[Turn]], images: Sequence[Image] = (), policy: Union[str, Policy, None] = None, *,
          model: str = "", max_tokens: int = 0, stop: Sequence[str] = (), temperature: float = 0, top_k: int = 0,
          top_p: Optional[float] = None, min_p: float = 0, repetition_penalty: Optional[float] = None,
          presence_penalty: float = 0, frequency_penalty: float = 0, seed: int = 0, ignore_eos: bool = False,
          n_logprobs: int = 0, keep_ms: int = 0, conversation: bytes = b"", kept_tokens: bool = False,
          request_id: str = "", min_tokens: int = 0, stop_token_ids: Sequence[int] = (),
          allowed_token_ids: Sequence[int] = (), bad_words: Sequence[str] = (), special_tokens: bool = False,
          include_stop: bool = False, truncate_prompt_tokens: Optional[int] = None, videos: Sequence[Video] = (),
          cache_off: bool = False, cache_salt: str = "", json_schema: Union[str, bool, Mapping[str, Any], None] = None,
          json_object: bool = False, regex: Optional[str] = None, choice: Sequence[str] = (), grammar: Optional[str] = None,
          structural_tag: Union[str, Mapping[str, Any], None] = None, tools: Sequence[Mapping[str, Any]] = (),
          variables: Optional[Mapping[str, Any]] = None, after_reasoning: bool = False,
          speculate: Optional[bool] = None, prediction: str = "") -> Any:
    """A GenerateRequest; fields as in inference.proto, which says what 0 and empty mean. None: unset.

    json_schema, json_object, regex, choice, grammar, structural_tag: the form of the answer (fovea.form); one at most.
    after_reasoning: a model that thinks first still does, and the form begins behind that.
    tools, variables: what the chat template is given, as objects of JSON."""
    turns = [Turn("user", prompt, images, videos)] if isinstance(prompt, str) else list(prompt)
    if (images or videos) and not isinstance(prompt, str):
        raise ValueError("images and videos of a chat belong to its turns: Turn(role, text, images, videos)")
    given_variables = {**(variables or {}), **({"tools": list(tools)} if tools else {})}
    chat = pb.Chat(turns=[t.message() for t in turns], variables=json_text(given_variables))
    sampling = pb.Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed,
                           repetition_penalty=repetition_penalty, presence_penalty=presence_penalty,
                           frequency_penalty=frequency_penalty)
    rules = pb.TokenRules(allowed_token_ids=allowed_token_ids, bad_words=bad_words, min_tokens=min_tokens,
                          stop_token_ids=stop_token_ids,
                          constraint=constraint(json_schema=json_schema, json_object=json_object, regex=regex, choice=choice,
                                                grammar=grammar, structural_tag=structural_tag, after_reasoning=after_reasoning))
    given = Policy.parse(policy) if isinstance(policy, str) else policy
    message: Optional[Any] = given.message() if given is not None else None
    return pb.GenerateRequest(prompt=pb.Prompt(chat=chat), images=[pb.Image(data=_bytes(i)) for t in turns for i in t.files()],
                              videos=_videos(turns),
                              policy=message, model=model, max_tokens=max_tokens, stop=stop, sampling=sampling,
                              ignore_eos=ignore_eos, n_logprobs=n_logprobs, keep_ms=keep_ms, conversation=conversation,
                              kept_tokens=kept_tokens, request_id=request_id, rules=rules,
                              special_tokens=special_tokens, include_stop=include_stop,
                              truncate_prompt_tokens=truncate_prompt_tokens, cache_off=cache_off,
                              cache_salt=cache_salt, speculate=speculate, prediction=prediction)


def metadata(api_key: str) -> Sequence[Tuple[str, str]]:
    return [("authorization", f"Bearer {api_key}")] if api_key else []
