#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace tapir::inline v0 {

inline constexpr int kMaxRank = 16;
[[noreturn]] void fail_rank(int64_t rank);

/// A list of at most 16 integers, held inline: a shape, strides, or a list of dimensions. One integer is a list of one.
class Dims {
 public:
  constexpr Dims() = default;
  template <std::integral Int> constexpr Dims(Int one) : rank_(1) { values_[0] = int64_t(one); }
  constexpr Dims(std::initializer_list<int64_t> list) { assign(list.begin(), int64_t(list.size())); }
  constexpr Dims(std::span<const int64_t> list) { assign(list.data(), int64_t(list.size())); }
  Dims(const std::vector<int64_t>& list) { assign(list.data(), int64_t(list.size())); }
  static constexpr Dims filled(int64_t rank, int64_t value) {
    Dims d;
    d.resize(rank);
    for (auto& v : d) v = value;
    return d;
  }

  constexpr int64_t size() const { return rank_; }
  constexpr bool empty() const { return rank_ == 0; }
  constexpr int64_t& operator[](int64_t i) { return values_[i]; }
  constexpr int64_t operator[](int64_t i) const { return values_[i]; }
  constexpr int64_t* begin() { return values_; }
  constexpr int64_t* end() { return values_ + rank_; }
  constexpr const int64_t* begin() const { return values_; }
  constexpr const int64_t* end() const { return values_ + rank_; }
  constexpr int64_t* data() { return values_; }
  constexpr const int64_t* data() const { return values_; }
  constexpr int64_t back() const { return values_[rank_ - 1]; }
  constexpr void resize(int64_t rank) {
    if (rank > kMaxRank || rank < 0) fail_rank(rank);
    rank_ = rank;
  }
  constexpr void push_back(int64_t v) {
    resize(rank_ + 1);
    values_[rank_ - 1] = v;
  }
  constexpr void insert(int64_t at, int64_t v) {
    resize(rank_ + 1);
    for (int64_t i = rank_ - 1; i > at; --i) values_[i] = values_[i - 1];
    values_[at] = v;
  }
  constexpr void erase(int64_t at) {
    for (int64_t i = at + 1; i < rank_; ++i) values_[i - 1] = values_[i];
    --rank_;
  }
  constexpr bool contains(int64_t v) const {
    for (int64_t d : *this)
      if (d == v) return true;
    return false;
  }
  constexpr bool operator==(const Dims& o) const {
    if (rank_ != o.rank_) return false;
    for (int64_t i = 0; i < rank_; ++i)
      if (values_[i] != o.values_[i]) return false;
    return true;
  }
  std::vector<int64_t> vec() const { return {begin(), end()}; }
  /// "(2, 3)", "(4,)", "()"
  std::string str() const;

 private:
  constexpr void assign(const int64_t* from, int64_t n) {
    resize(n);
    for (int64_t i = 0; i < n; ++i) values_[i] = from[i];
  }
  int64_t rank_ = 0;
  int64_t values_[kMaxRank];  // only the first rank_ are set
};
using Shape = Dims;
using Strides = Dims;

/// The product, 1 for rank 0. Sizes are those of a tensor that exists: no overflow.
constexpr int64_t numel_of(const Dims& shape) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return n;
}
constexpr Strides contiguous_strides(const Shape& shape) {
  Strides s;
  s.resize(shape.size());
  int64_t step = 1;
  for (int64_t i = shape.size(); i-- > 0;) s[i] = step, step *= shape[i] > 1 ? shape[i] : 1;
  return s;
}
/// True when elements lie in row-major order without gaps; extents of 1 do not count. For shapes without a 0.
constexpr bool is_contiguous(const Shape& shape, const Strides& strides) {
  int64_t step = 1;
  for (int64_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

}  // namespace tapir::inline v0
