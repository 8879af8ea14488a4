#pragma once
// A recording as compile() keeps it: it owns nothing that the program's user would not own without it.
#include <string>
#include <vector>

#include "../core/host_state.h"
#include "record.h"

namespace tapir::inline v0::ir {

/// A shared handle to a leaf: when nobody but programs holds it any more, it was replaced.
class WatchedLeaf {
 public:
  WatchedLeaf() = default;
  explicit WatchedLeaf(const Tensor& leaf);
  WatchedLeaf(WatchedLeaf&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  WatchedLeaf& operator=(WatchedLeaf&& o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~WatchedLeaf();
  const Tensor& operator*() const { return *p_; }
  const Tensor* operator->() const { return p_; }
  bool abandoned() const { return p_->impl().refs.load(std::memory_order_acquire) == 1; }

 private:
  const Tensor* p_ = nullptr;
};

struct Recorded {
  struct Seen {
    Watched storage;
    int block;
    uint32_t raised;
  };
  struct GradSlot {
    WatchedLeaf leaf;
    bool relevant, had;
    View start, end;
  };
  Program program;                     // without memory
  std::vector<Watched> roots;          // of outside blocks that stay where they are; empty ones for the others
  std::vector<bool> moves;             // blocks that lie elsewhere in each call: inputs, outputs, gradients
  std::vector<Seen> storages;          // that do not move
  std::vector<uint32_t> raised_input;  // of each input's storage, its version
  std::vector<GradSlot> grads;
  uint64_t seed = 0, offset = 0, numbers = 0;
};

/// Takes over what was recorded, without the references to what is the user's. `outputs` has the program's outputs.
Recorded keep(Program program, Notes notes);
/// Why this recording cannot be replayed; empty: it can. `permanent`: nor can another of the same signature.
std::string obstacle(const Recorded& r, const Notes& notes, bool& permanent);
/// What two recordings of one function do differently, in words; empty: nothing.
std::string difference(const Recorded& before, const Recorded& after);

}  // namespace tapir::inline v0::ir
