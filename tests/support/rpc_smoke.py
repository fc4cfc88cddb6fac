"""Another implementation of gRPC talks to our server: health, reflection, errors, deadlines, streams.

usage: rpc_smoke.py HOST:PORT DESCRIPTOR_SET     exits 77 when Python lacks grpc or protobuf
"""
import struct
import sys

from contracts import Contracts, connect, failure  # exits with 77 without grpc
from google.protobuf import descriptor_pb2
import grpc

target, set_path = sys.argv[1:]
contracts = Contracts(set_path)
files = contracts.files
raw = {"request_serializer": None, "response_deserializer": None}
channel = connect(target)

# Health
Ask = contracts.message("grpc.health.v1.HealthCheckRequest")
health = contracts.stub(channel, "grpc.health.v1.Health")
check = health.Check
assert check(Ask(), timeout=10).status == 1
assert check(Ask(service="fovea.inference.v1.Inference"), timeout=10).status == 2
assert failure(lambda: check(Ask(service="none"), timeout=10)).code() == grpc.StatusCode.NOT_FOUND
watch = health.Watch(Ask(), timeout=10)
assert next(watch).status == 1
watch.cancel()

# Reflection: every symbol leads to a file that is what protoc wrote
Question = contracts.message("grpc.reflection.v1.ServerReflectionRequest")
info = contracts.stub(channel, "grpc.reflection.v1.ServerReflection").ServerReflectionInfo
asked = [Question(list_services="*")]
for f in files:
    asked.append(Question(file_by_filename=f.name))
    asked += [Question(file_containing_symbol=f"{f.package}.{s.name}") for s in f.service]
    asked += [Question(file_containing_symbol=f"{f.package}.{m.name}") for m in f.message_type]
asked.append(Question(file_containing_symbol="no.Such"))
replies = list(info(iter(asked), timeout=30))
assert len(replies) == len(asked)
listed = [s.name for s in replies[0].list_services_response.service]
assert sorted(listed) == ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                          "grpc.reflection.v1alpha.ServerReflection", "test.Wire"], listed
assert replies[-1].error_response.error_code == 5
for question, reply in zip(asked[1:-1], replies[1:-1]):
    assert reply.original_request == question
    (got,) = reply.file_descriptor_response.file_descriptor_proto
    got = descriptor_pb2.FileDescriptorProto.FromString(got)
    want = question.file_by_filename or question.file_containing_symbol
    assert got.name == want or want.startswith(got.package + "."), (got.name, want)
    assert got in files

# Failures arrive with sentence and retry hint
fail = channel.unary_unary("/test.Wire/Fail", **raw)
e = failure(lambda: fail(bytes([9]), timeout=10))
assert e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, e
assert e.details() == "it failed: 100% \u00e4", e.details()
assert ("grpc-retry-pushback-ms", "1234") in [tuple(m) for m in e.trailing_metadata()], e.trailing_metadata()
e = failure(lambda: channel.unary_unary("/test.Wire/None", **raw)(b"", timeout=10))
assert e.code() == grpc.StatusCode.UNIMPLEMENTED
e = failure(lambda: list(channel.unary_stream("/test.Wire/Stall", **raw)(b"", timeout=0.2)))
assert e.code() == grpc.StatusCode.DEADLINE_EXCEEDED

# A compressed message is refused, and not inflated to see what is in it
e = failure(lambda: channel.unary_unary("/test.Wire/Echo", **raw)(
    bytes(1 << 20), timeout=10, compression=grpc.Compression.Gzip))
assert e.code() == grpc.StatusCode.UNIMPLEMENTED, e
assert "gzip" in e.details(), e.details()

# Streams, both ways
count = channel.unary_stream("/test.Wire/Count", **raw)
assert [len(m) for m in count(struct.pack("<II", 1000, 1000), timeout=30)] == [1000] * 1000
collect = channel.stream_unary("/test.Wire/Collect", **raw)
assert collect(iter([bytes(1000)] * 500), timeout=30) == struct.pack("<II", 500, 500000)
print("ok: health, reflection, failures, deadline, streams with grpcio", grpc.__version__)
