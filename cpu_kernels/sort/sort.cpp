#include <algorithm>
#include <bit>

#include "../../core/dispatch.h"
#include "../../core/parallel.h"
#include "../kernels.h"
#include "../loops.h"
#include "../reduce/softmax_lanes.h"

// Note [Keys]
// Elements are compared as unsigned numbers of the same order: NaN above all, -0 and 0 equal, inverted where the order is descending. A key and
// its position make an item; items are all different, so that any way of sorting them is stable. Up to 32 bits of key and position
// share one word. Long lines are sorted by the bytes of their keys, from the last one up; items begin in the order of their positions.
namespace tapir::inline v0::cpu {
namespace {

template <class T> struct Key {
  using Bits = std::conditional_t<
      sizeof(T) == 8, uint64_t,
      std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
  static constexpr Bits top = Bits(Bits(1) << (8 * sizeof(T) - 1)), nan = Bits(~Bits(0));
  static constexpr bool is_float = !std::integral<T>;

  static Bits of(T v) {
    if constexpr (std::same_as<T, bool> || std::unsigned_integral<T>) return Bits(v);
    else if constexpr (std::integral<T>) return Bits(Bits(v) ^ top);
    else {
      const auto number = std::conditional_t<sizeof(T) == 2, float, T>(v);
      const Bits bits = number == 0 ? Bits(0) : std::bit_cast<Bits>(v);
      const Bits key = Bits(bits ^ (bits & top ? nan : top));
      return number != number ? nan : key;
    }
  }
  /// The element of that key; zeros and NaNs are of several kinds: those come from `origin`.
  static T value(Bits key, const T& origin) {
    if constexpr (!is_float) return std::same_as<T, bool> || std::unsigned_integral<T> ? T(key) : T(key ^ top);
    else return key == nan || key == top ? origin : std::bit_cast<T>(Bits(key ^ (key & top ? top : nan)));
  }
};

/// A key of at most 32 bits over a position below 2^32.
struct Packed {
  uint64_t word;
  Packed() = default;
  Packed(uint64_t key, int64_t position) : word(key << 32 | uint64_t(position)) {}
  uint64_t key() const { return word >> 32; }
  int64_t position() const { return int64_t(word & 0xffffffffu); }
  bool operator<(const Packed& o) const { return word < o.word; }
};
struct Apart {
  uint64_t key_;
  int64_t position_;
  Apart() = default;
  Apart(uint64_t key, int64_t position) : key_(key), position_(position) {}
  uint64_t key() const { return key_; }
  int64_t position() const { return position_; }
  bool operator<(const Apart& o) const { return key_ < o.key_ || (key_ == o.key_ && position_ < o.position_); }
};

int64_t part(int64_t n, int64_t pieces, int64_t i) { return n / pieces * i + std::min(i, n % pieces); }

/// f(piece, first, last) for equal parts of [0, n), in parallel.
template <class F> void for_parts(int64_t n, int64_t pieces, F&& f) {
  parallel_for(pieces, 1, [&](int64_t a, int64_t b) {
    for (int64_t p = a; p < b; ++p) f(p, part(n, pieces, p), part(n, pieces, p + 1));
  });
}

using Counts = int64_t[256];

/// Sorts items that are in the order of their positions by `bytes` of their keys; `counts`: one for each piece. Where they are then.
template <class Item> Item* radix_sort(Item* from, Item* to, int64_t n, int bytes, int64_t pieces, Counts* counts) {
  for (int shift = 0; shift < 8 * bytes; shift += 8) {
    for_parts(n, pieces, [&](int64_t p, int64_t first, int64_t last) {
      std::fill_n(counts[p], 256, 0);
      for (int64_t i = first; i < last; ++i) ++counts[p][from[i].key() >> shift & 255];
    });
    bool all_equal = false;
    for (int64_t d = 0, at = 0; d < 256; ++d) {
      const int64_t before = at;
      for (int64_t p = 0; p < pieces; ++p) at += std::exchange(counts[p][d], at);
      all_equal |= at - before == n;
    }
    if (all_equal) continue;
    for_parts(n, pieces, [&](int64_t p, int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) to[counts[p][from[i].key() >> shift & 255]++] = from[i];
    });
    std::swap(from, to);
  }
  return from;
}

/// The elements along dim at one place of the other dimensions, and where the results go.
template <class T> struct Line {
  const T* x;
  T* values;  // may be null
  int64_t* indices;
};

template <class T, class Item> class Sorter {
  using K = Key<T>;
  using Bits = typename K::Bits;
  static constexpr int64_t kRadix = sizeof(T) == 8 ? 1024 : 256;  // items from which on bytes win over comparisons
  static constexpr int64_t kLong = 1 << 16;                       // elements of a line that threads share

 public:
  Sorter(V values, V indices, V x, const SortParams& p)
      : p_(p), n_(x.rank ? x.sizes[p.dim] : 1), step_(x.rank ? x.strides[p.dim] : 0),
        value_step_(values.defined() && x.rank ? values.strides[p.dim] : 0),
        index_step_(x.rank ? indices.strides[p.dim] : 0), few_(kept_at_a_time(p)),
        flip_(p.descending ? K::nan : Bits(0)),
        walk_(x.shape(), {x.strides, values.defined() ? values.strides : x.strides, indices.strides},
              x.rank ? p.dim : -1),
        first_{x.as<const T>(), values.as<T>(), indices.as<int64_t>()} {}

  void run(Context& ctx) const {
    const int64_t lines = walk_.total, threads = threads_here(),
                  room = p_.op == SortOp::Sort ? 2 * n_
                         : few_                ? few_
                                               : n_;
    if (lines < threads && n_ >= kLong) {
      Item* const items = ctx.scratch_of<Item>(room);
      Counts* const counts = ctx.scratch_of<Counts>(threads);
      walk_.run(0, lines, [&](int64_t, int64_t count, const std::array<int64_t, 3>& at) {
        for (int64_t i = 0; i < count; ++i) do_line(line(at, i), items, threads, counts);
      });
      return;
    }
    for_lanes<Item>(ctx, walk_, n_, room, [&](Item* items, int64_t, int64_t count, const std::array<int64_t, 3>& at) {
      Counts counts;
      for (int64_t i = 0; i < count; ++i) do_line(line(at, i), items, 1, &counts);
    });
  }

 private:
  int64_t kept_at_a_time(const SortParams& p) const {
    const int64_t kept = 2 * p.k + 16;
    return p.op == SortOp::TopK && p.k > 0 && 4 * kept <= n_ ? kept : 0;
  }
  Line<T> line(const std::array<int64_t, 3>& at, int64_t i) const {
    return {first_.x + at[0] + i * walk_.step(0), first_.values ? first_.values + at[1] + i * walk_.step(1) : nullptr,
            first_.indices + at[2] + i * walk_.step(2)};
  }
  Bits key(const Line<T>& l, int64_t i) const { return Bits(K::of(l.x[i * step_]) ^ flip_); }

  void do_line(const Line<T>& l, Item* items, int64_t pieces, Counts* counts) const {
    if (few_) return few(l, items);
    for_parts(n_, pieces, [&](int64_t, int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) items[i] = Item(key(l, i), i);
    });
    if (p_.op == SortOp::Sort) {
      if (n_ >= kRadix) items = radix_sort(items, items + n_, n_, int(sizeof(T)), pieces, counts);
      else std::sort(items, items + n_);
      return store(l, items, n_, pieces);
    }
    if (p_.op == SortOp::TopK) {
      if (p_.k < n_) std::nth_element(items, items + p_.k, items + n_);
      std::sort(items, items + p_.k);
      return store(l, items, p_.k, 1);
    }
    const int64_t k = rank(items);
    std::nth_element(items, items + k, items + n_);
    store(l, items + k, 1, 1);
  }
  /// The position in the sorted line of the one element that is asked for.
  int64_t rank(const Item* items) const {
    if (p_.op == SortOp::Kth) return p_.k;
    int64_t nans = 0;
    if (K::is_float)
      for (int64_t i = 0; i < n_; ++i) nans += items[i].key() == K::nan;
    if (p_.op == SortOp::Median) return nans ? n_ - nans : (n_ - 1) / 2;
    return n_ == nans ? 0 : (n_ - nans - 1) / 2;
  }
  /// The k first, where k is small: only elements before the k-th of those seen so far are kept.
  void few(const Line<T>& l, Item* items) const {
    const int64_t k = p_.k;
    constexpr int64_t kBlock = 32;
    int64_t kept = 0;
    Bits limit = K::nan;
    T worst{};        // the element of that key
    bool any = true;  // until k were seen, elements of the largest key count too
    for (int64_t from = 0; from < n_; from += kBlock) {
      const int64_t to = std::min(n_, from + kBlock);
      int better = any;
      if (step_ != 1) {
        for (int64_t i = from; i < to; ++i) better |= key(l, i) < limit;
      } else if constexpr (!std::is_floating_point_v<T>) {
        for (int64_t i = from; i < to; ++i) better |= Bits(K::of(l.x[i]) ^ flip_) < limit;
      } else if (flip_) {  // compared as numbers, which is one instruction; a NaN passes, and is looked at below
        for (int64_t i = from; i < to; ++i) better |= !(l.x[i] <= worst);
      } else {
        for (int64_t i = from; i < to; ++i) better |= !(l.x[i] >= worst);
      }
      for (int64_t i = from; better && i < to; ++i) {
        const Bits found = key(l, i);
        if (!any && found >= limit) continue;
        items[kept++] = Item(found, i);
        if (kept < few_) continue;
        std::nth_element(items, items + k - 1, items + kept);
        kept = k, limit = Bits(items[k - 1].key()), any = false;
        worst = l.x[items[k - 1].position() * step_];
      }
    }
    std::sort(items, items + kept);
    store(l, items, k, 1);
  }
  void store(const Line<T>& l, const Item* items, int64_t count, int64_t pieces) const {
    for_parts(count, pieces, [&](int64_t, int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) l.indices[i * index_step_] = items[i].position();
      if (!l.values) return;
      for (int64_t i = first; i < last; ++i)
        l.values[i * value_step_] = K::value(Bits(items[i].key() ^ flip_), l.x[items[i].position() * step_]);
    });
  }

  const SortParams& p_;
  int64_t n_, step_, value_step_, index_step_;
  int64_t few_;  // TopK with a small k: items that are kept at a time
  Bits flip_;
  Walk<3> walk_;
  Line<T> first_;
};

}  // namespace

void sort(Context& ctx, const entry::Sort& c) {
  if (c.x.numel() == 0 || c.indices.numel() == 0) return;
  const bool long_line = c.x.rank && c.x.sizes[c.params.dim] >= int64_t(1) << 32;
  for_all("sort", c.x.dtype, [&]<class T>() {
    if constexpr (sizeof(T) < 8)
      if (!long_line) return Sorter<T, Packed>(c.values, c.indices, c.x, c.params).run(ctx);
    Sorter<T, Apart>(c.values, c.indices, c.x, c.params).run(ctx);
  });
}

}  // namespace tapir::inline v0::cpu
