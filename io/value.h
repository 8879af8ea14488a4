#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/state_dict.h"

namespace tapir::inline v0::io {

/// What a .pt file holds: nothing, numbers, texts, dtypes, tensors, and lists, tuples and dicts of them. Copies share
/// the tensors' memory.
/// They stand in one another up to 1,000 levels; ValueError for more.
///     Value::dict({{"epoch", 3}, {"model", net.state_dict()}, {"rates", Value::list({0.1, 0.01})}})
class Value {
 public:
  enum class Kind : uint8_t { None, Bool, Int, BigInt, Float, Text, Bytes, DType, Tensor, List, Tuple, Dict };
  struct Item;

  Value() = default;
  template <std::integral Int> Value(Int v)
      : kind_(std::same_as<Int, bool> ? Kind::Bool : Kind::Int), integer_(int64_t(v)) {
    if (std::unsigned_integral<Int> && sizeof(Int) == 8 && integer_ < 0) *this = big_int(uint64_t(v));
  }
  Value(double v) : kind_(Kind::Float), number_(v) {}
  Value(std::string_view v) : kind_(Kind::Text), text_(v) {}
  Value(const std::string& v) : Value(std::string_view(v)) {}
  Value(const char* v) : Value(std::string_view(v)) {}
  Value(tapir::DType v) : kind_(Kind::DType), integer_(int64_t(v)) {}
  Value(tapir::Tensor v) : kind_(Kind::Tensor), tensor_(std::move(v)) {}
  Value(const Indexed& v) : Value(v.value()) {}
  /// A dict of the tensors, without their history.
  Value(const StateDict& state);
  static Value list(std::vector<Value> items) { return Value(Kind::List, std::move(items)); }
  static Value tuple(std::vector<Value> items) { return Value(Kind::Tuple, std::move(items)); }
  static Value dict() { return Value(Kind::Dict, {}); }
  static Value dict(std::initializer_list<Item> items);
  static Value bytes(std::string_view v);
  /// An integer beyond int64, two's complement, little-endian.
  static Value big_int(std::string_view bytes);
  static Value big_int(uint64_t v);

  Kind kind() const { return kind_; }
  bool is_none() const { return kind_ == Kind::None; }
  /// "a tensor", "a dict", ...
  const char* kind_name() const;

  // What it is; ValueError for another kind.
  bool to_bool() const { return need(Kind::Bool).integer_ != 0; }
  int64_t to_int() const { return need(Kind::Int).integer_; }
  /// A float, an integer or a bool.
  double to_double() const;
  /// A text, or bytes.
  const std::string& to_text() const;
  tapir::DType to_dtype() const { return tapir::DType(need(Kind::DType).integer_); }
  const tapir::Tensor& to_tensor() const { return need(Kind::Tensor).tensor_; }
  /// An integer of any size in decimal digits.
  std::string decimal() const;
  /// The bytes of an integer beyond int64.
  const std::string& big_bytes() const { return need(Kind::BigInt).text_; }
  /// The elements of a list or tuple, or the values of a dict, in order.
  const std::vector<Value>& items() const;
  /// The keys of a dict, in order.
  const std::vector<Value>& keys() const { return need(Kind::Dict).keys_; }

  size_t size() const { return items_.size(); }
  /// The value of a dict under that text or else, in digits, that integer; null when there is none.
  const Value* find(std::string_view key) const;
  /// The same; ValueError when there is none.
  const Value& operator[](std::string_view key) const;
  const Value& operator[](const char* key) const { return (*this)[std::string_view(key)]; }
  /// Element i of a list or tuple, or the value of a dict under the integer i.
  const Value& operator[](int64_t i) const;
  const Value& operator[](int i) const { return (*this)[int64_t(i)]; }
  /// Adds to a dict under a key that is known to be new.
  void append(Value key, Value value);
  /// Adds to a dict, or replaces the value under that text.
  void set(std::string_view key, Value value);
  void push_back(Value item);

 private:
  Value(Kind kind, std::vector<Value> items);
  const Value& need(Kind kind) const;
  void hold(const Value& item);
  Kind kind_ = Kind::None;
  int depth_ = 0;  // levels of lists, tuples and dicts in this one
  union {
    int64_t integer_ = 0;
    double number_;
  };
  std::string text_;
  tapir::Tensor tensor_;
  std::vector<Value> keys_, items_;
};

/// An entry of dict({{key, value}, ...}). Entries of other types are refused one by one, so that the error says which.
struct Value::Item {
  Value key, value;
  Item(Value key, Value value) : key(std::move(key)), value(std::move(value)) {}
  template <class K, class V>
  requires(!std::convertible_to<const K&, Value> || !std::convertible_to<const V&, Value>) Item(const K&, const V&) {
    static_assert(std::convertible_to<const K&, Value>, "this key of a dict is no Value: a text, a number or a bool");
    static_assert(std::convertible_to<const V&, Value>,
                  "the value under this key is no Value: a number, text, dtype, tensor, StateDict, Value::list, ...");
  }
};

/// The tensors and numbers of a dict as one StateDict: what lies deeper has a dotted name ("state.0.exp_avg"), a number
/// becomes a 0-dim tensor; texts, dtypes and None are left out. ValueError for what is no dict or list, integers beyond int64, and two items of
/// one name.
StateDict to_state_dict(const Value& value);

}  // namespace tapir::inline v0::io
