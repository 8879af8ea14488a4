// The one case table for operations. A line gives an op, its shapes, dtypes and options; four modes read it (modes.h):
//   UNARY(exp, std::exp(a)).of(kAll).gives(Gives::Floats).TWIN(exp_);
//   CASE(cumsum, cumsum(x[0], 1)).of(kAll).gives(Gives::Sums).on("(2,3,4) | (0,3)").EXPECT(...).TWIN(cumsum_, 1);
// Layouts, sizes of 0, non-finite values and all dtypes are made by the table. A line without a reference of its own
// (EACH, REDUCTION, EXPECT, must) is compared with the op on contiguous float64 alone; `op_cases --list` says which they are.
#pragma once
#include <tapir/ops/ops.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace op_cases {
using namespace tapir;

using List = std::vector<Tensor>;

/// A set of dtypes, a bit for each.
using DTypes = uint32_t;
constexpr DTypes set_of(std::initializer_list<DType> list) {
  DTypes bits = 0;
  for (DType t : list) bits |= 1u << int(t);
  return bits;
}
constexpr bool contains(DTypes set, DType t) { return set >> int(t) & 1; }
inline constexpr DTypes kFloats = set_of({kFloat32, kFloat64, kFloat16, kBFloat16}), kInts = set_of({kInt64, kInt32, kInt16, kInt8, kUInt8}),
                        kNumbers = kFloats | kInts, kBools = set_of({kBool}), kAll = kNumbers | kBools;

/// The dtype of the result, where that of the inputs is given.
enum class Gives {
  Same,    // it
  Floats,  // it, float32 for integers and bool
  Sums,    // it, int64 for integers and bool
  Bool,
  Truth,  // bool, uint8 for uint8
  Int64,
  Other  // not checked
};

/// Numbers on the host, row-major: what references work on.
struct Array {
  Shape shape;
  std::vector<double> v;
  explicit Array(const Shape& shape = {}, double value = 0) : shape(shape), v(size_t(numel_of(shape)), value) {}
  size_t place(const Dims& i) const;
  double& at(const Dims& i) { return v[place(i)]; }
  double at(const Dims& i) const { return v[place(i)]; }
};
using Arrays = std::vector<Array>;

/// The next index in row-major order; false after the last.
bool next(Dims& index, const Shape& shape);
/// An array from its elements.
Array make(const Shape& shape, const std::function<double(const Dims& index)>& element);
/// a's element at an index of a shape that it broadcasts to.
double broadcast_at(const Array& a, const Dims& index);
Shape broadcast(const Shape& a, const Shape& b);
/// f of all elements along dims (all when empty), in row-major order; one array for each number that f gives.
using Fold = std::vector<double> (*)(const std::vector<double>& v);
Arrays fold(const Array& x, const Dims& dims, bool keepdim, const std::function<std::vector<double>(const std::vector<double>&)>& f);
/// The vectors along dim, each replaced by f of it, of the same length.
Array along(const Array& x, int64_t dim, const std::function<std::vector<double>(const std::vector<double>&)>& f);

/// How an input is filled: distinct numbers in (low, high), in random order, none on a kink of round, abs, ...
struct Values {
  double low = -3, high = 3.1;
  std::optional<DType> dtype = {};  // none: the case's
  bool nonzero = false;
  bool constant = false;  // no gradient is wanted
};
inline const Values kAny = {}, kPositive = {.low = 0.2, .high = 3.3}, kUnit = {.low = -0.93, .high = 0.96}, kProbability = {.low = 0.05, .high = 0.97},
                    kNonzero = {.nonzero = true}, kMask = {.dtype = kBool}, kConstant = {.low = 0.3, .high = 2, .constant = true};
/// Integers in [0, n), distinct where there are no more than n.
inline Values labels(int64_t n) { return {.low = 0, .high = double(n), .dtype = kInt64}; }

/// May a result share memory with an input: never, it must, or it depends.
enum class Shares { Never, Always, Maybe };

struct Case {
  std::string op, text, family;
  std::function<List(const List& x)> call;
  std::string twin_name;
  std::function<Tensor*(Tensor& self, const List& x)> twin_call;  // in place; self is x[0]
  std::vector<std::vector<Shape>> shapes;                         // sets of shapes of the inputs
  std::vector<Shape> perf_shapes;
  std::vector<Values> values;  // of each input; the last one also of those after it
  DTypes dtypes = kFloats;
  Gives result = Gives::Same;
  Shares shares = Shares::Never;
  double ulps = 4;
  bool differentiable = true, second_order = true, nonfinite = true, expands = true, mutates = false;
  bool reshapes = false;        // the twin gives its handle another geometry
  bool adds_elsewhere = false;  // the twin adds the old value at another place of the sum, which rounds otherwise
  std::function<Arrays(const Arrays&)> reference;
  std::function<std::string(const List& x, const Tensor& y)> property;  // instead of a reference: what is wrong with y

  // Forms that finish() turns into the members above.
  int operands = 0;  // of a pointwise op
  std::function<double(double a, double b, double c)> element;
  std::function<Tensor(const Operand& a, const Operand& b)> pair;
  std::function<List(const Tensor& x, const Dims& dims, bool keepdim)> reduce;
  Fold folds = nullptr;
  bool one_dim = false;    // the reduction takes exactly one dimension
  bool of_nothing = true;  // the reduction has a value for no elements

