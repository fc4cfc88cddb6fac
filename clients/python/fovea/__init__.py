"""Client of fovea over gRPC.

    with fovea.Client("127.0.0.1:8200") as client:
        answer = client.ask("What is on the table?", images=["photo.jpg"], policy="quality", max_tokens=64)
        print(answer.text, answer.report.bytes_visual)
"""
from .aio import AsyncClient, AsyncStream
from .client import Client, Stream
from .policy import Methods, Policy, Stage
from .report import Report, to_pandas
from .request import Answer, Token, Turn, Video

__all__ = ["Answer", "AsyncClient", "AsyncStream", "Client", "Methods", "Policy", "Report", "Stage", "Stream", "Token", "Turn", "Video", "to_pandas"]
