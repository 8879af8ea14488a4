#pragma once
// A recording as compile() keeps it. It holds storages and leaves from outside only until somebody looks whether anybody else does: the
// memory of a net that is gone goes with the next call, with reset(), or with the compiled function.
#include <map>
#include <string>
#include <vector>

#include "../core/host_state.h"
#include "record.h"

namespace tapir::inline v0::ir {

/// The block of memory that an operand lies in; -1: none.
inline int block_of(const View& v) { return v.kind == View::Kind::Memory ? v.block : -1; }

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
  explicit operator bool() const { return p_; }
  bool abandoned() const { return p_->impl().refs.load(std::memory_order_acquire) == 1; }

 private:
  const Tensor* p_ = nullptr;
};
/// The leaves that programs watch, by their storage; and how often that has changed.
std::map<const Storage*, Tensor> watched_leaves();
uint64_t watched_leaves_changes();

struct Recorded {
  struct Seen {
    Watched storage;
    int block;
    uint32_t raised;
    WatchedLeaf leaf = {};  // that lies there, where another program watches it: its handle keeps the storage alive
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
  bool shared_gradient = false;  // somebody but the leaf and programs holds a gradient that was there, and is
  uint64_t seed = 0, offset = 0, numbers = 0;
};

/// Takes over what was recorded, without the references to what is the user's. `outputs` has the program's outputs.
Recorded keep(Program program, Notes notes);
/// Why this recording cannot be replayed; empty: it can. `permanent`: nor can another of the same signature.
std::string obstacle(const Recorded& r, const Notes& notes, bool& permanent);
/// "binary(Mul) (called in main at net.cpp:12)".
std::string text_of(const Call& call);
/// What two recordings of one function do differently, in words; empty: nothing. The passes of both have not run.
std::string difference(const Recorded& before, const Recorded& after);

}  // namespace tapir::inline v0::ir
