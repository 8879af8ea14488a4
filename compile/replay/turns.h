#pragma once
// Note [Results that come back]
// A graph has one place for an argument and one for a result, so that both are copied. Where a loop gives a program its own results, as decoding
// gives it the last token, that is two copies for nothing. Such a program then has several sets of results, and a graph for each way from one
// to another: a run takes a set that nobody holds, and an argument that lies in another is read there. Few small results only, for sets stay.
#include <cstdint>
#include <span>
#include <vector>

#include "../../core/tensor.h"

namespace tapir::inline v0::ir {

class Turns {
 public:
  /// For a run with these arguments, which else are copied, and results of so many bytes each.
  void choose(Device device, std::span<const Tensor* const> arguments, std::span<const int64_t> results);
  /// Of a graph; 0: that of copies.
  size_t number() const { return now_; }
  /// Is argument i read where it lies?
  bool reads(size_t i) const { return now_ > 0 && turns_[now_ - 1].arguments[i]; }
  /// Where result i goes; null: it is copied.
  StoragePtr result(size_t i) const { return now_ > 0 ? sets_[turns_[now_ - 1].set][i] : StoragePtr(); }
  /// The caller has got that copy of a result.
  void hand_out(const Storage* copy) { handed_out_.push_back(copy); }
  void clear();

 private:
  struct Turn {
    std::vector<const void*> arguments;  // null: copied
    size_t set;
    bool operator==(const Turn&) const = default;
  };
  bool in_set(const Tensor& x) const;
  /// The number of a set that nobody holds; that of none where all are held.
  size_t free_set(Device device, std::span<const int64_t> bytes);

  std::vector<std::vector<StoragePtr>> sets_;
  std::vector<Turn> turns_;
  std::vector<const Storage*> handed_out_;  // by the last run; compared, never read
  bool come_back_ = false;                  // results have been arguments
  size_t now_ = 0;
};

}  // namespace tapir::inline v0::ir
