"""The client for asyncio: as fovea.client, awaited."""
from __future__ import annotations

from typing import Any, AsyncIterator, List

import grpc
import grpc.aio

from . import request
from .inference.v1 import inference_pb2 as pb
from .policy import Methods


class AsyncStream:
    def __init__(self, call: Any):
        self._call = call
        self.answer = request.Answer()

    async def __aiter__(self) -> AsyncIterator[str]:
        async for event in self._call:
            piece = self.answer.take(event)
            if piece:
                yield piece

    def cancel(self) -> None:
        self._call.cancel()


class AsyncClient:
    def __init__(self, target: str, *, api_key: str = "", tls: bool = False, root_certificates: bytes = b"", timeout: float = 600):
        if tls or root_certificates:
            self._channel = grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(root_certificates or None), options=request.OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(target, options=request.OPTIONS)
        self._more = {"timeout": timeout, "metadata": request.metadata(api_key)}

    async def close(self) -> None:
        await self._channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def _call(self, name: str, message: Any, reply: Any) -> Any:
        method = self._channel.unary_unary(request.SERVICE + name, type(message).SerializeToString, reply.FromString)
        return await method(message, **self._more)

    def generate(self, *args: Any, **fields: Any) -> AsyncStream:
        method = self._channel.unary_stream(request.SERVICE + "Generate", pb.GenerateRequest.SerializeToString, pb.GenerateEvent.FromString)
        return AsyncStream(method(request.build(*args, **fields), **self._more))

    async def ask(self, *args: Any, **fields: Any) -> request.Answer:
        stream = self.generate(*args, **fields)
        async for _ in stream:
            pass
        return stream.answer

    async def abort(self, answer: request.Answer) -> None:
        await self._call("Abort", pb.AbortRequest(request_id=answer.request_id, abort_token=answer.abort_token), pb.AbortReply)

    async def model(self, name: str = "") -> Any:
        return await self._call("GetModel", pb.GetModelRequest(model=name), pb.Model)

    async def models(self) -> List[Any]:
        return list((await self._call("ListModels", pb.ListModelsRequest(), pb.ModelList)).models)

    async def methods(self, model: str = "") -> Methods:
        return Methods(await self.model(model))

    async def fleet(self) -> Any:
        return await self._call("GetFleet", pb.GetFleetRequest(), pb.FleetState)

    async def tokenize(self, text: str, model: str = "", bare: bool = False) -> List[int]:
        message = pb.TokenizeRequest(model=model, prompt=pb.Prompt(text=text), bare=bare)
        return list((await self._call("Tokenize", message, pb.TokenizeReply)).id)

    async def detokenize(self, ids: List[int], model: str = "") -> str:
        return str((await self._call("Detokenize", pb.DetokenizeRequest(model=model, id=ids), pb.DetokenizeReply)).text)
