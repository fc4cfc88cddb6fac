"""A collector of OpenTelemetry for traces, with the messages and the service of opentelemetry-proto.

usage: collector.py HOST:PORT FILE   writes a line of JSON per span to FILE, and the address to stdout
"""
import json
import signal
import sys
from concurrent import futures

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

address, path = sys.argv[1:]
out = open(path, "a", buffering=1)


def values(attributes):
    assert len({a.key for a in attributes}) == len(attributes), attributes
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for s in scope.spans:
                    out.write(json.dumps({
                        "resource": values(resource.resource.attributes), "scope": scope.scope.name, "name": s.name,
                        "trace": s.trace_id.hex(), "id": s.span_id.hex(), "parent": s.parent_span_id.hex(),
                        "kind": s.kind, "begin": s.start_time_unix_nano, "end": s.end_time_unix_nano,
                        "status": s.status.code, "attributes": values(s.attributes)}) + "\n")
        return trace_service_pb2.ExportTraceServiceResponse()


server = grpc.server(futures.ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Collector(), server)
host, _, port = address.rpartition(":")
found = server.add_insecure_port(address)
assert found, f"{address} is taken"
server.start()
print(f"listening on {host}:{found}", flush=True)
signal.sigwait({signal.SIGTERM})
