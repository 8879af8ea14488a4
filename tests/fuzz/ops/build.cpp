#include "build.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "../../op_cases/place.h"
#include "random.h"

namespace ops_fuzz {

using op_cases::with_type;

/// A number that the line of the table asks for.
static double number_in(const op_cases::Values& values, DType dtype, Random& random) {
  double v = values.low + (values.high - values.low) * random.unit();
  if (values.nonzero && std::abs(v) < 0.4) v = v < 0 ? v - 0.4 : v + 0.4;
  if (dtype == kBool) return values.nonzero || random.chance(0.5);
  if (is_floating(dtype)) return v;
  v = values.dtype ? std::floor(v) : std::round(v);
  if (values.nonzero && v == 0) v = 1;
  return dtype == kUInt8 ? std::abs(v) : v;
}
static double hostile_float(Fill fill, DType t, Random& random) {
  const double inf = INFINITY, tiny = t == kFloat64 ? 5e-324 : t == kFloat16 ? 0x1p-24 : 0x1p-149;
  const double most = t == kFloat64 ? std::numeric_limits<double>::max() : t == kFloat16 ? 65504 : 0x1.fep127;
  const double special[] = {NAN, inf, -inf, 0, -0.0, 0.25, -0.25, 1, -1, 0.5, 2, -3};
  const double extreme[] = {most, -most, tiny, most / 2, -tiny, 1, 0, most / 3, 1 / most, -1};
  return fill == Fill::Special ? special[random.below(12)] : extreme[random.below(10)];
}
static int64_t hostile_integer(Random& random) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  const int64_t numbers[] = {
      most, -most - 1,        -1, 0,    1, int64_t(1) << 31, -(int64_t(1) << 31), (int64_t(1) << 31) - 1, 255, 127,
      -128, int64_t(1) << 40, 2,  32767};
  return numbers[random.below(14)];
}
/// What T is made of.
template <class T> using Single = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T> static T element(const op_cases::Values& values, Fill fill, Random& random) {
  constexpr DType t = dtype_of<T>;
  if (fill == Fill::Special || fill == Fill::Extreme) {
    if constexpr (is_floating(t)) return T(Single<T>(hostile_float(fill, t, random)));
    else return T(hostile_integer(random));
  }
  const double v = fill == Fill::Zero    ? 0
                   : fill == Fill::Small ? double(random.below(5)) - 2
                                         : number_in(values, t, random);
  if constexpr (is_floating(t)) return T(Single<T>(v));
  else return T(int64_t(v));
}

/// Integers in [low, high): different ones as long as there are any, for writes to the same place have no order.
static std::vector<char> indices(const op_cases::Values& values, DType dtype, int64_t count, Random& random) {
  std::vector<int64_t> all;
  for (double v = values.low; v < values.high; ++v) all.push_back(int64_t(v));
  for (int64_t i = int64_t(all.size()); i > 1; --i) std::swap(all[size_t(i - 1)], all[size_t(random.below(i))]);
  std::vector<char> bytes(size_t(count * size_of(dtype)));
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < size_t(count); ++i) {
      const T v = T(Single<T>(all[i % all.size()]));
      std::memcpy(bytes.data() + i * sizeof(T), &v, sizeof(T));
    }
  });
  return bytes;
}

/// The numbers that the line of the table asks for where input k stands.
static const op_cases::Values& values_of(const Call& call, size_t k) {
  const auto second = call.arguments.find(1);  // of a pair: the number stands first
  return call.line->values_of(
      call.form == Form::Pair && second != call.arguments.end() && second->second == Argument(true) ? 1 : k);
}

