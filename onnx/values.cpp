#include "values.h"

#include <algorithm>

#include "../ops/cast.h"
#include "../ops/create.h"

namespace tapir::inline v0::onnx {
namespace {

using ir::View;

/// Where the view's elements begin and end in its block, in elements.
std::pair<int64_t, int64_t> range_of(const View& v) {
  const auto [low, high] = extent_of(v.shape, v.strides);
  return {v.offset + low, v.offset + high};
}
/// Does `whole` have every element that `part` reaches?
bool covers(const View& whole, const View& part) {
  const auto [a, b] = range_of(whole);
  const auto [c, d] = range_of(part);
  return whole.dtype == part.dtype && is_dense(whole.shape, whole.strides) && a <= c && d <= b;
}
bool same_elements(const View& a, const View& b) {
  if (a.dtype != b.dtype || a.offset != b.offset || a.shape != b.shape) return false;
  for (int64_t d = 0; d < a.shape.size(); ++d)
    if (a.shape[d] != 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}
/// The axes from the largest stride to the smallest.
Dims memory_order(const View& v) {
  Dims order;
  for (int64_t d = 0; d < v.shape.size(); ++d) order.push_back(d);
  if (is_contiguous(v.shape, v.strides)) return order;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return v.strides[a] > v.strides[b]; });
  return order;
}
/// `count` elements in a row.
View flat(const View& like, int64_t offset, int64_t count) {
  View v = like;
  v.offset = offset, v.shape = count, v.strides = 1;
  return v;
}

/// The position of each element in row-major order; `place` is that of the first.
std::vector<int64_t> places_of(const View& v, int64_t place) {
  std::vector<int64_t> places;
  Dims at = Dims::filled(v.shape.size(), 0);
  for (int64_t n = numel_of(v.shape); n-- > 0;) {
    places.push_back(place);
    for (int64_t d = v.shape.size(); d-- > 0;) {
      place += v.strides[d];
      if (++at[d] < v.shape[d]) break;
      place -= v.strides[d] * v.shape[d], at[d] = 0;
    }
  }
  return places;
}

}  // namespace

Value& Values::value_of(Held& h) {
  if (h.pending.defined()) b_.constant(contiguous(to(h.pending.detach(), kCPU)), h.value.name), h.pending = {};
  return h.value;
}

void Values::add(const View& at, Held held) {
  if (at.block < 0) return;
  List& list = held_[size_t(at.block)];
  std::erase_if(list, [&](const Held& old) { return same_elements(at, old.at) || covers(at, old.at); });
  list.push_back(std::move(held));
}
void Values::write(const View& at, const Value& given) {
  Value value = b_.cast(given, at.dtype);
  value = numel_of(value.shape) == numel_of(at.shape) ? b_.reshape(value, at.shape) : b_.expand(value, at.shape);
  add(at, {at, value});
}
void Values::name(const View& at, const Tensor& values, const std::string& name) {
  add(at, {at, {name, at.dtype, at.shape}, {}, values});
}
void Values::fill(const View& at, Scalar number) {
  add(at, {at, b_.expand(b_.number(number, at.dtype), at.shape), number});
}

/// Memory of the program's outside without a name, or a Constant: what it holds now becomes an initializer.
void Values::take_outside(const View& view) {
  const ir::Block& block = program_.blocks[size_t(view.block)];
  check_internal(block.kind != ir::Block::Kind::Temporary, "[onnx::save] expected {} to have been written",
                 to_string(view));
  const View whole = flat(view, 0, block.bytes / size_of(view.dtype));
  Tensor values;
  if (block.kind == ir::Block::Kind::Constant) {
    values = empty(whole.shape, {.dtype = view.dtype});
    block.values.copy(static_cast<char*>(values.data_ptr()), block.values.size());
  } else {
    ir::Memory memory(program_.blocks.size());
    memory[size_t(view.block)] = block.memory;
    values = ir::tensor_of(whole, memory).clone();
  }
  name(whole, values, b_.fresh());
}

std::optional<Value> Values::direct(const View& view) {
  if (view.kind != View::Kind::Memory || view.block < 0) return {};
  List& list = held_[size_t(view.block)];
  if (list.size() == 1 && same_elements(list[0].at, view)) return value_of(list[0]);
  return {};
}

