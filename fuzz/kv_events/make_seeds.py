#!/usr/bin/env python3
"""Writes each KV-event vector as a seed of kv_event_decoder_fuzz: a byte of options, then the payload.

usage: make_seeds.py VECTORS.json FOLDER
"""

import json
import pathlib
import sys

# As in OptionsFrom of kv_event_decoder_fuzz.cc.
DIALECTS = ["xllm", "vllm", "sglang", "trtllm", "mooncake"]
BLOCK_SIZES = [4, 1, 16, 128]


def options_byte(vector):
    context = vector["expect"]["context"]
    return (
        DIALECTS.index(vector["dialect"])
        | (context["mode"] == "strict") << 3
        | BLOCK_SIZES.index(context["block_size"]) << 4
        | context["dp_rank"] << 6
    )


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for vector in json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")):
        seed = bytes([options_byte(vector)]) + bytes.fromhex(vector["hex"])
        (folder / vector["name"]).write_bytes(seed)


if __name__ == "__main__":
    main()
