#pragma once
// All that differs between oneDNN 2.x and 3.x, and what every call of it needs: engine, stream, a cache of primitives, memory
// handles that are set per call. Nothing else in the house includes dnnl.hpp.
#include <dnnl.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string_view>

#include "../../core/backend.h"
#include "../../core/denormal_bits.h"
#include "../../core/error.h"
#include "../../core/no_copy.h"
#include "../../core/parallel.h"

namespace tapir::inline v0::cpu::dnn {

const dnnl::engine& engine();

/// The number of threads the library may use in this scope: `threads`, or this thread's limit when that is 0.
class Session : NoCopy {
 public:
  explicit Session(int threads = 0);
  ~Session();
  int threads() const { return threads_; }

 private:
  int threads_, before_;
  detail::DenormalBits denormals_;  // its workers' are not those of a FlushDenormals
};

// Note [Pieces by shape]
// The library chooses kernels, blocks and the order of sums by extents and by the number of threads. So that results have the same bits for any
// number of threads, a product or convolution is cut into pieces by its shape alone, each piece is one call for one thread, and our team
// deals them out. That costs: 2.6.3 has its fastest kernels for operands without gaps (docs/random.md has figures).

/// Calls piece(context, i) for each i below n, in parallel: each is a call of the library's for one thread.
template <class F> void for_each_piece(const Context& caller, int64_t n, F&& piece) {
  parallel_for(n, 1, [&](int64_t first, int64_t last) {
    const Session session(1);
    Context mine;  // scratch memory of this thread's own
    mine.device = caller.device, mine.table = caller.table;
    for (int64_t i = first; i < last; ++i, mine.free_scratch()) piece(mine, i);
  });
}

/// [0, extent) in about as many parts, multiples of a unit but for the last, which is no less than half of one: the library dislikes single
/// rows and columns of a matrix (Note [Strides for oneDNN]).
struct Cut {
  int64_t extent = 1, size = 1, count = 1;
  Cut() = default;
  Cut(int64_t n, int64_t parts, int64_t unit) : extent(n) {
    check_internal(n > 0 && parts > 0, "[onednn] {} cannot be cut into {} parts", n, parts);
    size = std::min(n, ((n + parts - 1) / parts + unit - 1) / unit * unit);
    count = n / size + (n % size != 0 && n % size >= unit / 2 ? 1 : 0);
  }
  int64_t first(int64_t i) const { return i * size; }
  int64_t length(int64_t i) const { return i + 1 < count ? size : extent - i * size; }
  /// From the first part to the last: all others are like the first.
  int64_t to_last() const { return std::max<int64_t>(1, count - 1); }
  int64_t most() const { return std::max(size, length(count - 1)); }
};

/// What a primitive was made for, as numbers.
struct Key {
  std::array<int64_t, 48> words{};
  int count = 0;
  template <class... I> void add(I... values) { ((words[size_t(count++)] = int64_t(values)), ...); }
  uint64_t hash() const;
  bool operator==(const Key& o) const {
    return count == o.count && std::memcmp(words.data(), o.words.data(), size_t(count) * sizeof(int64_t)) == 0;
  }
};

/// The plans of one thread: creating a primitive takes up to 100 us, finding one less than 0.1. Sets of four, the longest
/// unused goes. A plan may be null: the library has no good kernel for that key.
template <class Plan> class Cache {
 public:
  template <class Make> Plan* find(const Key& key, Make&& make) {
    const uint64_t hash = key.hash();
    Slot* set = slots_.data() + hash % kSets * kWays;
    Slot* oldest = set;
    for (Slot* s = set; s < set + kWays; ++s) {
      if (s->hash == hash && s->entry && s->entry->key == key) {
        s->used = ++clock_;
        return s->entry->plan.get();
      }
      if (s->used < oldest->used) oldest = s;
    }
    auto entry = std::make_unique<Entry>(key, make());
    *oldest = {hash, ++clock_, std::move(entry)};
    return oldest->entry->plan.get();
  }

 private:
  static constexpr int kWays = 4, kSets = 128;
  struct Entry {
    Entry(const Key& k, std::unique_ptr<Plan> p) : key(k), plan(std::move(p)) {}
    Key key;
    std::unique_ptr<Plan> plan;
  };
  struct Slot {
    uint64_t hash = 0, used = 0;
    std::unique_ptr<Entry> entry;
  };
  std::array<Slot, kWays * kSets> slots_;
  uint64_t clock_ = 0;
};

/// A primitive with its arguments; their memory is told per call.
class Call {
 public:
  Call() = default;
  Call(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad)
      : primitive_(primitive), scratch_(int64_t(scratchpad.get_size())) {
    if (scratch_) argument(DNNL_ARG_SCRATCHPAD, scratchpad);
  }
  void argument(int name, const dnnl::memory::desc& desc);
  /// data: in the order of argument(). The scratchpad is not counted.
  void run(Context& ctx, std::initializer_list<void*> data);
  explicit operator bool() const { return bool(primitive_); }

 private:
  dnnl::primitive primitive_;
  static constexpr int kMost = 7;
  std::array<dnnl::memory, kMost> memory_;
  std::array<dnnl_exec_arg_t, kMost> arguments_;
  int count_ = 0;
  int64_t scratch_ = 0;
  int64_t fastest_ = INT64_MAX;  // microseconds
};

Call make_reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);
/// Are products of 8-bit numbers added in 32 bits?
bool has_vnni();

inline dnnl::primitive_attr attributes(const dnnl::post_ops& after = {}) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_post_ops(after);
  return attr;
}
inline void append_eltwise(dnnl::post_ops& ops, dnnl::algorithm algorithm, float alpha, float beta) {
#if DNNL_VERSION_MAJOR >= 3
  ops.append_eltwise(algorithm, alpha, beta);
#else
  ops.append_eltwise(1.f, algorithm, alpha, beta);
#endif
}
template <class P, class... A> typename P::primitive_desc describe(const dnnl::primitive_attr& attr, const A&... a) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), a..., attr};
#else
  return {typename P::desc(a...), attr, engine()};
#endif
}
template <class P, class Hint, class... A>
typename P::primitive_desc describe_backward(const dnnl::primitive_attr& attr, const Hint& forward, const A&... a) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), a..., forward, attr};
#else
  return {typename P::desc(a...), attr, engine(), forward};
#endif
}
/// Lack of memory is an error; every other one means that the library has no such kernel.
inline void pass_out_of_memory(const dnnl::error& e) {
  if (e.status == dnnl_out_of_memory) fail(ErrorKind::OutOfMemory, "[onednn] no memory to make a kernel");
}
/// False for the reference code, which is hundreds of times slower than ours.
inline bool is_good(const dnnl::primitive_desc_base& desc) {
  return desc && std::string_view(desc.impl_info_str()).find("ref") == std::string_view::npos;
}
inline dnnl::memory::data_type type_of(DType t) {
  return t == kBFloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

}  // namespace tapir::inline v0::cpu::dnn
