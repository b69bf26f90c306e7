#include "kv_events/internal/event_decoder.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "kv_events/internal/integer_run.h"
#include "kv_events/internal/repeats.h"
#include "kv_events/internal/text.h"

namespace xms::kv_events::internal {
namespace {

// Open containers around an event's field, and around an element of an array in a field.
constexpr unsigned kFieldDepth = 3;
constexpr unsigned kElementDepth = kFieldDepth + 1;

constexpr std::uint32_t kMaxBlockSize = 65536;

// Arrays grow by so many elements at a time: memory follows what has been read, not what was
// declared.
constexpr std::size_t kGrowth = 4096;

bool IsOneOf(std::string_view text, std::span<const std::string_view> names) {
  return std::ranges::any_of(names,
                             [&](std::string_view name) { return EqualsIgnoringCase(text, name); });
}

}  // namespace

bool ToHash(Reader& reader, const Item& item, std::size_t at, model::WireHash& hash) {
  if (item.is_integer()) {
    hash.value = item.value;
    return true;
  }
  if (item.kind != ItemKind::kBinary) return reader.Fail(DecodeCode::kWrongType, at);
  // A digest: what the integer form of the same engine holds is its last 8 bytes.
  if (item.value < 8) return reader.Fail(DecodeCode::kBadHash, at);
  hash.value = LoadBigEndian64(item.data + item.value - 8);
  return true;
}

EventDecoder::Key EventDecoder::KeyOf(std::string_view name) {
  switch (name.size()) {
    case 4:
      if (name == "type") return Key::kType;
      break;
    case 6:
      if (name == "medium") return Key::kMedium;
      break;
    case 7:
      if (name == "lora_id") return Key::kLoraId;
      break;
    case 8:
      if (name == "locality") return Key::kLocality;
      break;
    case 9:
      if (name == "token_ids") return Key::kTokenIds;
      if (name == "lora_name") return Key::kLoraName;
      if (name == "group_idx") return Key::kGroupIdx;
      break;
    case 10:
      if (name == "block_size") return Key::kBlockSize;
      if (name == "extra_keys") return Key::kExtraKeys;
      if (name == "cache_salt") return Key::kSalt;
      if (name == "seq_hashes") return Key::kSeqHashes;
      break;
    case 11:
      if (name == "parent_hash") return Key::kParentHash;
      break;
    case 12:
      if (name == "block_hashes") return Key::kBlockHashes;
      break;
    case 15:
      if (name == "additional_salt") return Key::kAdditionalSalt;
      break;
    case 17:
      if (name == "parent_block_hash") return Key::kParentBlockHash;
      break;
    case 18:
      if (name == "kv_cache_spec_kind") return Key::kSpecKind;
      break;
    default:
      break;
  }
  return name.starts_with("mm_") ? Key::kMultimodal : Key::kOther;
}

bool EventDecoder::Uses(EventType type, Key key) {
  switch (type) {
    case EventType::kUnseen:
    case EventType::kStored:
      return key != Key::kOther;
    case EventType::kRemoved:
      return key == Key::kMedium || key == Key::kBlockHashes || key == Key::kSeqHashes ||
             key == Key::kLocality || key == Key::kGroupIdx;
    case EventType::kCleared:
      return key == Key::kMedium || key == Key::kLocality || key == Key::kGroupIdx;
    case EventType::kOther:
      return false;
  }
  return false;
}

std::size_t EventDecoder::DeferralClass(Key key) {
  if (Uses(EventType::kCleared, key)) return 0;
  return Uses(EventType::kRemoved, key) ? 1 : 2;
}

bool EventDecoder::Decode() {
  fields_ = Fields{};
  fields_.start = reader_.offset();
  fields_.first_hash = batch_.hashes.size();
  fields_.first_token = batch_.tokens.size();
  Item head;
  if (!reader_.Next(head)) return false;
  if (head.kind == ItemKind::kMap) return DecodeMap(head.value) && Finish();
  if (head.kind == ItemKind::kArray) return DecodePositional(head.value) && Finish();
  return reader_.Fail(DecodeCode::kWrongType, fields_.start);
}

bool EventDecoder::DecodeMap(std::uint64_t pairs) {
  for (; pairs != 0; --pairs) {
    const std::size_t at = reader_.offset();
    Item name;
    if (!reader_.Next(name)) return false;
    if (name.kind != ItemKind::kString) return reader_.Fail(DecodeCode::kWrongType, at);
    const Key key = KeyOf(name.text());
    if (key != Key::kOther && key != Key::kMultimodal) {
      const std::uint32_t bit = 1u << static_cast<unsigned>(key);
      if ((fields_.seen & bit) != 0) return reader_.Fail(DecodeCode::kDuplicateKey, at);
      fields_.seen |= bit;
    }
    if (!(key == Key::kType ? DecodeType() : DecodeField(key))) return false;
  }
  return true;
}

bool EventDecoder::DecodePositional(std::uint64_t elements) {
  static constexpr std::array kStored = {
      Key::kBlockHashes, Key::kParentBlockHash, Key::kTokenIds,  Key::kBlockSize, Key::kLoraId,
      Key::kMedium,      Key::kLoraName,        Key::kExtraKeys, Key::kGroupIdx,  Key::kSpecKind};
  static constexpr std::array kRemoved = {Key::kBlockHashes, Key::kMedium};

  fields_.positional = true;
  if (elements == 0) return reader_.Fail(DecodeCode::kBadEventTag, fields_.start);
  if (!DecodeType()) return false;
  std::span<const Key> layout;
  if (fields_.type == EventType::kStored) layout = kStored;
  if (fields_.type == EventType::kRemoved) layout = kRemoved;
  for (std::uint64_t i = 1; i < elements; ++i) {
    if (!DecodeField(i <= layout.size() ? layout[i - 1] : Key::kOther)) return false;
  }
  return true;
}

bool EventDecoder::DecodeType() {
  const std::size_t at = reader_.offset();
  Item item;
  if (!reader_.Next(item)) return false;
  if (item.kind != ItemKind::kString) return reader_.Fail(DecodeCode::kBadEventTag, at);
  const std::string_view tag = item.text();
  if (tag == "BlockStored") {
    fields_.type = EventType::kStored;
  } else if (tag == "BlockRemoved") {
    fields_.type = EventType::kRemoved;
  } else if (tag == "AllBlocksCleared") {
    fields_.type = EventType::kCleared;
  } else if (!IsUtf8(tag)) {
    return reader_.Fail(DecodeCode::kInvalidUtf8, at);
  } else {
    fields_.type = EventType::kOther;
  }
  return true;
}

bool EventDecoder::DecodeField(Key key) {
  const std::size_t value = reader_.offset();
  if (!Uses(fields_.type, key)) return reader_.Skip(kFieldDepth);
  if (ReadField(key)) return true;
  if (fields_.type != EventType::kUnseen) return false;
  Failure& deferred = fields_.deferred[DeferralClass(key)];
  if (deferred.code == DecodeCode::kOk) deferred = reader_.failure();
  reader_.Seek(value);
  return reader_.Skip(kFieldDepth);
}

bool EventDecoder::ReadField(Key key) {
  switch (key) {
    case Key::kBlockHashes:
      return ReadHashes();
    case Key::kParentBlockHash:
      return ReadParent();
    case Key::kTokenIds:
      return ReadTokens();
    case Key::kBlockSize:
      return ReadBlockSize();
    case Key::kMedium:
      return ReadMedium();
    case Key::kLocality:
      return ReadLocality();
    case Key::kLoraId:
      return ReadLoraId();
    case Key::kLoraName:
      return ReadLoraName();
    case Key::kExtraKeys:
      return ReadExtraKeys();
    case Key::kGroupIdx:
      return ReadGroupIdx();
    case Key::kSpecKind:
      return ReadSpecKind();
    case Key::kSalt:
    case Key::kAdditionalSalt:
    case Key::kMultimodal:
      return reader_.Skip(kFieldDepth, &fields_.context);
    case Key::kSeqHashes:
      fields_.seq_hashes_at = reader_.offset();
      return reader_.Skip(kFieldDepth);
    case Key::kParentHash:
      fields_.parent_hash_at = reader_.offset();
      return reader_.Skip(kFieldDepth);
    case Key::kType:
    case Key::kOther:
      break;
  }
  return reader_.Skip(kFieldDepth);
}

bool EventDecoder::ReadHashes() {
  const std::size_t at = reader_.offset();
  Item head;
  if (!reader_.Next(head)) return false;
  if (head.kind == ItemKind::kNil) return true;
  if (head.kind != ItemKind::kArray) return reader_.Fail(DecodeCode::kWrongType, at);
  for (std::uint64_t remaining = head.value; remaining != 0;) {
    const std::size_t step = std::min<std::size_t>(remaining, kGrowth);
    const std::size_t done = batch_.hashes.size();
    batch_.hashes.resize(done + step);
    if (!ReadHashElements(batch_.hashes.data() + done, step)) return false;
    remaining -= step;
  }
  fields_.has_hashes = true;
  return true;
}

bool EventDecoder::ReadHashElements(model::WireHash* hashes, std::size_t count) {
  for (std::size_t done = 0;;) {
    done += ReadHashRun(reader_, count - done, hashes + done);
    if (done == count) return true;
    const std::size_t at = reader_.offset();
    Item item;
    if (!reader_.Next(item) || !ToHash(reader_, item, at, hashes[done])) return false;
    ++done;
  }
}

bool EventDecoder::ReadParent() {
  const std::size_t at = reader_.offset();
  Item item;
  if (!reader_.Next(item)) return false;
  if (item.kind == ItemKind::kNil) return true;
  if (!ToHash(reader_, item, at, fields_.parent)) return false;
  // Publishers of the positional form exist that write 0 for "none" (A7).
  fields_.has_parent = !(fields_.positional && item.is_integer() && item.value == 0);
  return true;
}

bool EventDecoder::ReadTokens() {
  const std::size_t at = reader_.offset();
  Item head;
  if (!reader_.Next(head)) return false;
  if (head.kind == ItemKind::kNil) return true;
  if (head.kind != ItemKind::kArray) return reader_.Fail(DecodeCode::kWrongType, at);
  for (std::uint64_t remaining = head.value; remaining != 0;) {
    const std::size_t step = std::min<std::size_t>(remaining, kGrowth);
    const std::size_t done = batch_.tokens.size();
    batch_.tokens.resize(done + step);
    if (!ReadTokenElements(batch_.tokens.data() + done, step)) return false;
    remaining -= step;
  }
  return true;
}

bool EventDecoder::ReadTokenElements(std::uint32_t* tokens, std::size_t count) {
  // Where one token is unusual the next ones are too, so the run is not tried again.
  for (std::size_t done = ReadTokenRun(reader_, count, tokens, mixed_tokens_); done != count;
       ++done) {
    if (!ReadToken(tokens[done])) return false;
  }
  return true;
}

bool EventDecoder::ReadToken(std::uint32_t& token) {
  const std::size_t at = reader_.offset();
  Item item;
  if (!reader_.Next(item)) return false;
  std::uint64_t elements = 1;
  if (item.kind == ItemKind::kArray) {
    // A pair of bigram hashing: its first element is the page's plain token.
    elements = item.value;
    if (elements == 0) return reader_.Fail(DecodeCode::kWrongType, at);
    if (!reader_.Next(item)) return false;
  }
  if (item.kind == ItemKind::kString) {
    fields_.context = true;  // A multimodal position.
    token = 0;
  } else if (!item.is_integer()) {
    return reader_.Fail(DecodeCode::kWrongType, at);
  } else if (item.kind == ItemKind::kNegative || item.value > UINT32_MAX) {
    return reader_.Fail(DecodeCode::kIntOutOfRange, at);
  } else {
    token = static_cast<std::uint32_t>(item.value);
  }
  for (; elements != 1; --elements) {
    if (!reader_.Skip(kElementDepth + 1)) return false;
  }
  return true;
}

bool EventDecoder::ReadBlockSize() {
  const std::size_t at = reader_.offset();
  Item item;
  if (!reader_.Next(item)) return false;
  if (item.kind == ItemKind::kNil) return true;
  if (!item.is_integer()) return reader_.Fail(DecodeCode::kWrongType, at);
  if (item.kind == ItemKind::kNegative || item.value > kMaxBlockSize) {
    return reader_.Fail(DecodeCode::kIntOutOfRange, at);
  }
  fields_.has_block_size = true;
  fields_.block_size = static_cast<std::uint32_t>(item.value);
  fields_.block_size_at = at;
  return true;
}

bool EventDecoder::ReadText(Item& item, bool& present) {
  const std::size_t at = reader_.offset();
  if (!reader_.Next(item)) return false;
  present = item.kind == ItemKind::kString;
  if (!present && item.kind != ItemKind::kNil) return reader_.Fail(DecodeCode::kWrongType, at);
  if (present && !IsUtf8(item.text())) return reader_.Fail(DecodeCode::kInvalidUtf8, at);
  return true;
}

bool EventDecoder::ReadMedium() {
  Item item;
  if (!ReadText(item, fields_.has_medium)) return false;
  if (!fields_.has_medium || IsOneOf(item.text(), kDeviceMedia)) {
    fields_.scope = EventScope::kDevice;
  } else {
    fields_.scope = IsOneOf(item.text(), kHostMedia) ? EventScope::kHost : EventScope::kUnknown;
  }
  return true;
}

bool EventDecoder::ReadLocality() {
  Item item;
  bool present = false;
  if (!ReadText(item, present)) return false;
  fields_.foreign = present && !EqualsIgnoringCase(item.text(), "local");
  fields_.narrowed |= present;
  return true;
}

bool EventDecoder::ReadLoraId() {
  const std::size_t at = reader_.offset();
  Item item;
  if (!reader_.Next(item)) return false;
  if (item.kind == ItemKind::kNil) return true;
  if (!item.is_integer()) return reader_.Fail(DecodeCode::kWrongType, at);
  if (item.kind == ItemKind::kUnsigned && item.value > 0) fields_.context = true;
  return true;
}

bool EventDecoder::ReadLoraName() {
  const std::size_t at = reader_.offset();
  Item item;
  if (!reader_.Next(item)) return false;
  if (item.kind == ItemKind::kNil) return true;
  // At this place of the positional form SGLang has a map of metadata.
  if (item.kind == ItemKind::kMap && fields_.positional) return ReadMetadata(item.value);
  if (item.kind != ItemKind::kString) return reader_.Fail(DecodeCode::kWrongType, at);
  if (item.value != 0) fields_.context = true;
  return true;
}

bool EventDecoder::ReadMetadata(std::uint64_t pairs) {
  for (; pairs != 0; --pairs) {
    if (!reader_.Skip(kElementDepth)) return false;
    if (!reader_.Skip(kElementDepth, &fields_.context)) return false;
  }
  return true;
}

bool EventDecoder::ReadExtraKeys() {
  const std::size_t at = reader_.offset();
  Item head;
  if (!reader_.Next(head)) return false;
  if (head.kind == ItemKind::kNil) return true;
  if (head.kind != ItemKind::kArray) return reader_.Fail(DecodeCode::kWrongType, at);
  // An entry per block: nil on a plain one.
  for (std::uint64_t remaining = head.value; remaining != 0; --remaining) {
    const std::size_t entry = reader_.offset();
    Item item;
    if (!reader_.Next(item)) return false;
    if (item.kind == ItemKind::kNil) continue;
    fields_.context = true;
    reader_.Seek(entry);
    if (!reader_.Skip(kElementDepth)) return false;
  }
  return true;
}

bool EventDecoder::ReadGroupIdx() {
  const std::size_t at = reader_.offset();
  Item item;
  if (!reader_.Next(item)) return false;
  if (item.kind == ItemKind::kNil) return true;
  if (!item.is_integer()) return reader_.Fail(DecodeCode::kWrongType, at);
  fields_.later_group = item.kind == ItemKind::kUnsigned && item.value > 0;
  fields_.narrowed = true;
  return true;
}

bool EventDecoder::ReadSpecKind() {
  static constexpr std::array<std::string_view, 3> kFull = {"full_attention", "mla_attention",
                                                            "sink_full_attention"};
  Item item;
  if (!ReadText(item, fields_.has_spec_kind)) return false;
  fields_.full_attention = fields_.has_spec_kind && IsOneOf(item.text(), kFull);
  return true;
}

bool EventDecoder::Finish() {
  switch (fields_.type) {
    case EventType::kUnseen:
      return reader_.Fail(DecodeCode::kBadEventTag, fields_.start);
    case EventType::kStored:
      return FinishStore();
    case EventType::kRemoved:
      return FinishRemoval();
    case EventType::kCleared:
      if (!ReportDeferred(1)) return false;
      batch_.hashes.resize(fields_.first_hash);
      DropTokens();
      batch_.events.push_back(NewEvent(EventKind::kClear));
      if (fields_.narrowed) {
        // It clears a part that the index does not tell apart (A12): neither all nor one tier.
        batch_.events.back().scope = EventScope::kUnknown;
      } else if (!fields_.has_medium) {
        batch_.events.back().scope = EventScope::kAll;
      }
      return true;
    case EventType::kOther:
      if (options_.strict) return reader_.Fail(DecodeCode::kUnknownEventType, fields_.start);
      batch_.hashes.resize(fields_.first_hash);
      fields_.scope = EventScope::kUnknown;
      Ignore(IgnoreReason::kUnknownType);
      return true;
  }
  return true;
}

bool EventDecoder::FinishRemoval() {
  if (!ReportDeferred(2) || !UseSecondChoices()) return false;
  if (!fields_.has_hashes) return reader_.Fail(DecodeCode::kMissingField, fields_.start);
  if (fields_.foreign) fields_.scope = EventScope::kUnknown;
  if (fields_.scope == EventScope::kUnknown) {
    Ignore(IgnoreReason::kUnknownMedium);
    return true;
  }
  DropTokens();
  batch_.events.push_back(NewEvent(EventKind::kRemove));
  return true;
}

bool EventDecoder::FinishStore() {
  if (!ReportDeferred(3) || !UseSecondChoices()) return false;
  if (!fields_.has_hashes) return reader_.Fail(DecodeCode::kMissingField, fields_.start);
  const std::size_t hashes = batch_.hashes.size() - fields_.first_hash;
  const std::size_t tokens = batch_.tokens.size() - fields_.first_token;

  // What is not for the index is not held to the index's rules.
  if (fields_.foreign) fields_.scope = EventScope::kUnknown;
  if (fields_.scope == EventScope::kUnknown) {
    Ignore(IgnoreReason::kUnknownMedium);
    return true;
  }
  if (fields_.has_spec_kind ? !fields_.full_attention : fields_.later_group) {
    Ignore(IgnoreReason::kCacheGroup);
    return true;
  }
  if (fields_.context) {
    Ignore(IgnoreReason::kContext);
    return true;
  }
  if (hashes == 0 && tokens == 0) {
    Ignore(IgnoreReason::kEmptyStore);
    return true;
  }

  if (tokens == 0) {
    // Neither block size nor parent of a replica is trusted (A9).
    if (HasRepeat(batch_.hashes, fields_.first_hash)) {
      return reader_.Fail(DecodeCode::kSelfReference, fields_.start);
    }
    fields_.has_parent = false;
    batch_.events.push_back(NewEvent(EventKind::kReplica));
    return true;
  }

  const bool strict_geometry = options_.dialect == Dialect::kXllm;
  if (!fields_.has_block_size) return reader_.Fail(DecodeCode::kMissingField, fields_.start);
  if (fields_.block_size == 0) {
    return reader_.Fail(DecodeCode::kIntOutOfRange, fields_.block_size_at);
  }
  if (fields_.block_size != options_.block_size) {
    if (strict_geometry && !mismatch_) mismatch_ = {fields_.block_size_at, fields_.block_size};
    Ignore(IgnoreReason::kGeometry);
    return true;
  }
  if (tokens != hashes * fields_.block_size) {
    if (strict_geometry) return reader_.Fail(DecodeCode::kTokenCount, fields_.start);
    Ignore(IgnoreReason::kGeometry);
    return true;
  }
  const bool own_parent =
      fields_.has_parent &&
      std::find(batch_.hashes.begin() + static_cast<std::ptrdiff_t>(fields_.first_hash),
                batch_.hashes.end(), fields_.parent) != batch_.hashes.end();
  if (own_parent || HasRepeat(batch_.hashes, fields_.first_hash)) {
    return reader_.Fail(DecodeCode::kSelfReference, fields_.start);
  }
  batch_.events.push_back(NewEvent(EventKind::kStore));
  return true;
}

bool EventDecoder::UseSecondChoices() {
  const std::size_t event_end = reader_.offset();
  if (!fields_.has_hashes && fields_.seq_hashes_at != 0) {
    reader_.Seek(fields_.seq_hashes_at);
    if (!ReadHashes()) return false;
  }
  if (fields_.type == EventType::kStored && !fields_.has_parent && fields_.parent_hash_at != 0) {
    reader_.Seek(fields_.parent_hash_at);
    if (!ReadParent()) return false;
  }
  reader_.Seek(event_end);
  return true;
}

bool EventDecoder::ReportDeferred(std::size_t classes) {
  const Failure* first = nullptr;
  for (std::size_t i = 0; i < classes; ++i) {
    const Failure& failure = fields_.deferred[i];
    if (failure.code == DecodeCode::kOk) continue;
    if (first == nullptr || failure.offset < first->offset) first = &failure;
  }
  return first == nullptr || reader_.Fail(first->code, first->offset);
}

void EventDecoder::Ignore(IgnoreReason reason) {
  DropTokens();
  KvEvent event = NewEvent(EventKind::kIgnored);
  event.reason = reason;
  event.ignored_store = fields_.type == EventType::kStored;
  const auto says_nothing = [&](const KvEvent& one) {
    return one.kind == EventKind::kIgnored && one.reason == reason && one.scope == event.scope &&
           one.ignored_store == event.ignored_store && one.hash_count == 0 && !one.has_parent;
  };
  if (says_nothing(event) && !batch_.events.empty() && says_nothing(batch_.events.back())) {
    ++batch_.events.back().repeats;
    return;
  }
  batch_.events.push_back(event);
}

KvEvent EventDecoder::NewEvent(EventKind kind) const {
  KvEvent event;
  event.kind = kind;
  event.scope = fields_.scope;
  if (fields_.type == EventType::kStored) {
    event.has_parent = fields_.has_parent;
    if (fields_.has_parent) event.parent = fields_.parent;
  }
  event.first_hash = static_cast<std::uint32_t>(fields_.first_hash);
  event.hash_count = static_cast<std::uint32_t>(batch_.hashes.size() - fields_.first_hash);
  event.first_token = static_cast<std::uint32_t>(fields_.first_token);
  event.token_count = static_cast<std::uint32_t>(batch_.tokens.size() - fields_.first_token);
  return event;
}

}  // namespace xms::kv_events::internal