Value Values::read(const View& view, bool broadcast) {
  if (view.kind == View::Kind::Number) return b_.number(view.number, view.dtype);
  if (view.block < 0) return b_.constant(empty(view.shape, {.dtype = view.dtype}));
  List& list = held_[size_t(view.block)];
  if (list.empty()) take_outside(view);
  const auto [low, high] = range_of(view);
  for (size_t i = list.size(); i-- > 0;) {
    const auto [a, b] = range_of(list[i].at);
    if (b <= low || high <= a) continue;
    if (same_elements(list[i].at, view)) return value_of(list[i]);
    if (!covers(list[i].at, view)) break;
    return derive(list[i], view, broadcast);
  }
  assemble(list);
  check_internal(list.size() == 1 && covers(list[0].at, view), "[onnx::save] expected {} to lie in what was written",
                 to_string(view));
  return derive(list[0], view, broadcast);
}

// ---- a block that several values were written to becomes one value ----

void Values::assemble(List& list) {
  for (Held& h : list) value_of(h);
  if (!concatenate(list) && !pad(list)) scatter(list);
}

/// Parts that follow one another along one axis without a gap, as cat() writes them: a Concat.
bool Values::concatenate(List& list) {
  std::vector<Held*> parts;
  for (Held& h : list) parts.push_back(&h);
  std::sort(parts.begin(), parts.end(), [](Held* a, Held* b) { return a->at.offset < b->at.offset; });
  const View& first = parts[0]->at;
  for (int64_t axis = 0; axis < first.shape.size(); ++axis) {
    View whole = first;
    std::vector<std::string> names{parts[0]->value.name};
    bool fits = true;
    for (size_t i = 1; i < parts.size() && fits; ++i) {
      const View& v = parts[i]->at;
      Shape shape = whole.shape;
      if (v.shape.size() == shape.size()) shape[axis] = v.shape[axis];
      fits = v.dtype == whole.dtype && v.shape == shape && v.strides == whole.strides &&
             v.offset == first.offset + whole.shape[axis] * whole.strides[axis];
      whole.shape[axis] += fits ? v.shape[axis] : 0;
      names.push_back(parts[i]->value.name);
    }
    if (!fits || parts.size() < 2 || !is_dense(whole.shape, whole.strides)) continue;
    const Value y = b_.node("Concat", names, whole.dtype, whole.shape, {{"axis", axis}});
    list = {{whole, y}};
    return true;
  }
  return false;
}

/// A value inside a block that was filled with a number, as pad() writes it: a Pad.
bool Values::pad(List& list) {
  if (list.size() != 2 || !list[0].number || list[0].at.strides != list[1].at.strides) return false;
  const View &whole = list[0].at, &box = list[1].at;
  if (!is_contiguous(whole.shape, whole.strides) || whole.dtype != box.dtype) return false;
  std::vector<int64_t> before, after;
  int64_t rest = box.offset - whole.offset;
  for (int64_t d = 0; d < whole.shape.size(); ++d) {
    before.push_back(rest / whole.strides[d]), rest %= whole.strides[d];
    after.push_back(whole.shape[d] - box.shape[d] - before.back());
    if (after.back() < 0) return false;
  }
  before.insert(before.end(), after.begin(), after.end());
  const std::string number = b_.number(*list[0].number, whole.dtype).name;
  const Value y = b_.node("Pad", {list[1].value.name, b_.extents(before), number}, whole.dtype, whole.shape);
  list = {{whole, y}};
  return true;
}

/// Anything else: each value goes into a flat one by ScatterND, in the order of writing.
void Values::scatter(List& list) {
  int64_t low = range_of(list[0].at).first, high = low;
  for (const Held& h : list) low = std::min(low, range_of(h.at).first), high = std::max(high, range_of(h.at).second);
  const View whole = flat(list[0].at, low, high - low);
  Value y;
  size_t next = 0;
  if (covers(list[0].at, whole)) y = derive(list[next++], whole, false);
  else y = b_.expand(b_.number(0, whole.dtype), whole.shape);
  for (; next < list.size(); ++next) {
    const View& v = list[next].at;
    check_internal(v.dtype == whole.dtype, "[onnx::save] expected one dtype in a block, got {}", to_string(v));
    const std::vector<int64_t> places = places_of(v, v.offset - low);
    const int64_t count = int64_t(places.size());
    const Value index = b_.constant(tensor(std::span<const int64_t>(places), {count, 1}));
    const Value part = b_.reshape(list[next].value, count);
    y = b_.node("ScatterND", {y.name, index.name, part.name}, y.dtype, y.shape);
  }
  list = {{whole, y}};
}

