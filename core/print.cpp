#include "print.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

// Tensor::str() prints as PyTorch does with its default options.
namespace tapir::inline v0 {
namespace {

constexpr int64_t kPrecision = 4, kThreshold = 1000, kEdge = 3, kLineWidth = 80;

/// The elements to print, in row-major order; `shape` counts what is left of the tensor.
struct Elements {
  Shape shape;
  bool summarized = false;
  DType dtype = kFloat32;
  std::vector<double> floats;
  std::vector<int64_t> integers;
};

/// Fills `to` from a view whose long dimensions from `dim` on are still to be cut to their edges. `strides` are those of `to`.
template <class T> void read_edges(const Tensor& x, int64_t dim, T* to, const Strides& strides) {
  for (; dim < x.dim(); ++dim) {
    const int64_t n = x.shape()[dim];
    if (n <= 2 * kEdge) continue;
    Shape shape = x.shape();
    shape[dim] = kEdge;
    const int64_t tail = (n - kEdge) * x.strides()[dim];
    read_edges(alias(x, shape, x.strides(), x.storage_offset()), dim + 1, to, strides);
    return read_edges(alias(x, shape, x.strides(), x.storage_offset() + tail), dim + 1, to + kEdge * strides[dim],
                      strides);
  }
  const auto values = x.to_vector<T>();
  Dims at = Dims::filled(x.dim(), 0);
  for (const T v : values) {
    int64_t offset = 0;
    for (int64_t d = 0; d < x.dim(); ++d) offset += at[d] * strides[d];
    to[offset] = v;
    for (int64_t d = x.dim(); d-- > 0 && ++at[d] == x.shape()[d];) at[d] = 0;
  }
}

Elements read(const Tensor& x) {
  Elements e;
  e.shape = x.shape(), e.dtype = x.dtype(), e.summarized = x.numel() > kThreshold;
  if (e.summarized)
    for (int64_t& s : e.shape) s = std::min(s, 2 * kEdge);
  const auto read_into = [&](auto& values) {
    values.resize(size_t(numel_of(e.shape)));
    if (e.summarized) read_edges(x, 0, values.data(), contiguous_strides(e.shape));
    else values = x.to_vector<std::remove_reference_t<decltype(values[0])>>();
  };
  if (is_floating(x.dtype())) read_into(e.floats);
  else read_into(e.integers);
  return e;
}

std::string print_double(const char* format, double v) {
  char text[400];  // 1.8e308 has 309 digits before the point
  if (std::isnan(v)) return "nan";
  std::snprintf(text, sizeof(text), format, int(kPrecision), v);
  return text;
}

/// How all numbers of one tensor are written: integers, fixed or scientific; and in how many columns.
class Formatter {
 public:
  explicit Formatter(const Elements& e) : e_(e) {
    if (is_floating(e.dtype)) choose();
    else
      for (int64_t v : e.integers) widen(integer(v));
  }
  int64_t width() const { return int64_t(width_); }
  std::string operator()(int64_t i) const {
    const std::string s = is_floating(e_.dtype) ? number(e_.floats[size_t(i)]) : integer(e_.integers[size_t(i)]);
    return s.size() < width_ ? std::string(width_ - s.size(), ' ') + s : s;
  }

 private:
  void choose() {
    double least = 0, most = 0;
    const auto counts = [](double v) { return std::isfinite(v) && v != 0; };
    for (double v : e_.floats) {
      if (!counts(v)) continue;
      const double a = std::abs(v);
      least = least == 0 ? a : std::min(least, a);
      most = std::max(most, a);
      whole_ = whole_ && v == std::ceil(v);
    }
    if (most == 0) return;
    scientific_ = most / least > 1000. || most > 1e8 || (!whole_ && least < 1e-4);
    for (double v : e_.floats)
      if (counts(v)) widen(number(v));
  }
  void widen(const std::string& s) { width_ = std::max(width_, s.size()); }
  std::string integer(int64_t v) const { return e_.dtype == kBool ? (v ? "True" : "False") : std::to_string(v); }
  std::string number(double v) const {
    if (scientific_) return print_double("%.*e", v);
    if (!whole_) return print_double("%.*f", v);
    if (!std::isfinite(v)) return print_double("%.*f", v);
    char text[400];
    std::snprintf(text, sizeof(text), "%.0f.", v);
    return text;
  }