  /// Sets of shapes of the inputs: on("(2,3) (3) | (0,3) (3)").
  Case& on(std::string_view sets);
  /// The set that --mode perf takes.
  Case& perf(std::string_view set);
  Case& in(std::vector<Values> v) { return values = std::move(v), *this; }
  Case& of(DTypes set) { return dtypes = set, *this; }
  Case& gives(Gives r) { return result = r, *this; }
  Case& within(double n) { return ulps = n, *this; }
  /// The independent reference: of the inputs' numbers, in double.
  Case& expect(std::function<Arrays(const Arrays&)> f) { return reference = std::move(f), *this; }
  Case& expect(std::function<Array(const Arrays&)> f) {
    return expect([f = std::move(f)](const Arrays& x) { return Arrays{f(x)}; });
  }
  Case& must(std::function<std::string(const List&, const Tensor&)> f) { return property = std::move(f), *this; }
  Case& each(int n, std::function<double(double, double, double)> f) { return operands = n, element = std::move(f), *this; }
  Case& twin(std::string name, std::function<Tensor*(Tensor&, const List&)> f) { return twin_name = std::move(name), twin_call = std::move(f), *this; }
  Case& views(Shares s = Shares::Always) { return shares = s, *this; }
  Case& new_geometry() { return reshapes = true, *this; }
  Case& twin_adds_elsewhere() { return adds_elsewhere = true, *this; }
  Case& no_gradient() { return differentiable = false, *this; }
  Case& first_order_only() { return second_order = false, *this; }
  Case& finite_only() { return nonfinite = false, *this; }
  Case& no_expand() { return expands = false, *this; }
  Case& writes_inputs() { return mutates = true, *this; }
  Case& not_of_nothing() { return of_nothing = false, *this; }
  const Values& values_of(size_t input) const { return values[std::min(input, values.size() - 1)]; }
};

class Table {
 public:
  Case& add(std::string op, std::string text, std::function<List(const List&)> call);
  /// The lines added since the last call become cases of that family.
  void finish(const std::string& family);
  const std::vector<Case>& cases() const { return cases_; }

 private:
  std::vector<Case> lines_, cases_;
};

inline List results(Tensor y) { return {std::move(y)}; }
inline List results(List y) { return y; }
inline List results(std::pair<Tensor, Tensor> y) { return {std::move(y.first), std::move(y.second)}; }

/// A copy that an op may write in place.
inline Tensor& written(Tensor&& copy) { return copy; }
/// The options that make a factory's result like x.
inline TensorOptions like(const Tensor& x) { return {.dtype = x.dtype(), .device = x.device()}; }

// CASE(op, call with x[0], x[1], ...): tools/check_layers looks for each op of ops/ as the first word of a CASE, UNARY,
// BINARY, REDUCTION or TWIN.
#define CASE(op, ...) table.add(#op, #__VA_ARGS__, [=]([[maybe_unused]] const List& x) { return results(__VA_ARGS__); })
/// The in-place twin: TWIN(add_, x[1]).
#define TWIN(op, ...) twin(#op, [=](Tensor& self, [[maybe_unused]] const List& x) -> Tensor* { return &op(self __VA_OPT__(, ) __VA_ARGS__); })
/// The reference of a pointwise op with n operands: a function of numbers a, b, c.
#define EACH(n, ...) each(n, [=]([[maybe_unused]] double a, [[maybe_unused]] double b, [[maybe_unused]] double c) -> double { return __VA_ARGS__; })
/// The reference of any other op, from the numbers of the inputs x.
#define EXPECT(...) expect([=]([[maybe_unused]] const Arrays& x) { return __VA_ARGS__; })
#define UNARY(op, ...) CASE(op, op(x[0])).EACH(1, __VA_ARGS__)
/// Two operands; also with a number for each of them.
#define BINARY(op, ...) with_numbers(CASE(op, op(x[0], x[1])).EACH(2, __VA_ARGS__), [](const Operand& a, const Operand& b) { return op(a, b); })
inline Case& with_numbers(Case& line, std::function<Tensor(const Operand&, const Operand&)> f) { return line.pair = std::move(f), line; }
/// op(x, dims, {.keepdim = k}) for several dims; the reference gives its results from the reduced elements v.
#define REDUCTION(op, ...) REDUCTION_OF(op, dims, false, __VA_ARGS__)
/// op(x, dim, {.keepdim = k}).
#define REDUCTION_DIM(op, ...) REDUCTION_OF(op, dims[0], true, __VA_ARGS__)
#define REDUCTION_OF(op, over, one, ...)                                                                                           \
  reduction(                                                                                                                       \
      table.add(#op, "", {}), one, [](const Tensor& x, const Dims& dims, bool k) { return results(op(x, over, {.keepdim = k})); }, \
      []([[maybe_unused]] const std::vector<double>& v) -> std::vector<double> { return {__VA_ARGS__}; })
inline Case& reduction(Case& line, bool one_dim, std::function<List(const Tensor&, const Dims&, bool)> f, Fold folds) {
  return line.reduce = std::move(f), line.folds = folds, line.one_dim = one_dim, line;
}

/// All lines.
Table make_table();

// The families, each in its own file.
void pointwise_cases(Table& table);
void function_cases(Table& table);
void reduction_cases(Table& table);
void scan_cases(Table& table);
void shape_cases(Table& table);
void diagonal_cases(Table& table);
void rearrange_cases(Table& table);
void order_cases(Table& table);
void places_cases(Table& table);
void index_cases(Table& table);
void matmul_cases(Table& table);
void linalg_cases(Table& table);
void nn_cases(Table& table);
void image_cases(Table&table), attention_cases(Table&table), recurrent_cases(Table&table);  // called by nn_cases
void loss_cases(Table& table);
void more_loss_cases(Table& table);  // called by loss_cases
void create_cases(Table& table);
void random_cases(Table& table);
void quantize_cases(Table& table);

}  // namespace op_cases