std::vector<char> storage_of(const Call& call, size_t k) {
  const Input& in = call.inputs[k];
  const int64_t count = extent_of(in) + kSpare;
  std::vector<char> bytes(size_t(count * size_of(in.dtype)));
  Random random(in.seed);
  const op_cases::Values& values = values_of(call, k);
  if (in.fill == Fill::Case && values.dtype && is_integral(in.dtype)) return indices(values, in.dtype, count, random);
  with_type(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < count; ++i) {
      const T v = element<T>(values, in.fill, random);
      std::memcpy(bytes.data() + size_t(i) * sizeof(T), &v, sizeof(T));
    }
  });
  return bytes;
}
std::vector<char> elements_of(const Call& call, size_t k) {
  const Input& in = call.inputs[k];
  const std::vector<char> storage = storage_of(call, in.kind == Kind::View ? size_t(in.of) : k);
  const size_t size = size_t(size_of(in.dtype));
  std::vector<char> out;
  if (numel_of(in.shape) == 0) return out;
  Dims index = Dims::filled(in.shape.size(), 0);
  do {
    int64_t at = in.offset;
    for (int64_t d = 0; d < index.size(); ++d) at += index[d] * in.strides[d];
    const char* from = storage.data() + size_t(at) * size;
    out.insert(out.end(), from, from + size);
  } while (op_cases::next(index, in.shape));
  return out;
}

/// A tensor of the storage; where a gradient is wanted, a function of a leaf.
static void add_own(Built& out, const Call& call, size_t k, Device device, Layouts layouts) {
  const Input& in = call.inputs[k];
  const bool contiguous = layouts == Layouts::Contiguous, grad = in.grad && is_floating(in.dtype);
  const std::vector<char> bytes = contiguous ? elements_of(call, k) : storage_of(call, k);
  const int64_t count = contiguous ? numel_of(in.shape) : int64_t(bytes.size()) / size_of(in.dtype);
  Tensor storage = tensor_from_host(bytes.data(), in.dtype, count, {.dtype = in.dtype, .device = device});
  if (grad) {
    storage.requires_grad_();
    out.leaves[k] = storage;
    if (call.form == Form::Twin || call.line->mutates) storage = storage.mul(1);  // a leaf is not written in place
  }
  out.memory[k] = storage;
  const Strides strides = contiguous ? contiguous_strides(in.shape) : in.strides;
  const int64_t offset = contiguous ? 0 : in.offset;
  out.x[k] = grad ? as_strided(storage, in.shape, strides, offset) : alias(storage, in.shape, strides, offset);
}
static void add_shared(Built& out, const Call& call, size_t k, Device device, Layouts layouts) {
  Input in = call.inputs[k];
  const size_t of = size_t(in.of);
  if (layouts == Layouts::Contiguous) {
    Call copy = call;
    if (in.kind == Kind::Same) copy.inputs[k] = call.inputs[of];
    const std::vector<char> bytes = elements_of(copy, in.kind == Kind::Same ? of : k);
    in = copy.inputs[k];
    out.memory[k] = tensor_from_host(bytes.data(), in.dtype, numel_of(in.shape), {.dtype = in.dtype, .device = device});
    out.x[k] = alias(out.memory[k], in.shape, contiguous_strides(in.shape), 0);
  } else if (in.kind == Kind::Same) out.x[k] = out.x[of];
  else if (out.leaves[of].defined()) out.x[k] = as_strided(out.memory[of], in.shape, in.strides, in.offset);
  else out.x[k] = alias(out.memory[of], in.shape, in.strides, in.offset);
}
static void add_moved(Tensor& to, Device device) {
  to = ones({2}, {.device = device});
  const Tensor taken = std::move(to);
}

static std::vector<char> bytes_of(const Tensor& storage) {
  if (storage.device().is_cuda()) return op_cases::bytes_of(storage);
  const auto* data = static_cast<const char*>(storage.data_ptr());
  return {data, data + storage.numel() * size_of(storage.dtype())};
}
Built build(const Call& call, Device device, Layouts layouts) {
  const size_t n = call.inputs.size();
  Built out;
  out.x.resize(n), out.leaves.resize(n), out.memory.resize(n), out.before.resize(n);
  for (size_t k = 0; k < n; ++k) {
    const Kind kind = call.inputs[k].kind;
    if (kind == Kind::Own) add_own(out, call, k, device, layouts);
    if (kind == Kind::Same || kind == Kind::View) add_shared(out, call, k, device, layouts);
    if (kind == Kind::Moved) add_moved(out.x[k], device);
    if (out.memory[k].defined()) out.before[k] = bytes_of(out.memory[k]);
  }
  return out;
}

int Built::changed(int except) const {
  for (size_t k = 0; k < memory.size(); ++k)
    if (int(k) != except && memory[k].defined() && bytes_of(memory[k]) != before[k]) return int(k);
  return -1;
}

}  // namespace ops_fuzz