  const Elements& e_;
  bool whole_ = true, scientific_ = false;
  size_t width_ = 1;
};

class Printer {
 public:
  Printer(const Elements& e, const Formatter& format) : e_(e), format_(format), strides_(contiguous_strides(e.shape)) {}
  /// Dimensions from `dim` on of the part that begins at element `at`.
  std::string print(int64_t dim, int64_t at, int64_t indent, const Shape& real) const {
    if (dim == e_.shape.size()) return format_(at);
    if (dim == e_.shape.size() - 1) return row(at, indent, real[dim]);
    const int64_t n = e_.shape[dim];
    const bool cut = e_.summarized && real[dim] > 2 * kEdge;
    const std::string separator =
        "," + std::string(size_t(e_.shape.size() - dim - 1), '\n') + std::string(size_t(indent + 1), ' ');
    std::string s = "[";
    for (int64_t i = 0; i < n; ++i) {
      if (i) s += separator;
      if (cut && i == kEdge) s += "..." + separator;
      s += print(dim + 1, at + i * strides_[dim], indent + 1, real);
    }
    return s + "]";
  }

 private:
  std::string row(int64_t at, int64_t indent, int64_t real) const {
    const int64_t per_line = std::max<int64_t>(1, (kLineWidth - indent) / (format_.width() + 2));
    std::vector<std::string> items;
    for (int64_t i = 0; i < e_.shape.back(); ++i) {
      if (e_.summarized && real > 2 * kEdge && i == kEdge) items.push_back(" ...");
      items.push_back(format_(at + i));
    }
    std::string s = "[";
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) s += int64_t(i) % per_line ? ", " : ",\n" + std::string(size_t(indent + 1), ' ');
      s += items[i];
    }
    return s + "]";
  }

  const Elements& e_;
  const Formatter& format_;
  Strides strides_;
};

/// Of many short dimensions even the edges are more than a text shows.
bool is_beyond_text(const Tensor& x) {
  int64_t edges = 1;
  for (int64_t d = 0; d < x.dim() && edges <= 1 << 20; ++d) edges *= std::min(x.shape()[d], 2 * kEdge);
  return edges > 1 << 20;
}

std::vector<std::string> suffixes_of(const Tensor& x) {
  std::vector<std::string> s;
  if (!x.device().is_cpu()) s.push_back("device='" + x.device().str() + "'");
  const bool empty = x.numel() == 0;
  if ((empty && x.dim() != 1) || is_beyond_text(x)) s.push_back("size=" + x.shape().str());
  const DType t = x.dtype();
  const bool is_default = t == kFloat32 || (!empty && (t == kInt64 || t == kBool));
  if (!is_default) s.push_back("dtype=" + std::string(name_of(t)));
  if (const std::string_view name = x.grad_fn(); !name.empty()) s.push_back("grad_fn=<" + std::string(name) + ">");
  else if (x.requires_grad()) s.push_back("requires_grad=True");
  return s;
}

}  // namespace

std::string Tensor::str() const {
  if (!defined()) return "undefined";
  constexpr int64_t indent = 7;  // of "tensor("
  std::string s = "tensor(";
  if (numel() == 0) {
    s += "[]";
  } else if (is_beyond_text(*this)) {
    s += "...";
  } else {
    const Elements e = read(*this);
    s += Printer(e, Formatter(e)).print(0, 0, indent, shape());
  }
  const size_t newline = s.rfind('\n');
  int64_t column = int64_t(s.size()) - (newline == std::string::npos ? -1 : int64_t(newline)) + 1;
  for (const std::string& suffix : suffixes_of(*this)) {
    const int64_t length = int64_t(suffix.size());
    if (column + length + 2 > kLineWidth) {
      s += ",\n" + std::string(size_t(indent), ' ') + suffix;
      column = indent + length;
    } else {
      s += ", " + suffix;
      column += length + 2;
    }
  }
  return s + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << x.str(); }
std::ostream& operator<<(std::ostream& out, const Dims& x) { return out << x.str(); }
std::ostream& operator<<(std::ostream& out, Device x) { return out << x.str(); }
std::ostream& operator<<(std::ostream& out, DType x) { return out << name_of(x); }

}  // namespace tapir::inline v0
