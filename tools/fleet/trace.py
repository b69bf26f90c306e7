"""Request traces in the format of the Mooncake paper, and a synthetic one of the same character.

One JSON object a line: timestamp (ms), input_length, output_length (tokens), hash_ids (one for each 512 tokens,
the last one possibly for fewer)."""

import json
import random
from dataclasses import dataclass

TOKENS_PER_ID = 512
VOCABULARY = 150_000


@dataclass(frozen=True)
class TraceRequest:
    timestamp_ms: float
    input_length: int
    output_length: int
    hash_ids: tuple


class TraceError(Exception):
    """The trace cannot be used; the text names file, line and field."""


def _parse_line(text, where):
    try:
        row = json.loads(text)
        request = TraceRequest(float(row["timestamp"]), int(row["input_length"]), int(row["output_length"]),
                               tuple(int(i) for i in row["hash_ids"]))
    except (ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{where}: not a trace request ({error!r}); expected timestamp, input_length, "
                         "output_length and hash_ids") from None
    if request.input_length < 1 or request.output_length < 0 or request.timestamp_ms < 0:
        raise TraceError(f"{where}: lengths and timestamp must not be negative, input_length at least 1")
    if len(request.hash_ids) * TOKENS_PER_ID < request.input_length:
        raise TraceError(f"{where}: {len(request.hash_ids)} hash_ids cover fewer than input_length "
                         f"{request.input_length} tokens at {TOKENS_PER_ID} each")
    return request


def read(path, limit):
    """The first `limit` requests of the file, timestamps counted from the first."""
    requests = []
    try:
        with open(path, encoding="utf-8") as lines:
            for number, text in enumerate(lines, 1):
                if len(requests) == limit:
                    break
                if text.strip():
                    requests.append(_parse_line(text, f"{path}:{number}"))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    if not requests:
        raise TraceError(f"{path}: no requests in it")
    return requests


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
