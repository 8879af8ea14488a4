#include "value.h"

#include <algorithm>
#include <charconv>

#include "../core/checks.h"

namespace tapir::inline v0::io {

namespace {

constexpr int kMaxDepth = 200;

void flatten(const Value& value, const std::string& name, StateDict& out, int depth) {
  using Kind = Value::Kind;
  check(depth < kMaxDepth, "[to_state_dict] expected at most {} levels, got more below \"{}\"", kMaxDepth, name);
  const auto number = [&](const void* at, DType dtype) { out.append(name, tensor_from_host(at, dtype, {}, {})); };
  const std::string prefix = name.empty() ? "" : name + ".";
  switch (value.kind()) {
    case Kind::Tensor: return out.append(name, value.to_tensor());
    case Kind::Bool: {
      const bool v = value.to_bool();
      return number(&v, kBool);
    }
    case Kind::Int: {
      const int64_t v = value.to_int();
      return number(&v, kInt64);
    }
    case Kind::Float: {
      const double v = value.to_double();
      return number(&v, kFloat64);
    }
    case Kind::BigInt:
      fail(ErrorKind::Value,
           "[to_state_dict] expected integers that int64 can hold, got {} under \"{}\": convert the part that holds "
           "the tensors",
           value.decimal(), name);
    case Kind::List:
    case Kind::Tuple:
      for (size_t i = 0; i < value.size(); ++i) flatten(value.items()[i], prefix + std::to_string(i), out, depth + 1);
      return;
    case Kind::Dict:
      for (size_t i = 0; i < value.size(); ++i) {
        const Value& key = value.keys()[i];
        const bool text = key.kind() == Kind::Text, integer = key.kind() == Kind::Int;
        check(text || integer, "[to_state_dict] expected keys that are texts or integers, got {} in \"{}\"",
              key.kind_name(), name);
        flatten(value.items()[i], prefix + (text ? key.to_text() : key.decimal()), out, depth + 1);
      }
      return;
    default: return;
  }
}

}  // namespace

Value::Value(Kind kind, std::vector<Value> items) : kind_(kind), items_(std::move(items)) {
  for (const Value& item : items_) hold(item);
}
/// Deeper ones would not be let go of without a deep stack.
void Value::hold(const Value& item) {
  constexpr int kMostLevels = 1000;
  check(item.depth_ < kMostLevels, "[Value] expected at most {} levels of lists, tuples and dicts, got more",
        kMostLevels);
  depth_ = std::max(depth_, item.depth_ + 1);
}

Value::Value(const StateDict& state) : kind_(Kind::Dict) {
  for (const auto& [name, tensor] : state) {
    check(tensor.defined(), "[Value] expected defined tensors, got an undefined one as \"{}\"", name);
    append(name, tensor.detach());
  }
}

Value Value::dict(std::initializer_list<Item> items) {
  Value out = dict();
  for (const auto& [key, value] : items) out.append(key, value);
  return out;
}

Value Value::bytes(std::string_view v) {
  Value out(v);
  out.kind_ = Kind::Bytes;
  return out;
}

Value Value::big_int(std::string_view bytes) {
  Value out(bytes);
  out.kind_ = Kind::BigInt;
  return out;
}

Value Value::big_int(uint64_t v) {
  std::string bytes(9, '\0');
  for (int i = 0; i < 8; ++i) bytes[size_t(i)] = char(v >> 8 * i);
  return big_int(bytes);
}

const char* Value::kind_name() const {
  constexpr const char* names[] = {"None",  "a bool",  "an integer", "a large integer", "a float", "a text",
                                   "bytes", "a dtype", "a tensor",   "a list",          "a tuple", "a dict"};
  return names[int(kind_)];
}

const Value& Value::need(Kind kind) const {
  Value wanted;
  wanted.kind_ = kind;
  check(kind_ == kind, "[Value] expected {}, got {}", wanted.kind_name(), kind_name());
  return *this;
}

double Value::to_double() const {
  if (kind_ == Kind::Int || kind_ == Kind::Bool) return double(integer_);
  return need(Kind::Float).number_;
}

const std::string& Value::to_text() const { return kind_ == Kind::Bytes ? text_ : need(Kind::Text).text_; }

const std::vector<Value>& Value::items() const {
  check(kind_ >= Kind::List, "[Value] expected a list, a tuple or a dict, got {}", kind_name());
  return items_;
}

std::string Value::decimal() const {
  if (kind_ == Kind::Int) return std::to_string(integer_);
  std::string bytes = big_bytes();
  constexpr size_t kMostBytes = 4096;  // digits take the square of the time
  check(bytes.size() <= kMostBytes, "[Value] expected an integer of at most {} bytes to write in digits, got {}",
        int64_t(kMostBytes), int64_t(bytes.size()));
  const bool negative = !bytes.empty() && (bytes.back() & 0x80);
  if (negative) {  // ~x + 1
    unsigned carry = 1;
    for (char& c : bytes) carry += uint8_t(~c), c = char(carry), carry >>= 8;
  }
  std::string digits;
  while (!bytes.empty()) {
    unsigned rest = 0;
    for (size_t i = bytes.size(); i-- > 0;)
      rest = rest << 8 | uint8_t(bytes[i]), bytes[i] = char(rest / 10), rest %= 10;
    digits += char('0' + rest);
    while (!bytes.empty() && bytes.back() == 0) bytes.pop_back();
  }
  if (digits.empty()) digits = "0";
  if (negative) digits += '-';
  return {digits.rbegin(), digits.rend()};
}

const Value* Value::find(std::string_view key) const {
  need(Kind::Dict);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
  const bool digits = error == std::errc() && end == key.data() + key.size();
  const Value* found = nullptr;  // under the integer, where no text follows
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i].kind_ == Kind::Text && keys_[i].text_ == key) return &items_[i];
    if (!found && digits && keys_[i].kind_ == Kind::Int && keys_[i].integer_ == number) found = &items_[i];
  }
  return found;
}

const Value& Value::operator[](std::string_view key) const {
  const Value* found = find(key);
  check(found != nullptr, "[Value] expected a dict with the key \"{}\", found none among {} keys", key,
        int64_t(size()));
  return *found;
}

const Value& Value::operator[](int64_t i) const {
  if (kind_ == Kind::Dict) return (*this)[std::string_view(std::to_string(i))];
  check(kind_ == Kind::List || kind_ == Kind::Tuple, "[Value] expected a list, a tuple or a dict, got {}", kind_name());
  check(i >= 0 && i < int64_t(size()), "[Value] expected an index below {}, got {}", int64_t(size()), i);
  return items_[size_t(i)];
}

void Value::append(Value key, Value value) {
  need(Kind::Dict);
  hold(key), hold(value);
  keys_.push_back(std::move(key));
  items_.push_back(std::move(value));
}

void Value::set(std::string_view key, Value value) {
  if (const Value* found = find(key)) hold(value), items_[size_t(found - items_.data())] = std::move(value);
  else append(key, std::move(value));
}

void Value::push_back(Value item) {
  check(kind_ == Kind::List || kind_ == Kind::Tuple, "[Value] expected a list or a tuple, got {}", kind_name());
  hold(item);
  items_.push_back(std::move(item));
}

StateDict to_state_dict(const Value& value) {
  check(value.kind() >= Value::Kind::List, "[to_state_dict] expected a dict or a list, got {}", value.kind_name());
  StateDict out;
  flatten(value, "", out, 0);
  check_names("to_state_dict", out);  // of the keys 1 and "1", and of "a.b" beside "a" with "b" in it
  return out;
}

}  // namespace tapir::inline v0::io
