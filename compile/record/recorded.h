#pragma once
// A recording as compile() keeps it.
#include <string>
#include <vector>

#include "outside.h"
#include "record.h"

namespace tapir::inline v0::ir {

/// The block of memory that an operand lies in; -1: none.
inline int block_of(const View& v) { return v.kind == View::Kind::Memory ? v.block : -1; }

struct Recorded : Outside {
  Program program;                           // without memory
  std::vector<detail::Weak<Storage>> roots;  // of outside blocks that stay where they are; empty ones for the others
  std::vector<bool> moves;                   // blocks that lie elsewhere in each call: inputs, outputs, gradients
  std::vector<uint32_t> raised_input;        // of each input's storage, its version
  bool left_otherwise = false;               // a module in another mode, a tensor with another requires_grad
  bool shared_gradient = false;              // somebody but the leaf holds a gradient that was there, and is
  uint64_t seed = 0, offset = 0, numbers = 0;
  /// Keeps what lies outside alive; false: something is gone.
  bool hold(Held& held) const;
};

/// Takes over what was recorded, without the references to what is the user's. `outputs` has the program's outputs.
Recorded keep(Program program, Notes notes);
/// Why this recording cannot be replayed; empty: it can. `permanent`: nor can another of the same signature. `graph`: one keeps what it needs.
Reason obstacle(const Recorded& r, const Notes& notes, bool graph, bool& permanent);
/// "binary(Mul) (called in main at net.cpp:12)".
Reason text_of(const Call& call);
/// What two recordings of one function do differently, in words; empty: nothing. The passes of both have not run.
Reason difference(const Recorded& before, const Recorded& after);

}  // namespace tapir::inline v0::ir
