"""The contracts as a Python client sees them: classes and stubs from a descriptor set that protoc
wrote. A program that imports this exits with 77 when Python lacks grpc or protobuf."""
import sys

try:
    import grpc
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError as e:
    print(f"skip: {sys.executable}: {e} (package python3-grpcio)")
    sys.exit(77)


def connect(target, **more):
    """more: options of gRPC, without "grpc."."""
    return grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0),
                                                  *(("grpc." + k, v) for k, v in more.items())])


def failure(call):
    """The RpcError that the call ends with; it must."""
    try:
        call()
    except grpc.RpcError as e:
        return e
    raise AssertionError("it must fail")


class Contracts:
    def __init__(self, set_path):
        with open(set_path, "rb") as f:
            self.files = descriptor_pb2.FileDescriptorSet.FromString(f.read()).file
        self._pool = descriptor_pool.DescriptorPool()
        for file in self.files:
            self._pool.Add(file)

    def _class(self, descriptor):
        if hasattr(message_factory, "GetMessageClass"):  # protobuf 4.22 and later
            return message_factory.GetMessageClass(descriptor)
        return message_factory.MessageFactory(self._pool).GetPrototype(descriptor)

    def message(self, name):
        """The class of a message, by its full name."""
        return self._class(self._pool.FindMessageTypeByName(name))

    def messages(self, package):
        """All messages of a package, as attributes."""
        names = [m.name for f in self.files if f.package == package for m in f.message_type]
        return type(package, (), {n: self.message(f"{package}.{n}") for n in names})

    def stub(self, channel, service):
        """The methods of a service, as attributes: the kind of each comes from its contract."""
        methods = {}
        (described,) = [s for f in self.files for s in f.service if f"{f.package}.{s.name}" == service]
        for m in described.method:
            kind = ("stream" if m.client_streaming else "unary") + "_" + ("stream" if m.server_streaming else "unary")
            methods[m.name] = getattr(channel, kind)(
                f"/{service}/{m.name}",
                request_serializer=self.message(m.input_type[1:]).SerializeToString,
                response_deserializer=self.message(m.output_type[1:]).FromString)
        return type(service, (), {k: staticmethod(v) for k, v in methods.items()})
