"""A small HTTP/1.1 client on asyncio: kept connections, streamed answers, time of the first event."""

import asyncio
import json
import time


class HttpError(Exception):
    """The peer cannot be reached, or what it sent is not HTTP."""


class Answer:
    def __init__(self, status, headers):
        self.status = status
        self.headers = headers  # names in lower case
        self.body = b""
        self.first_event_at = None  # time.monotonic() of the first body byte

    def json(self):
        return json.loads(self.body)


class Client:
    """Requests to one host:port. Connections are kept and reused; one request a connection at a time."""

    def __init__(self, host, port):
        self._host, self._port = host, port
        self._idle = []

    async def request(self, method, path, body=b"", headers=(), on_event=None):
        """Returns the whole Answer. `on_event(bytes)` gets each SSE event as it comes; then body stays empty."""
        while True:
            kept = bool(self._idle)
            reader, writer = self._idle.pop() if kept else await self._connect()
            try:
                answer, reusable = await self._exchange(reader, writer, method, path, body, headers, on_event)
            except (OSError, asyncio.IncompleteReadError, HttpError) as error:
                writer.close()
                # A kept connection may have been closed by the peer in the meantime: nothing was answered.
                if kept and isinstance(error, (OSError, asyncio.IncompleteReadError)):
                    continue
                raise HttpError(f"{method} http://{self._host}:{self._port}{path}: {error!r}") from None
            if reusable:
                self._idle.append((reader, writer))
            else:
                writer.close()
            return answer

    async def _connect(self):
        try:
            return await asyncio.open_connection(self._host, self._port, limit=1 << 20)
        except OSError as error:
            raise HttpError(f"http://{self._host}:{self._port}: {error.strerror or error}") from None

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
            while size := int((await reader.readline()).split(b";")[0], 16):
                yield await reader.readexactly(size)
                await reader.readexactly(2)
            while (await reader.readline()).strip():
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
