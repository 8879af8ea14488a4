#include "draw.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "run.h"

namespace ops_fuzz {

namespace {
/// No input has more elements, nor has what they broadcast to.
constexpr int64_t kMostElements = 4000;

int64_t numel_or_more(const Shape& shape) {
  int64_t n = 1;
  for (int64_t d = 0; d < shape.size(); ++d)
    n = std::min<int64_t>(n * std::max<int64_t>(shape[d], 1), int64_t(1) << 40);
  return n;
}
/// Together they could broadcast to that many.
int64_t largest(const std::vector<Input>& inputs) {
  Shape all;
  for (const Input& in : inputs) {
    while (all.size() < in.shape.size()) all.push_back(1);
    for (int64_t d = 0; d < in.shape.size(); ++d) {
      int64_t& n = all[all.size() - 1 - d];
      n = std::max(n, in.shape[in.shape.size() - 1 - d]);
    }
  }
  return numel_or_more(all);
}

Shape random_shape(Random& random) {
  const int64_t rank = random.chance(0.1) ? random.below(17) : random.below(5);
  Shape shape;
  for (int64_t d = 0; d < rank; ++d)
    shape.push_back(rank > 5 ? 1 + random.below(6) / 5 : random.chance(0.07) ? 0 : 1 + random.below(6));
  return shape;
}
void insert(Shape& shape, int64_t at, int64_t n) {
  shape.push_back(0);
  for (int64_t d = shape.size() - 1; d > at; --d) shape[d] = shape[d - 1];
  shape[at] = n;
}
void change_shape(Shape& shape, Random& random) {
  const int64_t rank = shape.size(), d = rank ? random.below(rank) : 0;
  switch (random.below(8)) {
    case 0: shape = random_shape(random); break;
    case 1:
      if (rank) shape.erase(d);
      break;
    case 2:
      if (rank < 16) insert(shape, random.below(rank + 1), random.below(4));
      break;
    case 3:
      while (shape.size() < 16 && random.chance(0.9)) insert(shape, 0, 1);
      break;
    case 4:
      if (rank) std::swap(shape[d], shape[random.below(rank)]);
      break;
    default:
      if (rank) shape[d] = random.chance(0.3) ? 0 : random.chance(0.4) ? 1 : shape[d] + random.below(5) - 2;
      if (rank) shape[d] = std::max<int64_t>(shape[d], 0);
  }
}

/// Strides in any order of the dimensions, with gaps, repeats and overlaps.
void draw_strides(Input& in, Random& random, bool overlapping) {
  const int64_t rank = in.shape.size();
  in.strides = contiguous_strides(in.shape), in.offset = 0;
  if (random.chance(0.4)) return;
  std::vector<int64_t> order(size_t(rank), 0);
  std::iota(order.begin(), order.end(), 0);
  if (random.chance(0.6))
    for (int64_t i = rank; i > 1; --i) std::swap(order[size_t(i - 1)], order[size_t(random.below(i))]);
  const double gaps = random.chance(0.5) ? 0.4 : 0, repeats = overlapping && random.chance(0.35) ? 0.4 : 0;
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    int64_t& stride = in.strides[order[i]];
    const int64_t n = std::max<int64_t>(in.shape[order[i]], 1);
    stride = step * (random.chance(gaps) ? 2 + random.below(2) : 1);
    if (random.chance(repeats)) stride = random.chance(0.7) ? 0 : std::max<int64_t>(step / 2, 1);
    step = std::max(step, stride * n);
    if (n == 1 && random.chance(0.2)) stride = random.below(9);
  }
  if (random.chance(0.4)) in.offset = random.below(5);
  if (extent_of(in) > 4 * kMostElements) in.strides = contiguous_strides(in.shape), in.offset = 0;
}
}  // namespace

static DType any_dtype(Random& random) { return DType(random.below(kNumDTypes)); }
static DType dtype_of_line(const Case& line, Random& random) {
  if (op_cases::contains(line.dtypes, kFloat64) && random.chance(0.2)) return kFloat64;
  for (;;)
    if (const DType t = any_dtype(random); op_cases::contains(line.dtypes, t)) return t;
}
static Fill draw_fill(Random& random, bool hostile) {
  if (!hostile && random.chance(0.6)) return Fill::Case;
  const Fill fills[] = {Fill::Case, Fill::Case, Fill::Small, Fill::Special, Fill::Special, Fill::Extreme, Fill::Zero};
  return fills[random.below(7)];
}

/// Inputs as the line has them; where hostile, other shapes and dtypes too.
static void draw_inputs(Call& call, Random& random, bool hostile) {
  const Case& line = *call.line;
  const std::vector<Shape>* set = &random.of(line.shapes);
  if (random.chance(0.9))  // most calls are small ones
    for (int i = 0; i < 4 && std::any_of(set->begin(), set->end(), [](const Shape& s) { return numel_of(s) > 200; });
         ++i)
      set = &random.of(line.shapes);
  const DType dtype = dtype_of_line(line, random);
  const Fill fill = draw_fill(random, hostile);
  const bool overlapping = hostile || line.expands, other_shapes = hostile && random.chance(0.7),
             grad = random.chance(0.25);
  const double other_dtypes = hostile && random.chance(0.3) ? 0.4 : 0;
  for (const Shape& shape : *set) {
    Input in{.shape = shape};
    const op_cases::Values& values = line.values_of(call.inputs.size());
    in.dtype = random.chance(other_dtypes) ? any_dtype(random) : values.dtype.value_or(dtype);
    while (other_shapes && random.chance(0.5)) change_shape(in.shape, random);
    // Indices and masks stay what they are, mostly: else no call gets anywhere.
    in.fill = values.dtype && random.chance(0.8) ? Fill::Case : fill;
    in.seed = uint32_t(random.below(100000));
    in.grad = grad && is_floating(in.dtype) && random.chance(0.7);
    call.inputs.push_back(in);
  }
  if (largest(call.inputs) > kMostElements)
    for (size_t k = 0; k < set->size(); ++k) call.inputs[k].shape = (*set)[k];
  for (Input& in : call.inputs)
    draw_strides(in, random, overlapping && (call.form != Form::Twin || random.chance(0.1)));
}

