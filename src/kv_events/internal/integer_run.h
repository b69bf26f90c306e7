// ReadTokenRun, ReadHashRun: the two loops in which decoding spends its time.
//
// Place       Called by the event decoder for each token and hash array; stops in front of whatever
//             is not the plain case, which the caller then reads item by item.
// Bounds      `out` has room for `count` values. Reads nothing outside the reader's payload.
// Cost        Token ids mix four encodings of 1, 2, 3 and 5 bytes, so a branch on each token's format is
//             mispredicted as often as the vocabulary mixes them, and a loop without branches waits
//             for each load before it knows where the next token begins: 250 to 550 ns per 128 mixed
//             tokens where measured. Here the lengths at 128 byte positions are computed side by side,
//             whether a token begins there or not, and summed in pairs, so that the walk needs one
//             load for two tokens and no branch on the data: about 200 ns. Runs of 3-byte tokens,
//             which vocabularies below 65,536 consist of, take a shorter way: about 80 ns.
// Portability GCC's and Clang's vector types; no instruction set is named.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kv_events/internal/reader.h"
#include "model/ids.h"

namespace xms::kv_events::internal {

// Unsigned integers of at most 32 bits. Returns how many were read. The reader stands at least three
// bytes into the payload, as it does after any event's head: loads reach that far back.
//
// `mixed` is carried from array to array: the last tokens were not all of 3 bytes, so that the next ones
// are not expected to be either. It changes the way, never the result.
std::size_t ReadTokenRun(Reader& reader, std::size_t count, std::uint32_t* out, bool& mixed);

// 64-bit unsigned integers in their 9-byte form. Returns how many were read.
std::size_t ReadHashRun(Reader& reader, std::size_t count, model::WireHash* out);

}  // namespace xms::kv_events::internal
