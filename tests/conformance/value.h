// One argument of a recorded call, and the calls' arguments by name.
#pragma once
#include <tapir/tapir.h>

#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace conformance {
using namespace tapir;

/// A call that cannot be made with these arguments: the case has failed, and this says why.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Value {
  enum class Kind { None, Bool, Int, Float, String, List, DType, Format, Slice, Ellipsis, Tensor } kind = Kind::None;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<Value> list;  // also start, stop, step of a slice
  tapir::DType dtype = kFloat32;
  tapir::Tensor tensor;
  bool none() const { return kind == Kind::None; }
  bool is_number() const { return kind == Kind::Bool || kind == Kind::Int || kind == Kind::Float; }
};

/// The arguments of one call. Every getter marks its argument as used: what nobody asked for is an unsupported option.
class Args {
 public:
  std::vector<Value> positional;
  std::map<std::string, Value> named;
  std::vector<std::vector<std::string>> signatures;  // parameter names in positional order

  /// The argument of that name (or of one of several), from either side; null when it was not given or is None.
  const Value* find(const std::string& name);
  bool has(const std::string& name) { return find(name) != nullptr; }
  const Value& need(const std::string& name);
  const Value* at(size_t i);  // by position alone

  Tensor tensor(const std::string& name);
  Tensor optional_tensor(const std::string& name);
  std::vector<Tensor> tensors(const std::string& name);
  int64_t integer(const std::string& name, std::optional<int64_t> otherwise = {});
  double number(const std::string& name, std::optional<double> otherwise = {});
  bool boolean(const std::string& name, bool otherwise);
  std::string text(const std::string& name, const std::string& otherwise);
  Scalar scalar(const std::string& name, std::optional<Scalar> otherwise = {});
  std::optional<Scalar> optional_scalar(const std::string& name);
  std::optional<DType> dtype(const std::string& name = "dtype");
  Dims dims(const std::string& name, const Dims& otherwise = {});
  MemoryFormat format(MemoryFormat otherwise);
  /// A tensor or a number.
  Operand operand(const std::string& name);
  /// Throws Refused when an argument was given that nobody asked for.
  void check_all_used() const;
  /// Every tensor among the arguments by its path ("args.0", "args.0.1", "kwargs.weight").
  std::vector<std::pair<std::string, Tensor*>> paths();
  std::vector<Value> items(const std::string& name) { return need(name).list; }
  void use_all() { everything_ = true; }

 private:
  std::set<std::string> used_;
  std::set<size_t> used_positions_;
  bool everything_ = false;
};

Scalar scalar_of(const Value& v);
Dims dims_of(const Value& v);

}  // namespace conformance