/// One tensor twice, or a view of another's memory.
static void alias_one(Call& call, Random& random) {
  if (call.inputs.size() < 2) return;
  Input& in = call.inputs[size_t(1 + random.below(int64_t(call.inputs.size()) - 1))];
  in.of = int(random.below(&in - call.inputs.data()));
  const Input& of = call.inputs[size_t(in.of)];
  if (of.kind != Kind::Own || in.kind != Kind::Own) return;
  if (random.chance(0.5)) {
    in.kind = Kind::Same, in.dtype = of.dtype;
    in.shape = of.shape, in.strides = of.strides, in.offset = of.offset;
    return;
  }
  if (random.chance(0.6)) in.shape = of.shape, in.strides = of.strides, in.offset = of.offset + random.below(kSpare);
  if (extent_of(in) <= extent_of(of) + kSpare) in.kind = Kind::View, in.dtype = of.dtype;
}
static void take_away(Call& call, Random& random) {
  Input& in = call.inputs[size_t(random.below(int64_t(call.inputs.size())))];
  const int k = int(&in - call.inputs.data());
  for (const Input& other : call.inputs)
    if ((other.kind == Kind::Same || other.kind == Kind::View) && other.of == k) return;
  in = {.kind = random.chance(0.8) ? Kind::Undefined : Kind::Moved};
}

static Argument other_argument(const Argument& constant, Random& random) {
  if (std::holds_alternative<bool>(constant)) return random.chance(0.5);
  if (std::holds_alternative<std::string>(constant)) {
    const std::vector<std::string> texts = {"",        "none", "mean",  "sum",  "prod",  "amax", "linear",
                                            "reflect", "same", "valid", "tanh", "floor", "ij",   "nearest"};
    return random.of(texts);
  }
  if (std::holds_alternative<double>(constant)) {
    const double numbers[] = {NAN,   INFINITY, -INFINITY, 0,     -0.0,   1,       -1,     0.5,  2,
                              1e308, -1e308,   5e-324,    1e-30, 0x1p63, -0x1p63, 0x1p31, 3e38, 7.5};
    return numbers[random.below(18)];
  }
  constexpr int64_t one = 1, most = std::numeric_limits<int64_t>::max();
  const int64_t numbers[] = {most,      -most - 1, most - 1,     one << 31, (one << 31) - 1, -(one << 31),
                             one << 32, one << 40, -(one << 40), one << 62, -(one << 62),    (one << 61) + 1};
  if (random.chance(0.35)) return numbers[random.below(12)];
  return random.chance(0.7) ? random.below(9) - 3 : random.below(100) - 30;
}
static void change_arguments(Call& call, Random& random) {
  const Arguments& constants = constants_of(call);
  if (constants.empty()) return;
  for (int64_t n = 1 + random.below(3); n > 0; --n) {
    auto at = constants.begin();
    std::advance(at, random.below(int64_t(constants.size())));
    call.arguments[at->first] = other_argument(at->second, random);
  }
}
/// Of the forms that have no constants in the table.
static void draw_arguments(Call& call, Random& random, bool hostile) {
  if (call.form == Form::Pair) {
    if (hostile)
      call.arguments[0] = random.chance(0.5) ? other_argument(int64_t(1), random) : other_argument(1.0, random);
    else call.arguments[0] = random.chance(0.5) ? Argument(random.below(7) + 1) : Argument(0.25 + random.unit() * 3);
    if (random.chance(0.1)) call.arguments[0] = random.chance(0.5);
    call.arguments[1] = random.chance(0.5);
  } else if (call.form == Form::Reduce) {
    const int64_t rank = std::max<int64_t>(call.inputs[0].shape.size(), 1);
    call.arguments[0] = random.chance(0.5);
    for (int64_t k = 1, n = call.line->one_dim ? 1 : random.below(rank + 1); k <= n; ++k)
      call.arguments[int(k)] =
          hostile && random.chance(0.2) ? other_argument(int64_t(1), random) : Argument(random.below(2 * rank) - rank);
  } else if (hostile && random.chance(0.5)) change_arguments(call, random);
}

Call draw(const Lines& lines, Random& random) {
  Call call;
  call.line = random.of(random.of(lines.operations()));
  if (call.line->twin_call && random.chance(0.3)) call.form = Form::Twin;
  else if (call.line->reduce && random.chance(0.6)) call.form = Form::Reduce;
  else if (call.line->pair && random.chance(0.25)) call.form = Form::Pair;
  const bool hostile = random.chance(0.5);
  draw_inputs(call, random, hostile);
  draw_arguments(call, random, hostile);
  if (random.chance(0.12)) alias_one(call, random);
  if (hostile && random.chance(0.08)) take_away(call, random);
  return call;
}

}  // namespace ops_fuzz
