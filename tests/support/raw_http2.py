"""HTTP/2 frames by hand, for clients that no library would be: connections that break the rules, and that
go on when they should wait. Standard library only.

Nothing here answers for right use: header blocks are literals without Huffman coding, windows are counted
as far as sending needs it.
"""
import select
import socket
import struct
import time

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_MAX = 16384


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def number(value, prefix_bits):
    """An integer of HPACK after a prefix of zeros (RFC 7541, 5.1)."""
    most = (1 << prefix_bits) - 1
    if value < most:
        return bytes([value])
    out = [most]
    value -= most
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes(out + [value])


def text(value):
    return number(len(value), 7) + value


def field(name, value):
    return b"\x00" + text(name) + text(value)


def call_headers(path, *more):
    """The header block of a gRPC call: POST, http, and what else it needs."""
    fields = [(b":path", path), (b":authority", b"test"), (b"content-type", b"application/grpc"),
              (b"te", b"trailers"), *more]
    return b"\x83\x86" + b"".join(field(name, value) for name, value in fields)


class Connection:
    """A connection that never raises because its peer has had enough: `open` says whether it is there."""

    def __init__(self, target, wait_s=10):
        host, port = target.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=wait_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.open, self.buffer = True, b""
        self.next_stream = 1
        self.window, self.window_first, self.windows = 65535, 65535, {}
        self.reset, self.answered, self.fields, self.goaway = {}, set(), {}, None
        self.send(PREFACE + frame(SETTINGS, 0, 0))
        self.read(0.2)

    def close(self):
        self.open = False
        self.socket.close()

    def send(self, data):
        """False when the peer takes no more: it is gone, or it has not read for some seconds."""
        if not self.open:
            return False
        try:
            self.socket.sendall(data)
        except OSError:
            self.open = False
        return self.open

    def read(self, wait_s=0.0):
        """Takes in what has come."""
        while self.open and select.select([self.socket], [], [], wait_s)[0]:
            wait_s = 0
            try:
                data = self.socket.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                self.open = False
                return
            self.buffer += data
            while len(self.buffer) >= 9:
                n = int.from_bytes(self.buffer[:3], "big")
                if len(self.buffer) < 9 + n:
                    break
                kind, flags = self.buffer[3], self.buffer[4]
                stream = int.from_bytes(self.buffer[5:9], "big") & 0x7FFFFFFF
                payload, self.buffer = self.buffer[9:9 + n], self.buffer[9 + n:]
                self._take(kind, flags, stream, payload)

    def _take(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack(">HI", payload[at:at + 6])
                if key == 4:
                    for s in self.windows:
                        self.windows[s] += value - self.window_first
                    self.window_first = value
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            more = int.from_bytes(payload, "big") & 0x7FFFFFFF
            if stream == 0:
                self.window += more
            elif stream in self.windows:
                self.windows[stream] += more
        elif kind == RST_STREAM:
            self.reset[stream] = int.from_bytes(payload, "big")
        elif kind == GOAWAY:
            self.goaway = int.from_bytes(payload[4:8], "big")
        elif kind == HEADERS:
            self.answered.add(stream)
            self.fields[stream] = self.fields.get(stream, b"") + payload

    def begin(self, path, *more, end=False):
        """Opens a stream; its number."""
        stream = self.next_stream
        self.next_stream += 2
        self.windows[stream] = self.window_first
        self.send(frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, call_headers(path, *more)))
        return stream

    def data(self, stream, payload, end=False, limit_s=5):
        """Sends as much of it as windows allow within the time; the number of bytes."""
        at, until = 0, time.monotonic() + limit_s
        while at < len(payload) and self.open and stream not in self.reset and time.monotonic() < until:
            room = min(self.window, self.windows[stream], FRAME_MAX, len(payload) - at)
            if room <= 0:
                self.read(0.05)
                continue
            self.send(frame(DATA, 0, stream, payload[at:at + room]))
            at += room
            self.window -= room
            self.windows[stream] -= room
        if end and at == len(payload):
            self.send(frame(DATA, END_STREAM, stream))
        self.read()
        return at

    def wait_for_end(self, stream, limit_s):
        """True: the peer has answered or reset the stream, or left."""
        until = time.monotonic() + limit_s
        while self.open and stream not in self.answered and stream not in self.reset:
            if time.monotonic() > until:
                return False
            self.read(0.05)
        return True


def message(payload, compressed=0, length=None):
    """A gRPC message; `length` may lie."""
    return bytes([compressed]) + (len(payload) if length is None else length).to_bytes(4, "big") + payload
