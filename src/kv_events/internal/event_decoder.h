// EventDecoder: the next event of a batch, map or positional array, appended to a KvBatch.
//
// Place       Driven by DecodeBatch, once per element of the batch's event array.
// Threads     Confined to the DecodeBatch call that owns it.
// Ownership   Borrows reader, options and batch.
// Order       A map is read in one pass whatever the order of its keys. While the type is not known,
//             known keys are read as if the event were a store, and a value of another shape is not an
//             error yet: it becomes one only if the type that turns up has such a field.
// Failure     Decode returns false, code and offset are in reader.failure(), the batch is unspecified.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kv_events/decoder.h"
#include "kv_events/internal/reader.h"
#include "kv_events/kv_batch.h"

namespace xms::kv_events::internal {

// A 64-bit identity from what stands for a hash; `at` is where the item began.
[[nodiscard]] bool ToHash(Reader& reader, const Item& item, std::size_t at, model::WireHash& hash);

class EventDecoder {
 public:
  EventDecoder(Reader& reader, const DecoderOptions& options, KvBatch& batch)
      : reader_(reader), options_(options), batch_(batch) {}

  [[nodiscard]] bool Decode();

  struct BlockSizeMismatch {
    std::size_t offset = 0;
    std::uint32_t published = 0;
  };
  // The first store, if any, whose block size is not the configured one in a dialect where that is
  // a fault (xLLM). It does not stop decoding: damage elsewhere in the message outranks it.
  const std::optional<BlockSizeMismatch>& block_size_mismatch() const { return mismatch_; }

 private:
  enum class EventType : std::uint8_t { kUnseen, kStored, kRemoved, kCleared, kOther };
  // What the decoder reads of an event. kMultimodal stands for every key that begins with "mm_".
  enum class Key : std::uint8_t {
    kType,
    kMedium,
    kBlockHashes,
    kSeqHashes,
    kLocality,
    kParentBlockHash,
    kParentHash,
    kTokenIds,
    kBlockSize,
    kLoraId,
    kLoraName,
    kExtraKeys,
    kSalt,
    kAdditionalSalt,
    kGroupIdx,
    kSpecKind,
    kMultimodal,
    kOther,
  };

  struct Fields {
    std::size_t start = 0;  // the event's offset
    EventType type = EventType::kUnseen;
    bool positional = false;
    std::uint32_t seen = 0;  // bit per Key
    std::size_t first_hash = 0;
    std::size_t first_token = 0;
    bool has_hashes = false;
    bool has_parent = false;
    bool has_block_size = false;
    bool has_medium = false;
    bool foreign = false;  // blocks that lie on another machine
    bool context = false;  // not plain text
    bool has_spec_kind = false;
    bool full_attention = false;
    bool later_group = false;  // group_idx above 0
    bool narrowed = false;     // a locality or a group was named
    EventScope scope = EventScope::kDevice;
    model::WireHash parent;
    std::uint32_t block_size = 0;
    std::size_t block_size_at = 0;
    // Where the values of second-choice keys begin; 0: absent.
    std::size_t seq_hashes_at = 0;
    std::size_t parent_hash_at = 0;
    // First value of the wrong shape that was met before the type, by the types which have the
    // field: all; stores and removals; stores.
    std::array<Failure, 3> deferred;
  };

  static Key KeyOf(std::string_view name);
  static bool Uses(EventType type, Key key);
  static std::size_t DeferralClass(Key key);

  bool DecodeMap(std::uint64_t pairs);
  bool DecodePositional(std::uint64_t elements);
  bool DecodeType();
  bool DecodeField(Key key);
  bool ReadField(Key key);
  bool ReadHashes();
  bool ReadHashElements(model::WireHash* hashes, std::size_t count);
  bool ReadParent();
  bool ReadTokens();
  bool ReadTokenElements(std::uint32_t* tokens, std::size_t count);
  bool ReadToken(std::uint32_t& token);
  bool ReadBlockSize();
  bool ReadMedium();
  bool ReadLocality();
  bool ReadLoraId();
  bool ReadLoraName();
  bool ReadMetadata(std::uint64_t pairs);
  bool ReadExtraKeys();
  bool ReadGroupIdx();
  bool ReadSpecKind();
  // A string or nil whose text is compared. `present` tells which.
  bool ReadText(Item& item, bool& present);

  bool Finish();
  bool FinishStore();
  bool FinishRemoval();
  // Reads the second-choice keys where the first choice is absent or nil; their values may be
  // anywhere.
  bool UseSecondChoices();
  bool ReportDeferred(std::size_t classes);
  void Ignore(IgnoreReason reason);
  KvEvent NewEvent(EventKind kind) const;
  void DropTokens() { batch_.tokens.resize(fields_.first_token); }

  Reader& reader_;
  const DecoderOptions& options_;
  KvBatch& batch_;
  Fields fields_;
  bool mixed_tokens_ = false;  // what ReadTokenRun carries from array to array
  std::optional<BlockSizeMismatch> mismatch_;
};

}  // namespace xms::kv_events::internal
