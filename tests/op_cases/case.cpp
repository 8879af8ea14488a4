#include "case.h"

namespace op_cases {

size_t Array::place(const Dims& i) const {
  int64_t at = 0;
  for (int64_t d = 0; d < shape.size(); ++d) at = at * shape[d] + i[d];
  return size_t(at);
}

bool next(Dims& index, const Shape& shape) {
  for (int64_t d = shape.size(); d-- > 0; index[d] = 0)
    if (++index[d] < shape[d]) return true;
  return false;
}

Array make(const Shape& shape, const std::function<double(const Dims&)>& element) {
  Array y(shape);
  Dims index = Dims::filled(shape.size(), 0);
  if (!y.v.empty()) do
      y.at(index) = element(index);
    while (next(index, shape));
  return y;
}

double broadcast_at(const Array& a, const Dims& index) {
  const int64_t skip = index.size() - a.shape.size();
  int64_t at = 0;
  for (int64_t d = 0; d < a.shape.size(); ++d) at = at * a.shape[d] + (a.shape[d] == 1 ? 0 : index[d + skip]);
  return a.v[size_t(at)];
}

Shape broadcast(const Shape& a, const Shape& b) {
  Shape y = a.size() < b.size() ? b : a;
  const Shape& less = a.size() < b.size() ? a : b;
  for (int64_t d = 1; d <= less.size(); ++d)
    if (int64_t& n = y[y.size() - d]; n == 1) n = less[less.size() - d];
  return y;
}

Arrays fold(const Array& x, const Dims& dims, bool keepdim, const std::function<std::vector<double>(const std::vector<double>&)>& f) {
  Shape kept, dropped, full = x.shape;
  std::vector<bool> reduced(size_t(full.size()), dims.empty());
  for (int64_t d : dims)
    if (full.size()) reduced[size_t(d < 0 ? d + full.size() : d)] = true;
  for (int64_t d = 0; d < full.size(); ++d) {
    kept.push_back(reduced[size_t(d)] ? 1 : full[d]);
    if (!reduced[size_t(d)]) dropped.push_back(full[d]);
  }
  std::vector<std::vector<double>> groups(size_t(numel_of(kept)));
  const Array places(kept);
  Dims index = Dims::filled(full.size(), 0);
  if (!x.v.empty()) do {
      Dims to = index;
      for (int64_t d = 0; d < full.size(); ++d)
        if (reduced[size_t(d)]) to[d] = 0;
      groups[places.place(to)].push_back(x.at(index));
    } while (next(index, full));
  Arrays y(f({1}).size(), Array(keepdim ? kept : dropped));
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::vector<double> numbers = f(groups[g]);
    for (size_t k = 0; k < y.size(); ++k) y[k].v[g] = numbers[k];
  }
  return y;
}

Array along(const Array& x, int64_t dim, const std::function<std::vector<double>(const std::vector<double>&)>& f) {
  Array y = x;
  if (x.shape.empty()) return y.v = f(x.v), y;
  const Strides steps = contiguous_strides(x.shape);
  const size_t n = size_t(x.shape[dim]), step = size_t(steps[dim]);
  for (size_t i = 0; i < x.v.size(); ++i) {
    if (i / step % n != 0) continue;
    std::vector<double> line;
    for (size_t k = 0; k < n; ++k) line.push_back(x.v[i + k * step]);
    line = f(line);
    for (size_t k = 0; k < n; ++k) y.v[i + k * step] = line[k];
  }
  return y;
}

/// "(2,3) (3)": digits within parentheses, one pair for each shape.
static std::vector<Shape> parse_set(std::string_view text) {
  std::vector<Shape> set;
  bool digit = false;
  for (char c : text) {
    if (c == '(') set.emplace_back();
    if (c >= '0' && c <= '9') {
      if (!digit) set.back().push_back(0);
      int64_t& n = set.back()[set.back().size() - 1];
      n = n * 10 + (c - '0');
    }
    digit = c >= '0' && c <= '9';
  }
  return set;
}
Case& Case::on(std::string_view sets) {
  for (size_t at = 0; at <= sets.size();) {
    const size_t end = std::min(sets.find('|', at), sets.size());
    shapes.push_back(parse_set(sets.substr(at, end - at)));
    at = end + 1;
  }
  return *this;
}
Case& Case::perf(std::string_view set) { return perf_shapes = parse_set(set), *this; }

Case& Table::add(std::string op, std::string text, std::function<List(const List&)> call) {
  Case& line = lines_.emplace_back();
  line.op = op.substr(op.rfind(':') + 1), line.text = std::move(text), line.call = std::move(call);
  return line;
}

/// Sets of shapes for n operands: alike, broadcast, 0-dim, nothing, rank 8, and long enough for vector loops.
static std::vector<std::vector<Shape>> pointwise_shapes(int n) {
  const Shape deep = {2, 1, 2, 1, 3, 1, 2, 2};
  if (n == 1) return {{{2, 3, 4}}, {{}}, {{0, 3}}, {deep}, {{7, 431}}};
  if (n == 2)
    return {{{2, 3, 4}, {2, 3, 4}}, {{2, 3, 4}, {3, 1}},  {{3, 1}, {2, 1, 4}},  {{}, {2, 3}},     {{2, 3}, {}}, {{}, {}},
            {{0, 3}, {1, 3}},       {deep, {3, 1, 2, 2}}, {{7, 431}, {7, 431}}, {{7, 431}, {431}}};
  return {{{2, 3, 4}, {2, 3, 4}, {2, 3, 4}}, {{2, 3, 4}, {3, 1}, {4}},   {{2, 3}, {}, {2, 3}},          {{}, {}, {}},
          {{0, 3}, {0, 3}, {0, 3}},          {deep, deep, {3, 1, 2, 2}}, {{7, 431}, {7, 431}, {7, 431}}};
}

