// Engine: one publisher, its wires, the StreamMachine that listens to it, and the Reference beside it.
//
// Place       World's; nothing else makes one.
// Threads     Externally synchronised.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kv_directory/recovery/stream_machine.h"
#include "kv_index/kv_index.h"
#include "kv_index/stream_ledger.h"
#include "tests/support/kv_truth.h"
#include "tests/unit/kv_directory/model/world.h"

namespace xms::kv_directory::proof {

class Engine final : public StreamMachine::Actions {
 public:
  Engine(World& world, int rank, std::uint64_t seed, std::uint64_t first_sequence);

  void Act(const Step& step);
  void Tick();
  base::SteadyTime NextTick() const { return machine_->NextTick(); }
  void Judge();
  // Everything that is on its way arrives, every question is answered.
  void Settle();
  // A life that began in place has said nothing yet, or the stream has to hear something first.
  bool WaitsForAWord() const;
  void SayAWord();
  bool UpToDate() const;
  // The second snapshot of this connection is due, and nothing else of note has happened.
  bool SecondSnapshotIsDue() const;
  bool synchronized() const { return ledger_->synchronized(); }
  std::string Describe() const;
  void AddTo(Fingerprint& fingerprint) const;

  const Reference& reference() const { return reference_; }
  std::uint64_t synchronizations() const { return synchronizations_; }

  // --- StreamMachine::Actions
  void OpenSubscription() override;
  void CloseSubscription() override;
  void OpenExchange() override;
  void CloseExchange() override;
  void StateChanged(bool synchronized, const std::string& line) override;

 private:
  using Frames = testing::Frames;

  void Open();
  void Publish(Batch batch);
  Batch RandomBatch(std::uint16_t argument) const;
  Batch Scripted(Script script) const;
  void Record();
  void BeginLife(bool continuing);
  void ReplaceStream();

  void Deliver();
  void Twist(std::uint16_t argument);
  void Connect();
  void Break(bool announced);
  void Ask();
  void MakeAnswer(std::size_t parts);
  void Reply();

  // Feeds the machine what the reference has just been told.
  template <typename Call>
  void Feed(std::string_view what, Call call);
  Shown Look() const;
  void Probe(std::string_view where) const;

  World& world_;
  const int rank_;
  const StreamSpec spec_;
  const StreamMetrics metrics_;
  std::mt19937_64 seeds_;

  Told truth_;
  int life_ = 1;
  const std::uint64_t first_sequence_;
  std::uint64_t next_sequence_;
  // By life and next sequence: what was held.
  std::map<int, std::map<std::uint64_t, Told>> records_;
  // Lives that said something else than they held.
  std::set<int> liars_;

  bool subscribing_ = false;
  bool linked_ = false;
  bool broken_ = false;   // the process behind the link is gone, and the stream has not been told
  bool unheard_ = false;  // this life began in place, and no batch of it has arrived
  bool closing_ = false;  // by the peer
  std::deque<LiveMessage> wire_;

  bool exchange_ = false;
  bool asked_ = false;
  bool intact_ = true;  // what arrived of the answer
  bool dead_ = false;   // nobody will answer any more
  std::optional<Answer> answer_;
  std::deque<Frames> replies_;
  int exchanges_in_synchrony_ = 0;

  Reference reference_;
  std::uint64_t synchronizations_ = 0;
  std::unique_ptr<kv_index::StreamLedger> ledger_;
  std::optional<StreamMachine> machine_;
};

}  // namespace xms::kv_directory::proof
