#include "place.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

namespace op_cases {

static double rounded(double v, DType t) {
  return with_type(t, [v](auto zero) -> double {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) return float(T(float(v)));
    else return double(T(v));
  });
}

double wrapped(double v, DType t) {
  if (t == kBool) return v != 0;
  if (is_floating(t) || !(std::abs(v) < 0x1p62)) return v;
  return with_type(t, [v](auto zero) { return double(decltype(zero)(int64_t(v))); });
}

const char* name_of(Layout layout) {
  const char* names[] = {"contiguous", "reversed", "rotated", "step", "expand_first", "expand_last", "windows"};
  return names[int(layout)];
}

/// Strides where `order` lists the dimensions from the outermost to the innermost; `pad` counts each extent 2 n + 1.
static Strides ordered(const Shape& shape, const std::vector<int64_t>& order, bool pad) {
  Strides s = Dims::filled(shape.size(), 0);
  int64_t step = 1;
  for (size_t k = order.size(); k-- > 0;) {
    const int64_t n = shape[order[k]];
    s[order[k]] = step;
    step *= pad && n > 1 ? 2 * n + 1 : std::max<int64_t>(n, 1);
  }
  return s;
}

std::optional<Geometry> geometry(Layout layout, const Shape& shape) {
  const int64_t rank = shape.size();
  std::vector<int64_t> order(size_t(rank), 0);
  std::iota(order.begin(), order.end(), 0);
  Geometry g;
  if (layout == Layout::Reversed) {
    if (rank < 2) return {};
    std::reverse(order.begin(), order.end());
  }
  if (layout == Layout::Rotated) {  // channels last
    if (rank < 3) return {};
    std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  }
  Shape kept = shape;
  if (layout == Layout::Windows) {
    if (rank < 2 || shape[rank - 1] < 2 || shape[rank - 2] < 2 || numel_of(shape) == 0) return {};
    g.strides = ordered(shape, order, false);
    g.offset = 1;
    for (int64_t d = rank - 1; d-- > 0;) g.strides[d] = d == rank - 2 ? shape[rank - 1] / 2 : g.strides[d + 1] * shape[d + 1];
  } else if (layout == Layout::ExpandFirst || layout == Layout::ExpandLast) {
    const int64_t d = layout == Layout::ExpandFirst ? 0 : rank - 1;
    if (rank == 0 || shape[d] < 2 || (rank == 1 && d == 0 && layout == Layout::ExpandLast)) return {};
    kept[d] = 1;
    g.strides = ordered(kept, order, false);
    g.strides[d] = 0;
  } else g.strides = ordered(shape, order, layout == Layout::Step);
  if (layout == Layout::Step) {
    g.offset = rank ? 0 : 3;
    for (int64_t& s : g.strides) g.offset += s, s *= 2;
  }
  g.extent = g.offset + 1;
  for (int64_t d = 0; d < rank; ++d) g.extent += std::max<int64_t>(kept[d] - 1, 0) * g.strides[d];
  if (layout == Layout::Step) g.extent += 2;
  if (layout != Layout::Step && numel_of(shape) == 0) g.extent = 0;
  return g;
}

std::vector<Variant> variants(const std::vector<Shape>& shapes, bool expands) {
  std::vector<Variant> out;
  for (Layout l : {Layout::Contiguous, Layout::Reversed, Layout::Rotated, Layout::Step, Layout::ExpandFirst, Layout::ExpandLast, Layout::Windows}) {
    if (!expands && l > Layout::Step) continue;
    Variant v{name_of(l), {}};
    bool some = l == Layout::Contiguous;
    for (const Shape& s : shapes) {
      const bool fits = geometry(l, s).has_value();
      v.layouts.push_back(fits ? l : Layout::Contiguous);
      some |= fits;
    }
    if (some) out.push_back(std::move(v));
  }
  const Layout cycle[] = {Layout::Contiguous, Layout::Reversed, Layout::Step};
  for (size_t first = 0; first < 3 && shapes.size() > 1; ++first) {
    Variant v{"mixed" + std::to_string(first), {}};
    for (size_t k = 0; k < shapes.size(); ++k) {
      const Layout l = cycle[(k + first) % 3];
      v.layouts.push_back(geometry(l, shapes[k]) ? l : Layout::Contiguous);
    }
    out.push_back(std::move(v));
  }
  return out;
}