/// The reference from the function of numbers; shapes, where the line gives none.
static void finish_pointwise(Case& c) {
  if (c.shapes.empty()) c.shapes = pointwise_shapes(c.operands);
  if (c.perf_shapes.empty()) c.perf_shapes.assign(size_t(c.operands), Shape{1024, 1024});
  c.reference = [f = c.element](const Arrays& x) {
    Shape shape = x[0].shape;
    for (const Array& a : x) shape = broadcast(shape, a.shape);
    return Arrays{make(
        shape, [&](const Dims& i) { return f(broadcast_at(x[0], i), x.size() > 1 ? broadcast_at(x[1], i) : 0, x.size() > 2 ? broadcast_at(x[2], i) : 0); })};
  };
}

/// op(x, 2) and op(3, x) beside op(x, y). A bool is promoted by a number, so it is left out.
static Case number_form(const Case& line, bool first) {
  Case c = line;
  c.text = first ? line.op + "(3, x[0])" : line.op + "(x[0], 2)";
  c.call = [f = line.pair, first](const List& x) { return results(first ? f(3, x[0]) : f(x[0], 2)); };
  c.element = [f = line.element, first](double a, double, double) { return first ? f(3, a, 0) : f(a, 2, 0); };
  c.operands = 1, c.dtypes &= ~kBools;
  c.values = {line.values_of(first)};
  c.twin_call = {}, c.shapes.clear(), c.perf_shapes.clear(), c.pair = {};
  return c;
}

static std::vector<Case> reduction_forms(const Case& line) {
  struct Form {
    Dims dims;
    bool keepdim;
    std::vector<Shape> shapes;
    Shape nothing;  // no elements to reduce
  };
  const Form forms[] = {{{}, false, {{2, 3, 4}, {}, {7, 431}}, {0, 3}},
                        {{0}, false, {{3, 4}, {}, {431, 7}}, {0, 3}},
                        {-1, true, {{2, 3, 4}, {0, 3}, {7, 431}}, {3, 0}},
                        {1, false, {{2, 3, 4}, {3, 2, 0}}, {3, 0, 2}},
                        {{0, -1}, true, {{2, 3, 4}, {2, 1, 2, 1, 3, 1, 2, 2}}, {0, 2, 3}},
                        {{3, 1, -2}, false, {{2, 1, 2, 3, 1, 2, 2}}, {2, 1, 1, 0, 2, 2}}};
  std::vector<Case> out;
  for (const Form& form : forms) {
    if (line.one_dim && form.dims.size() != 1) continue;
    Case c = line;
    c.text = line.op + "(x[0], " + form.dims.str() + (form.keepdim ? ", {.keepdim = true})" : ")");
    c.call = [f = line.reduce, form](const List& x) { return f(x[0], form.dims, form.keepdim); };
    c.reference = [f = line.folds, form](const Arrays& x) { return fold(x[0], form.dims, form.keepdim, f); };
    for (const Shape& s : form.shapes) c.shapes.push_back({s});
    if (line.of_nothing) c.shapes.push_back({form.nothing});
    if (form.dims.size() < 2) c.perf_shapes = {{1024, 1024}};
    out.push_back(std::move(c));
  }
  return out;
}

void Table::finish(const std::string& family) {
  for (Case& line : lines_) {
    line.family = family;
    if (line.values.empty()) line.values = {kAny};
    if (line.result == Gives::Bool || line.result == Gives::Int64 || line.result == Gives::Truth) line.differentiable = false;
    if (line.reduce) {
      for (Case& c : reduction_forms(line)) cases_.push_back(std::move(c));
      continue;
    }
    std::vector<Case> forms = {line};
    if (line.pair) forms.push_back(number_form(line, false)), forms.push_back(number_form(line, true));
    for (Case& c : forms) {
      if (c.element) finish_pointwise(c);
      cases_.push_back(std::move(c));
    }
  }
  lines_.clear();
}

Table make_table() {
  Table table;
  const std::pair<const char*, void (*)(Table&)> families[] = {
      {"pointwise", pointwise_cases}, {"function", function_cases}, {"reduction", reduction_cases}, {"scan", scan_cases},           {"shape", shape_cases},
      {"diagonal", diagonal_cases},   {"index", index_cases},       {"matmul", matmul_cases},       {"linalg", linalg_cases},       {"nn", nn_cases},
      {"loss", loss_cases},           {"create", create_cases},     {"random", random_cases},       {"rearrange", rearrange_cases}, {"order", order_cases},
      {"places", places_cases},       {"quantize", quantize_cases}};
  for (auto& [name, fill] : families) fill(table), table.finish(name);
  return table;
}

}  // namespace op_cases
