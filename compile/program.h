#pragma once
// Note [Programs]
// A Program is what a thread computed, written down: blocks of memory, and the kernel calls that read and wrote them, in order. Passes
// rewrite it, backends replay it, exporters translate it. It is plain data, and to_string() prints all of it.
// - A block is made by the program (Temporary), was there before (Outside: parameters, optimizer states, inputs), or holds numbers that
//   the host wrote into fresh memory where no kernel could be seen (Constant).
// - Operands name blocks, never addresses. What lies outside is held by the program, so that its address stays valid.
// - Calls have no results: like the entries of core/backend.h they write through operands, and `access` says how.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../autograd/anomaly.h"
#include "../core/backend.h"
#include "../core/trace.h"

namespace tapir::inline v0::ir {

/// What a call does with an operand: Write replaces all elements that the view names, Update reads them first.
enum class Access : uint8_t { Read, Write, Update };

/// A piece of memory. Temporary and Constant ones live from before calls[birth] to before calls[death].
struct Block {
  enum class Kind : uint8_t { Temporary, Outside, Constant };
  Kind kind = Kind::Temporary;
  int64_t bytes = 0;
  Device device;
  int birth = 0;
  int death = -1;  // -1: it outlives the program, as outputs and gradients do
  bool read = false, written = false;
  bool kept = false;        // prepared calls write it and others read it: Note [Prepared calls]
  StoragePtr memory = {};   // of what lies outside or outlives the program
  std::string values = {};  // Constant: its bytes
};

/// Elements of a block, a number, or nothing. Without elements there is no block either.
struct View {
  enum class Kind : uint8_t { Absent, Memory, Number };
  Kind kind = Kind::Absent;
  DType dtype = kFloat32;
  Device device;
  int block = -1;
  int64_t offset = 0;  // in elements, from the block's beginning
  Shape shape;
  Strides strides;
  Scalar number;
};

/// One argument of an entry, as TraceArg: a view, a list of views, or the bytes of parameters.
struct Operand {
  TraceArg::Kind kind = TraceArg::Kind::View;
  Access access = Access::Read;
  std::vector<View> views = {};  // one of View
  std::string bytes = {};
  int op = -1;  // Bytes: the operation, where the parameters have one
  const char* op_name = "";
};

/// `entry` is a member of BackendTable: a kernel, or "copy_bytes" with two views of uint8 (to, from).
struct Call {
  const char* entry = "";
  Device device;
  bool deterministic = false;
  std::vector<Operand> operands = {};
  std::shared_ptr<const CallSite> site = {};  // where it was called, for messages

  /// The first view of operand i.
  const View& view(size_t i) const { return operands[i].views[0]; }
  /// The parameters, which stand last.
  template <class P> P params() const {
    static_assert(std::is_trivially_copyable_v<P>);
    const std::string& from = operands.back().bytes;
    check_internal(from.size() == sizeof(P), "[{}] expected {} bytes of parameters, got {}", entry, sizeof(P),
                   from.size());
    alignas(P) unsigned char raw[sizeof(P)];
    from.copy(reinterpret_cast<char*>(raw), sizeof(P));
    return *std::launder(reinterpret_cast<P*>(raw));
  }
};
inline bool is(const Call& call, std::string_view entry) { return call.entry == entry; }

struct Program {
  std::vector<Block> blocks;
  std::vector<Call> calls;
  std::vector<View> inputs, outputs;  // inputs lie in Outside blocks
  int prepared = 0;                   // so many calls stand first that need not run each time
};

/// How entry `entry` uses its operand number `i`; `params` is the last operand's bytes.
Access access_of(std::string_view entry, size_t i, std::string_view params);
/// A line for each block and each call.
std::string to_string(const Program& program);
std::string to_string(const Call& call);
std::string to_string(const View& view);
/// "binary(Mul)".
std::string label_of(const Call& call);

/// Memory for a program's blocks, one for each; undefined where it is not alive.
using Memory = std::vector<StoragePtr>;
/// Copies of what lies outside, as it is now.
Memory copy_of_outside(const Program& program);
/// Runs the calls in order, each by call_entry, on `memory`, which holds the outside blocks and is given the others. The outputs. Slow
/// and plain: what passes and replays are compared with.
std::vector<Tensor> interpret(const Program& program, Memory& memory);
/// A tensor that sees elements of a block.
Tensor tensor_of(const View& view, const Memory& memory);

}  // namespace tapir::inline v0::ir
