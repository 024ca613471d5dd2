"""Passes connections on to the server as they are, and keeps a record of what groups' members say on them.

Each client has a seat of its own: a port that it dials, which leads to a listener of the server that advertises just that
port. So everything on a seat is one client's, and the record is the client's own: when each request left it, and when the
answer was there. Nothing is changed, delayed or held back.
"""

import asyncio
import struct
import threading
import time

GROUP_APIS = {11: "JoinGroup", 12: "Heartbeat", 13: "LeaveGroup", 14: "SyncGroup", 68: "ConsumerGroupHeartbeat"}


class Exchange:
    """A request and its answer, with their times in seconds since the epoch."""

    def __init__(self, api, version, asked, asked_at):
        self.api, self.version, self.asked, self.asked_at = api, version, asked, asked_at
        self.answer = self.answered_at = None

    def well(self):
        return self.answer is not None and self.answer["ErrorCode"] == 0


class Seat:
    """The record of one client. `on_answer(exchange)` is called before an answer goes on to the client."""

    def __init__(self, port, upstream):
        self.port, self.upstream = port, upstream
        self.exchanges, self.on_answer = [], None


class Frames:
    """Cuts a stream into frames."""

    def __init__(self):
        self.rest = bytearray()

    def feed(self, chunk):
        self.rest += chunk
        while len(self.rest) >= 4:
            (n,) = struct.unpack_from(">i", self.rest)
            if len(self.rest) < 4 + n:
                return
            frame = bytes(self.rest[4 : 4 + n])
            del self.rest[: 4 + n]
            yield frame


class Relay:
    """All seats, on a thread of their own."""

    def __init__(self, codec):
        self.codec, self.seats, self.broken = codec, [], []
        for api in GROUP_APIS.values():
            # now, not while a client waits
            codec.schema(api + "Request"), codec.schema(api + "Response")
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def seat(self, port, upstream):
        seat = Seat(port, upstream)
        opening = asyncio.start_server(lambda r, w: self._connection(seat, r, w), "127.0.0.1", port)
        asyncio.run_coroutine_threadsafe(opening, self.loop).result(10)
        self.seats.append(seat)
        return seat

    async def _connection(self, seat, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", seat.upstream)
        except OSError:
            writer.close()
            return
        waiting = {}
        await asyncio.gather(
            self._pump(reader, far_writer, lambda frame, at: self._asked(seat, waiting, frame, at)),
            self._pump(far_reader, writer, lambda frame, at: self._answered(seat, waiting, frame, at)),
            return_exceptions=True,
        )

    async def _pump(self, reader, writer, look):
        frames = Frames()
        try:
            while True:
                chunk = await reader.read(1 << 16)
                if not chunk:
                    break
                at = time.time()
                for frame in frames.feed(chunk):
                    try:
                        look(frame, at)
                    except Exception as e:  # a record that cannot be read must not pass for one without entries
                        self.broken.append("%s: %s" % (type(e).__name__, e))
                writer.write(chunk)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def _asked(self, seat, waiting, frame, at):
        api, version, correlation = struct.unpack_from(">hhi", frame)
        if api not in GROUP_APIS:
            return
        exchange = Exchange(GROUP_APIS[api], version, self.codec.request(GROUP_APIS[api], version, frame), at)
        waiting[correlation] = exchange
        seat.exchanges.append(exchange)

    def _answered(self, seat, waiting, frame, at):
        exchange = waiting.pop(struct.unpack_from(">i", frame)[0], None)
        if exchange is None:
            return
        _, exchange.answer = self.codec.response(exchange.api, exchange.version, frame)
        exchange.answered_at = at
        if seat.on_answer:
            seat.on_answer(exchange)
