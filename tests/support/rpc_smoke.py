"""Another implementation of gRPC talks to our server: health, reflection, errors, deadlines, streams.

usage: rpc_smoke.py HOST:PORT DESCRIPTOR_SET     exits 77 when Python lacks grpc or protobuf
"""
import struct
import sys

try:
    import grpc
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError as e:
    print(f"skip: {sys.executable}: {e} (package python3-grpcio)")
    sys.exit(77)

target, set_path = sys.argv[1:]
files = descriptor_pb2.FileDescriptorSet.FromString(open(set_path, "rb").read()).file
pool = descriptor_pool.DescriptorPool()
for f in files:
    pool.Add(f)
factory = message_factory.MessageFactory(pool)
cls = lambda name: factory.GetPrototype(pool.FindMessageTypeByName(name))
raw = {"request_serializer": None, "response_deserializer": None}
channel = grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)])


def coded(request, response):
    return {"request_serializer": request.SerializeToString, "response_deserializer": response.FromString}


def code_of(call):
    try:
        call()
    except grpc.RpcError as e:
        return e
    raise AssertionError("it must fail")


# Health
Ask, Answer = cls("grpc.health.v1.HealthCheckRequest"), cls("grpc.health.v1.HealthCheckResponse")
check = channel.unary_unary("/grpc.health.v1.Health/Check", **coded(Ask, Answer))
assert check(Ask(), timeout=10).status == 1
assert check(Ask(service="fovea.inference.v1.Inference"), timeout=10).status == 2
assert code_of(lambda: check(Ask(service="none"), timeout=10)).code() == grpc.StatusCode.NOT_FOUND
watch = channel.unary_stream("/grpc.health.v1.Health/Watch", **coded(Ask, Answer))(Ask(), timeout=10)
assert next(watch).status == 1
watch.cancel()

# Reflection: every symbol leads to a file that is what protoc wrote
Question = cls("grpc.reflection.v1alpha.ServerReflectionRequest")
Reply = cls("grpc.reflection.v1alpha.ServerReflectionResponse")
info = channel.stream_stream(
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", **coded(Question, Reply))
asked = [Question(list_services="*")]
for f in files:
    asked.append(Question(file_by_filename=f.name))
    asked += [Question(file_containing_symbol=f"{f.package}.{s.name}") for s in f.service]
    asked += [Question(file_containing_symbol=f"{f.package}.{m.name}") for m in f.message_type]
asked.append(Question(file_containing_symbol="no.Such"))
replies = list(info(iter(asked), timeout=30))
assert len(replies) == len(asked)
listed = [s.name for s in replies[0].list_services_response.service]
assert sorted(listed) == ["grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection", "test.Wire"], listed
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
e = code_of(lambda: fail(bytes([9]), timeout=10))
assert e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, e
assert e.details() == "it failed: 100% \u00e4", e.details()
assert ("grpc-retry-pushback-ms", "1234") in [tuple(m) for m in e.trailing_metadata()], e.trailing_metadata()
e = code_of(lambda: channel.unary_unary("/test.Wire/None", **raw)(b"", timeout=10))
assert e.code() == grpc.StatusCode.UNIMPLEMENTED
e = code_of(lambda: list(channel.unary_stream("/test.Wire/Stall", **raw)(b"", timeout=0.2)))
assert e.code() == grpc.StatusCode.DEADLINE_EXCEEDED

# Streams, both ways
count = channel.unary_stream("/test.Wire/Count", **raw)
assert [len(m) for m in count(struct.pack("<II", 1000, 1000), timeout=30)] == [1000] * 1000
collect = channel.stream_unary("/test.Wire/Collect", **raw)
assert collect(iter([bytes(1000)] * 500), timeout=30) == struct.pack("<II", 500, 500000)
print("ok: health, reflection, failures, deadline, streams with grpcio", grpc.__version__)
