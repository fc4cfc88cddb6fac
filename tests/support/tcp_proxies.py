"""TCP proxies on a thread of their own: each connection goes where the proxy's port leads at that moment, and stays
there until it ends or is cut."""
import asyncio
import threading


class Proxies:
    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def open(self, choose):
        """A port that leads to the port that choose() returns for each connection (None: nowhere), and the set of its
        connections' writers."""
        writers = set()

        async def pump(reader, writer):
            try:
                while data := await reader.read(1 << 16):
                    writer.write(data)
                    await writer.drain()
            except OSError:
                pass
            writer.close()

        async def on_connection(reader, writer):
            try:
                there = await asyncio.open_connection("127.0.0.1", choose() or 0)
            except OSError:
                writer.close()
                return
            both = {writer, there[1]}
            writers.update(both)
            await asyncio.gather(pump(reader, there[1]), pump(there[0], writer), return_exceptions=True)
            writers.difference_update(both)

        async def serve():
            return await asyncio.start_server(on_connection, "127.0.0.1", 0)

        server = asyncio.run_coroutine_threadsafe(serve(), self.loop).result()
        return server.sockets[0].getsockname()[1], writers

    def cut(self, writers):
        self.loop.call_soon_threadsafe(lambda: [w.transport.abort() for w in list(writers)])
