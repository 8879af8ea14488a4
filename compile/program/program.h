#pragma once
// Note [Programs]
// A Program is what a thread computed, written down: blocks of memory, and the kernel calls that read and wrote them, in order. Passes
// rewrite it, backends replay it, exporters translate it. It is plain data, and to_string() prints all of it.
// - A block is made by the program (Temporary), was there before (Outside: parameters, optimizer states, inputs), or holds numbers that
//   the host wrote into fresh memory where no kernel could be seen (Constant).
// - Operands name blocks, never addresses. What lies outside is held by the program, so that its address stays valid.
// - Calls have no results: like the entries of core/entries.h they write through operands, and `access` says how.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../../autograd/anomaly.h"
#include "../../core/backend.h"
#include "../../core/entry_fields.h"
#include "../../core/trace.h"
#include "../custom_call.h"

namespace tapir::inline v0::ir {

using entry::Access;

/// A piece of memory. Temporary and Constant ones live from before calls[birth] to before calls[death].
struct Block {
  enum class Kind : uint8_t { Temporary, Outside, Constant };
  Kind kind = Kind::Temporary;
  int64_t bytes = 0;
  Device device;
  int birth = 0;
  int death = -1;  // -1: it outlives the program, as outputs and gradients do
  bool read = false, written = false;
  bool borrowed = false;    // memory of the caller's (from_blob), which his code may write to
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
  /// Has it elements in a block?
  bool in_memory() const { return kind == Kind::Memory && block >= 0; }
};

/// A number as an operand, with the dtype and device of `like`.
inline View number_like(const View& like, Scalar number) {
  View v;
  v.kind = View::Kind::Number, v.number = number, v.dtype = like.dtype, v.device = like.device;
  return v;
}

/// One argument of an entry, as TraceArg: a view, a list of views, or the bytes of parameters.
struct Operand {
  TraceArg::Kind kind = TraceArg::Kind::View;
  Access access = Access::Read;
  std::vector<View> views = {};  // one of View
  std::string bytes = {};
  int op = -1;  // Bytes: the operation, where the parameters have one
  const char* op_name = "";
};

/// What the calling thread was set to, where a kernel goes by it.
struct CallModes {
  bool deterministic = false, flush_denormals = false;  // the second: inside a FlushDenormals
  bool operator==(const CallModes&) const = default;
};

/// A call of a kernel, of copy_bytes, or of host code: what that reads, what it writes, its name.
struct Call {
  entry::Id entry = entry::Id::copy_bytes;
  Device device;
  CallModes modes = {};
  std::vector<Operand> operands = {};
  std::shared_ptr<const CallSite> site = {};  // where it was called, for messages
  std::shared_ptr<const detail::CustomFunction> custom = {};

  /// An operand by its name: call[&entry::Norm::x]. The call must be of that entry.
  template <class E, entry::OneOperand T> const View& operator[](T E::*member) const {
    return operands[place_of(member)].views[0];
  }
  template <class E, entry::OneOperand T> View& operator[](T E::*member) { return operands[place_of(member)].views[0]; }
  template <class E, entry::ManyOperands T> const std::vector<View>& operator[](T E::*member) const {
    return operands[place_of(member)].views;
  }
  template <class E, entry::ManyOperands T> std::vector<View>& operator[](T E::*member) {
    return operands[place_of(member)].views;
  }
  /// The first operand: what pointwise calls write.
  const View& result() const { return operands[0].views[0]; }
  /// The parameters, which stand last.
  template <class P> P params() const {
    static_assert(std::is_trivially_copyable_v<P>);
    const std::string& from = operands.back().bytes;
    check_internal(from.size() == sizeof(P), "[{}] expected {} bytes of parameters, got {}", entry::name_of(entry),
                   sizeof(P), from.size());
    alignas(P) unsigned char raw[sizeof(P)];
    from.copy(reinterpret_cast<char*>(raw), sizeof(P));
    return *std::launder(reinterpret_cast<P*>(raw));
  }

 private:
  template <class E, class T> size_t place_of(T E::*member) const {
    check_internal(entry == entry::id_of<E>, "[{}] expected a call of it, got {}", entry::name_of(entry::id_of<E>),
                   entry::name_of(entry));
    return entry::index_of(member);
  }
};
/// Is it a call of any of these entries?
template <class... E> bool is(const Call& call) { return ((call.entry == entry::id_of<E>) || ...); }

struct Program {
  std::vector<Block> blocks;
  std::vector<Call> calls;
  std::vector<View> inputs, outputs;  // inputs lie in Outside blocks
  int prepared = 0;                   // so many calls stand first that need not run each time
};

/// Is host code among the calls, as collectives are?
inline bool calls_host(const Program& program) {
  return std::any_of(program.calls.begin(), program.calls.end(), [](const Call& call) { return bool(call.custom); });
}
/// Do they name the same memory, or number, in the same form?
bool same(const View& a, const View& b);
/// Do they call the same with the same? Wherever in the user's code that is.
bool same(const Call& a, const Call& b);
/// f.operator()<E>(params) where a call, fused ones aside, draws random numbers; its entry E has a `base`.
template <class F> void with_numbers(const Call& call, F&& f) {
  if (is<entry::Random>(call)) f.template operator()<entry::Random>(call.params<RandomParams>());
  if (is<entry::Dropout>(call)) f.template operator()<entry::Dropout>(call.params<DropoutParams>());
  const auto of_attention = [&]<class E>() {
    const auto params = call.params<AttentionParams>();
    if (draws(params)) f.template operator()<E>(params);
  };
  if (is<entry::Attention>(call)) of_attention.template operator()<entry::Attention>();
  if (is<entry::AttentionBackward>(call)) of_attention.template operator()<entry::AttentionBackward>();
}
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
/// A tensor of that form, `offset` elements behind the storage's beginning.
Tensor tensor_in(const View& form, StoragePtr storage, int64_t offset);
/// A tensor that sees elements of a block.
Tensor tensor_of(const View& view, const Memory& memory);

}  // namespace tapir::inline v0::ir