// ---- a view of one dense value ----

/// The view of `count` elements with these sizes and strides, where each stride divides the one before: Reshape to one axis for each stride,
/// then a Slice. On these axes the offset's digits say where the view begins. nullopt where it is no such view.
std::optional<Value> Values::by_slices(const Value& x, int64_t count, int64_t offset, const Dims& sizes,
                                       const Dims& strides) {
  Shape digits;
  std::vector<int64_t> starts, ends, axes;
  int64_t room = count;
  for (int64_t i = 0; i <= sizes.size(); ++i) {
    const int64_t stride = i < sizes.size() ? strides[i] : 1, size = i < sizes.size() ? sizes[i] : 1;
    if (i == sizes.size() && room == 1) break;
    if (room % stride || digits.size() == kMaxRank) return {};
    const int64_t extent = room / stride, start = offset / stride;
    if (start + size > extent) return {};
    if (size != extent) starts.push_back(start), ends.push_back(start + size), axes.push_back(digits.size());
    digits.push_back(extent), room = stride, offset %= stride;
  }
  Value y = b_.reshape(x, digits);
  if (axes.empty()) return y;
  for (size_t i = 0; i < axes.size(); ++i) digits[axes[i]] = ends[i] - starts[i];
  return b_.node("Slice", {y.name, b_.extents(starts), b_.extents(ends), b_.extents(axes)}, y.dtype, digits);
}

/// The axis of `from` that each axis of the view is, where the view only permutes axes. `core`: the view's shape with 1 for axes of stride 0.
static std::optional<Dims> permutation(const View& from, const View& view, const Shape& core) {
  if (from.offset != view.offset || from.shape.size() != core.size()) return {};
  Dims order;
  for (int64_t d = 0; d < core.size(); ++d)
    for (int64_t s = 0; s < core.size() && order.size() == d; ++s)
      if (!order.contains(s) && core[d] == from.shape[s] && (core[d] == 1 || view.strides[d] == from.strides[s]))
        order.push_back(s);
  if (order.size() != core.size()) return {};
  return order;
}

/// Transpose to the order in memory, Reshape and Slice, Transpose to the view's order, Reshape and Expand: those of them that are needed.
/// Where the strides do not fit a Slice, a Gather by position.
Value Values::derive(Held& from, const View& view, bool broadcast) {
  const Value source = value_of(from);
  Dims axes, sizes, strides, back;  // of the axes with more than one element, from the largest stride to the smallest
  Shape core = view.shape;
  for (int64_t d = 0; d < view.shape.size(); ++d) {
    if (view.strides[d] == 0) core[d] = 1;
    if (core[d] != 1) axes.push_back(d);
  }
  const auto finish = [&](const Value& x) {
    if (!broadcast) return b_.expand(b_.reshape(x, core), view.shape);
    Shape shape = core;
    for (int64_t d = 0; d < view.shape.size() && shape[0] == 1 && view.strides[d] == 0; ++d) shape.erase(0);
    return b_.reshape(x, shape);
  };
  if (const auto order = permutation(from.at, view, core)) return finish(b_.transpose(source, *order));
  const Dims in_order = axes;
  std::stable_sort(axes.begin(), axes.end(), [&](int64_t a, int64_t b) { return view.strides[a] > view.strides[b]; });
  for (const int64_t d : axes) sizes.push_back(core[d]), strides.push_back(view.strides[d]);
  for (const int64_t d : in_order) back.push_back(std::find(axes.begin(), axes.end(), d) - axes.begin());
  const Value memory = b_.transpose(source, memory_order(from.at));
  const int64_t count = numel_of(source.shape), offset = view.offset - range_of(from.at).first;
  if (const auto cut = by_slices(memory, count, offset, sizes, strides))
    return finish(b_.transpose(b_.reshape(*cut, sizes), back));
  View places = view;
  places.shape = core;
  const Value index = b_.constant(tensor(std::span<const int64_t>(places_of(places, offset)), core));
  return finish(b_.node("Gather", {b_.reshape(memory, count).name, index.name}, source.dtype, core, {{"axis", 0}}));
}

}  // namespace tapir::inline v0::onnx
