"""Request traces in the format of the Mooncake paper, and a synthetic one of the same character.

One JSON object a line: timestamp (ms), input_length, output_length (tokens), hash_ids (one for each 512 tokens,
the last one possibly for fewer)."""

import json
import random
import reprlib
from dataclasses import dataclass, replace

TOKENS_PER_ID = 512
MAX_TOKENS = 10_000_000  # of one prompt or answer; no model comes near it
MAX_SPAN_MS = 30 * 24 * 3600 * 1000
VOCABULARY = 150_000


@dataclass(frozen=True)
class TraceRequest:
    timestamp_ms: float
    input_length: int
    output_length: int
    hash_ids: tuple


class TraceError(Exception):
    """The trace cannot be used; the text names file, line and field."""


# field -> (types, what is allowed, its check)
_FIELDS = {
    "timestamp": ((int, float), "a number from 0 to 1e18", lambda v: 0 <= v <= 1e18),
    "input_length": ((int,), f"an integer from 1 to {MAX_TOKENS}", lambda v: 1 <= v <= MAX_TOKENS),
    "output_length": ((int,), f"an integer from 0 to {MAX_TOKENS}", lambda v: 0 <= v <= MAX_TOKENS),
    "hash_ids": ((list,), "an array of integers from 0",
                 lambda v: all(type(i) is int and i >= 0 for i in v)),
}


def _parse_line(text, where):
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        raise TraceError(f"{where}: not JSON") from None
    if not isinstance(row, dict):
        raise TraceError(f"{where}: not a JSON object")
    for field, (types, allowed, fits) in _FIELDS.items():
        if field not in row:
            raise TraceError(f"{where}: {field} is missing; expected {allowed}")
        if type(row[field]) not in types or not fits(row[field]):
            raise TraceError(f"{where}: {field}: {reprlib.repr(row[field])}: expected {allowed}")
    request = TraceRequest(row["timestamp"], row["input_length"], row["output_length"], tuple(row["hash_ids"]))
    if len(request.hash_ids) * TOKENS_PER_ID < request.input_length:
        raise TraceError(f"{where}: {len(request.hash_ids)} hash_ids cover fewer than input_length "
                         f"{request.input_length} tokens at {TOKENS_PER_ID} each")
    return request


def read(path, limit):
    """The first `limit` requests of the file, timestamps counted from the first."""
    requests = []
    try:
        with open(path, "rb") as lines:
            for number, text in enumerate(lines, 1):
                if len(requests) == limit:
                    break
                if not text.strip():
                    continue
                request = _parse_line(text, f"{path}:{number}")
                start_ms = requests[0].timestamp_ms if requests else request.timestamp_ms
                if abs(request.timestamp_ms - start_ms) > MAX_SPAN_MS:
                    raise TraceError(f"{path}:{number}: timestamp: {request.timestamp_ms}: more than 30 days from the "
                                     f"first one, {start_ms} (milliseconds)")
                requests.append(request)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    if not requests:
        raise TraceError(f"{path}: no requests in it")
    start_ms = requests[0].timestamp_ms
    return [replace(request, timestamp_ms=request.timestamp_ms - start_ms) for request in requests]


def synthetic(limit, seed=1):
    """Conversations that share one system prompt: each turn extends its own history.

    Chosen to resemble the conversation trace: long prompts (median about 7,000 tokens), roughly a third of all
    blocks seen before, a few requests a second."""
    rng = random.Random(seed)
    next_id = 1
    open_conversations = []  # [hash_ids, turns left]
    requests, now = [], 0.0
    while len(requests) < limit:
        now += rng.expovariate(3.3) * 1000
        if open_conversations and rng.random() < 0.35:
            conversation = rng.choice(open_conversations)
        else:
            conversation = [[0], rng.randint(1, 6)]
            open_conversations.append(conversation)
        grown = 1 + min(60, int(rng.lognormvariate(2.0, 0.9)))
        conversation[0] = conversation[0] + list(range(next_id, next_id + grown))
        next_id += grown
        conversation[1] -= 1
        if conversation[1] == 0 or len(conversation[0]) > 240:
            open_conversations.remove(conversation)
        cut = rng.randint(1, TOKENS_PER_ID)
        requests.append(TraceRequest(now, (len(conversation[0]) - 1) * TOKENS_PER_ID + cut,
                                     1 + min(2000, int(rng.lognormvariate(5.3, 0.9))),
                                     tuple(conversation[0])))
    return requests


class TokenText:
    """Hash id -> its 512 token ids, as the JSON text of their numbers. The same id always gives the same ids."""

    def __init__(self):
        self._texts = {}

    def _ids(self, hash_id):
        rng = random.Random(hash_id)
        return [rng.randrange(VOCABULARY) for _ in range(TOKENS_PER_ID)]

    def prompt(self, request):
        """JSON array of the request's token ids, the last id cut so that input_length tokens remain."""
        parts, left = [], request.input_length
        for hash_id in request.hash_ids:
            if left >= TOKENS_PER_ID:
                text = self._texts.get(hash_id)
                if text is None:
                    text = self._texts[hash_id] = ",".join(map(str, self._ids(hash_id)))
                parts.append(text)
            elif left > 0:
                parts.append(",".join(map(str, self._ids(hash_id)[:left])))
            left -= TOKENS_PER_ID
        return "[" + ",".join(parts) + "]"


def ideal_cached_tokens(requests, block_size):
    """Tokens that one unbounded cache of complete blocks would have served, requests taken in order."""
    nodes = {}  # (parent node, hash id, block within the id) -> node
    cached = 0
    for request in requests:
        parent, known, position = 0, True, 0
        for hash_id in request.hash_ids:
            for block in range(TOKENS_PER_ID // block_size):
                position += block_size
                if position > request.input_length:
                    break
                key = (parent, hash_id, block)
                node = nodes.get(key)
                if node is None:
                    known = False
                    node = nodes[key] = len(nodes) + 1
                if known:
                    cached += block_size
                parent = node
    return cached