DType dtype_of_input(const Values& values, DType dtype) { return values.dtype.value_or(dtype); }

Array fill(const Values& values, const Shape& shape, DType case_dtype, size_t k) {
  const DType dtype = dtype_of_input(values, case_dtype);
  Array a(shape);
  const size_t n = a.v.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t(0));
  std::mt19937 random(uint32_t(17 + 31 * k + n));
  for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  const double width = values.high - values.low, middle = (values.low + values.high) / 2;
  for (size_t i = 0; i < n; ++i) {
    // Other operands are a little off, so that no two numbers are equal.
    double v = values.low + width * (double(order[i]) + 0.5 - 0.06 * double(k % 5)) / double(n);
    if (values.nonzero && std::abs(v) < 0.4) v = v < 0 ? v - 0.4 : v + 0.4;
    if (dtype == kBool) v = values.nonzero || v > middle;
    else if (!is_floating(dtype)) {
      v = values.dtype ? std::floor(v) : std::round(v);
      if (values.nonzero && v == 0) v = 1;
      if (dtype == kUInt8) v = std::abs(v);
    }
    a.v[i] = rounded(v, dtype);
  }
  return a;
}

void spoil(Array& a, size_t k) {
  const double inf = INFINITY, marks[] = {NAN, inf, -inf, 0.0};
  for (size_t j = 0; j < 4 && j < a.v.size(); ++j) a.v[(j * a.v.size() / 4 + (k ? j / 2 : 0)) % a.v.size()] = marks[(j + k) % 4];
}

Placed place(const Array& values, DType dtype, Layout layout, Device device) {
  Placed p{{}, {}, values, geometry(layout, values.shape).value()};
  const int64_t size = size_of(dtype);
  std::vector<char> storage(size_t(std::max<int64_t>(p.geometry.extent, 1) * size));
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    T* to = reinterpret_cast<T*>(storage.data());
    const auto as = [](double v) {
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) return T(float(v));
      else return T(v);
    };
    // What lies between the elements would show in a result: NaN, and an index out of range.
    for (int64_t i = 0; i < p.geometry.extent; ++i) to[i] = as(is_floating(dtype) ? NAN : 101);
    if (values.v.empty()) return;
    std::vector<const double*> first(size_t(p.geometry.extent));  // the number that lies there
    Dims index = Dims::filled(values.shape.size(), 0);
    do {
      int64_t at = p.geometry.offset;
      for (int64_t d = 0; d < index.size(); ++d) at += index[d] * p.geometry.strides[d];
      const double*& held = first[size_t(at)];
      if (!held) held = &values.v[values.place(index)];
      p.values.at(index) = *held;
      to[at] = as(*held);
    } while (next(index, values.shape));
  });
  p.base = tensor_from_host(storage.data(), dtype, p.geometry.extent, {.dtype = dtype, .device = device});
  p.view = alias(p.base, values.shape, p.geometry.strides, p.geometry.offset);
  return p;
}

Array read(const Tensor& t) {
  const Tensor host = t.device().is_cpu() ? t : t.detach().cpu();
  const Strides& strides = host.strides();
  return with_type(t.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = static_cast<const T*>(host.data_ptr());
    return make(t.shape(), [&](const Dims& index) {
      int64_t at = 0;
      for (int64_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
      return double(from[at]);
    });
  });
}

std::vector<char> bytes_of(const Tensor& base) {
  const Tensor host = base.detach().cpu();
  std::vector<char> bytes(size_t(host.numel() * size_of(host.dtype())));
  if (!bytes.empty()) std::memcpy(bytes.data(), host.data_ptr(), bytes.size());
  return bytes;
}

}  // namespace op_cases
