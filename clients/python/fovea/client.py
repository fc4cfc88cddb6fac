"""The client that blocks."""
from __future__ import annotations

from typing import Any, Iterator, List

import grpc

from . import request
from .inference.v1 import inference_pb2 as pb
from .policy import Methods


class Stream:
    """The pieces of an answer's text as they come; `answer` grows with them and is complete at the end."""

    def __init__(self, call: Any):
        self._call = call
        self.answer = request.Answer()

    def __iter__(self) -> Iterator[str]:
        for event in self._call:
            piece = self.answer.take(event)
            if piece:
                yield piece

    def cancel(self) -> None:
        """Ends its work on every machine."""
        self._call.cancel()


class Client:
    """target: "HOST:PORT" of a router. root_certificates: PEM; with it, or tls=True for the system's own, over TLS.
    timeout: seconds of a call. Errors are grpc.RpcError, as in inference.proto."""

    def __init__(self, target: str, *, api_key: str = "", tls: bool = False, root_certificates: bytes = b"", timeout: float = 600):
        if tls or root_certificates:
            self._channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(root_certificates or None), options=request.OPTIONS)
        else:
            self._channel = grpc.insecure_channel(target, options=request.OPTIONS)
        self._more = {"timeout": timeout, "metadata": request.metadata(api_key)}

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _call(self, name: str, message: Any, reply: Any) -> Any:
        method = self._channel.unary_unary(request.SERVICE + name, type(message).SerializeToString, reply.FromString)
        return method(message, **self._more)

    def generate(self, *args: Any, **fields: Any) -> Stream:
        """Arguments are those of fovea.request.build."""
        method = self._channel.unary_stream(request.SERVICE + "Generate", pb.GenerateRequest.SerializeToString, pb.GenerateEvent.FromString)
        return Stream(method(request.build(*args, **fields), **self._more))

    def ask(self, *args: Any, **fields: Any) -> request.Answer:
        """The same, when it is complete."""
        stream = self.generate(*args, **fields)
        for _ in stream:
            pass
        return stream.answer

    def abort(self, answer: request.Answer) -> None:
        self._call("Abort", pb.AbortRequest(request_id=answer.request_id, abort_token=answer.abort_token), pb.AbortReply)

    def model(self, name: str = "") -> Any:
        """The message Model."""
        return self._call("GetModel", pb.GetModelRequest(model=name), pb.Model)

    def models(self) -> List[Any]:
        return list(self._call("ListModels", pb.ListModelsRequest(), pb.ModelList).models)

    def methods(self, model: str = "") -> Methods:
        return Methods(self.model(model))

    def fleet(self) -> Any:
        """The message FleetState."""
        return self._call("GetFleet", pb.GetFleetRequest(), pb.FleetState)

    def tokenize(self, text: str, model: str = "", bare: bool = False) -> List[int]:
        return list(self._call("Tokenize", pb.TokenizeRequest(model=model, prompt=pb.Prompt(text=text), bare=bare), pb.TokenizeReply).id)

    def detokenize(self, ids: List[int], model: str = "") -> str:
        return str(self._call("Detokenize", pb.DetokenizeRequest(model=model, id=ids), pb.DetokenizeReply).text)
