"""A small HTTP/1.1 client on asyncio: kept connections, streamed answers, time of the first event."""

import asyncio
import json
import time


class HttpError(Exception):
    """A request that failed. `kind` is one of few texts, for counting; the message says more."""

    def __init__(self, kind, detail=""):
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind


class Answer:
    def __init__(self, status, headers):
        self.status = status
        self.headers = headers  # names in lower case
        self.body = b""
        self.first_event_at = None  # time.monotonic() of the first body byte

    def json(self):
        return json.loads(self.body)


class CountingReader(asyncio.StreamReader):
    """Knows whether anything came, also what nobody has read yet when the connection fails."""

    received = 0

    def feed_data(self, data):
        self.received += len(data)
        super().feed_data(data)


class Client:
    """Requests to one host:port. Connections are kept and reused; one request a connection at a time."""

    def __init__(self, host, port):
        self._host, self._port = host, port
        self._idle = []

    async def request(self, method, path, body=b"", headers=(), on_event=None):
        """Returns the whole Answer, or raises HttpError. `on_event(bytes)` gets each SSE event as it comes; then
        body stays empty."""
        while True:
            kept = bool(self._idle)
            reader, writer = self._idle.pop() if kept else await self._connect()
            before = reader.received
            reusable = False
            try:
                answer, reusable = await self._exchange(reader, writer, method, path, body, headers, on_event)
                return answer
            except (OSError, asyncio.IncompleteReadError) as error:
                # The peer may have closed a kept connection before the request reached it. Once a byte of an answer
                # came it was received, and must not be sent again.
                if kept and reader.received == before:
                    continue
                where = "before" if reader.received == before else "within"
                raise HttpError(f"connection ended {where} the answer", str(error)) from None
            except (asyncio.LimitOverrunError, ValueError, IndexError) as error:
                raise HttpError("not HTTP", str(error)) from None
            finally:
                if reusable:
                    self._idle.append((reader, writer))
                else:
                    writer.close()

    async def _connect(self):
        loop = asyncio.get_running_loop()
        reader = CountingReader(limit=1 << 20, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.create_connection(lambda: protocol, self._host, self._port)
        except OSError as error:
            raise HttpError("cannot connect", f"{self._host}:{self._port}: {error.strerror or error}") from None
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _exchange(self, reader, writer, method, path, body, headers, on_event):
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Length: {len(body)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers)
        writer.write(head.encode() + b"\r\n" + body)
        await writer.drain()
        block = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = {}
        for line in block[1:]:
            name, colon, value = line.partition(":")
            if colon:
                fields[name.strip().lower()] = value.strip()
        answer = Answer(int(block[0].split(" ", 2)[1]), fields)
        pieces, pending = [], b""
        async for piece in self._body(reader, fields):
            if answer.first_event_at is None:
                answer.first_event_at = time.monotonic()
            if on_event is None or answer.status != 200:
                pieces.append(piece)
                continue
            pending += piece
            while (end := pending.find(b"\n\n")) >= 0:
                on_event(pending[:end])
                pending = pending[end + 2:]
        answer.body = b"".join(pieces)
        bounded = "content-length" in fields or "chunked" in fields.get("transfer-encoding", "")
        return answer, bounded and fields.get("connection", "").lower() != "close"

    async def _body(self, reader, fields):
        if "chunked" in fields.get("transfer-encoding", "").lower():
            while size := int((await reader.readuntil(b"\n")).split(b";")[0], 16):
                yield await reader.readexactly(size)
                await reader.readexactly(2)
            while (await reader.readuntil(b"\n")).strip():
                pass  # trailers
        elif "content-length" in fields:
            if length := int(fields["content-length"]):
                yield await reader.readexactly(length)
        else:
            while piece := await reader.read(1 << 16):
                yield piece

    def close(self):
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()
