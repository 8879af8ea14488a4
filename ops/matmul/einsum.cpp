// Sums of products of tensors. Note [Contractions]
// An operand is a tensor with a label for each dimension, no label twice. Labels that only one operand has and the result has not are
// summed at once; then pairs are contracted, each time the pair that makes the intermediate results smallest (greedy; Gray and Kourtis
// 2021, arXiv 2002.01935). A pair is one batched matrix product: labels of both that stay are the batch, labels of both that
// go are summed, the rest are rows and columns. Dimensions are only permuted; a copy is made where a group of several labels does not
// lie in line.
// Which operands may differ in dtype, and the dtype of the result, are what PyTorch's order gives, left to right: sums of products want
// one dtype (in an autocast region they cast), other products promote.
#include "../einsum.h"

#include <algorithm>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../diagonal.h"
#include "../front.h"
#include "../matmul.h"
#include "../reduce.h"
#include "../shape.h"

namespace tapir::inline v0 {

namespace {

using Labels = std::vector<int>;
struct Term {
  Tensor x;
  Labels labels;
};

bool has(const Labels& labels, int label) { return std::find(labels.begin(), labels.end(), label) != labels.end(); }
int64_t place(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) - labels.begin();
}
int64_t size_at(const Term& t, int label) { return t.x.shape()[place(t.labels, label)]; }
bool needed(std::span<const Term> terms, const Labels& result, int label) {
  return has(result, label) ||
         std::any_of(terms.begin(), terms.end(), [&](const Term& t) { return has(t.labels, label); });
}

/// A label twice is a diagonal: a view.
void take_diagonals(const char* op, std::string_view text, Term& t) {
  for (size_t last = 1; last < t.labels.size(); ++last) {
    const int label = t.labels[last];
    const int64_t first = place(t.labels, label), n = t.x.shape()[first], m = t.x.shape()[int64_t(last)];
    if (first == int64_t(last)) continue;
    check(n == m, "[{}] expected one size for a subscript that is repeated in a term, got {} and {} (\"{}\", {})", op,
          n, m, text, t.x);
    t.x = diagonal(t.x, 0, first, int64_t(last));
    t.labels.erase(t.labels.begin() + int64_t(last)), t.labels.erase(t.labels.begin() + first),
        t.labels.push_back(label);
    last = 0;
  }
}

/// Sums the labels that nobody else has. Integers: as sum does, or in their own dtype.
void sum_alone(Term& t, std::span<const Term> others, const Labels& result, bool keep_dtype) {
  Dims dims;
  Labels labels;
  for (size_t i = 0; i < t.labels.size(); ++i)
    if (needed(others, result, t.labels[i])) labels.push_back(t.labels[i]);
    else dims.push_back(int64_t(i));
  if (dims.empty()) return;
  t.x = keep_dtype ? sum(t.x, dims, {.dtype = t.x.dtype()}) : sum(t.x, dims);
  t.labels = std::move(labels);
}

/// t's dimensions in the order of `labels`, with extents of 1 for those it has not.
Tensor aligned(const Term& t, const Labels& labels) {
  Dims order;
  Labels missing;
  for (size_t i = 0; i < labels.size(); ++i)
    if (has(t.labels, labels[i])) order.push_back(place(t.labels, labels[i]));
    else missing.push_back(int(i));
  Tensor x = permute(t.x, order);
  for (int d : missing) x = unsqueeze(x, d);
  return x;
}

struct Group {
  Labels labels;
  int64_t numel = 1;
  void add(int label, int64_t size) { labels.push_back(label), numel *= size; }
};
/// t as (batch, first, second).
Tensor as_matrices(const Term& t, const Group& batch, const Group& first, const Group& second) {
  Dims order;
  for (const Group* g : {&batch, &first, &second})
    for (int label : g->labels) order.push_back(place(t.labels, label));
  return reshape(permute(t.x, order), {batch.numel, first.numel, second.numel});
}

Term contract(Term a, Term b, std::span<const Term> others, const Labels& result) {
  if (a.x.numel() < b.x.numel()) std::swap(a, b);  // the larger one's order counts
  Group batch, rows, summed, columns;
  for (int label : a.labels) {
    Group& g = !has(b.labels, label) ? rows : needed(others, result, label) ? batch : summed;
    g.add(label, size_at(a, label));
  }
  for (int label : b.labels)
    if (!has(a.labels, label)) columns.add(label, size_at(b, label));
  Labels labels = batch.labels;
  for (const Group* g : {&rows, &columns}) labels.insert(labels.end(), g->labels.begin(), g->labels.end());
  if (summed.labels.empty()) return {mul(aligned(a, labels), aligned(b, labels)), labels};
  const DType left = product_type(a.x.dtype(), a.x.device()), right = product_type(b.x.dtype(), b.x.device());
  if (left != right) {  // allowed where PyTorch's order, which differs, promotes
    const DType common = promote_types(left, right);
    a.x = to(a.x, common), b.x = to(b.x, common);
  }
  Shape shape;
  for (int label : labels) shape.push_back(has(a.labels, label) ? size_at(a, label) : size_at(b, label));
  const Tensor y = bmm(as_matrices(a, batch, rows, summed), as_matrices(b, batch, summed, columns));
  return {view(y, shape), labels};
}

/// How much larger the result of contracting two terms is than both.
double growth(const Term& a, const Term& b, std::span<const Term> terms, const Labels& result) {
  double size = 1;
  const auto stays = [&](int label) {
    return has(result, label) || std::any_of(terms.begin(), terms.end(), [&](const Term& t) {
             return &t != &a && &t != &b && has(t.labels, label);
           });
  };
  for (int label : a.labels)
    if (stays(label)) size *= double(size_at(a, label));
  for (int label : b.labels)
    if (!has(a.labels, label) && stays(label)) size *= double(size_at(b, label));
  return size - double(a.x.numel()) - double(b.x.numel());
}

/// The dtype that contracting the terms from left to right gives; ValueError where that sums products of two dtypes.
DType type_of(const char* op, std::span<const Term> terms, const Labels& result, const std::vector<int64_t>& sizes) {
  Labels labels = terms[0].labels;  // of what is contracted so far
  DType dtype = terms[0].x.dtype();
  for (size_t i = 1; i < terms.size(); ++i) {
    const Term& t = terms[i];
    const auto others = terms.subspan(i + 1);
    const auto stays = [&](int label) { return needed(others, result, label); };
    bool summed = false, empty = t.x.numel() == 0;
    for (int label : labels) empty |= sizes[size_t(label)] == 0, summed |= has(t.labels, label) && !stays(label);
    if (summed) {
      const DType left = product_type(dtype, t.x.device()), right = product_type(t.x.dtype(), t.x.device());
      check(left == right || empty, "[{}] expected operands of one dtype where products are summed, got {} and {}", op,
            dtype, t.x);
      dtype = right;
    } else {
      dtype = promote_types(dtype, t.x.dtype());
    }
    labels.insert(labels.end(), t.labels.begin(), t.labels.end());
    std::erase_if(labels, [&](int label) { return !stays(label); });
  }
  return dtype;
}

/// See Note [Contractions]. `text` is for messages.
Tensor contract_all(const char* op, std::string_view text, std::vector<Term> terms, const Labels& result,
                    bool keep_dtype) {
  std::vector<int64_t> sizes;
  for (Term& t : terms) {
    common_device(op, {&terms[0].x, &t.x});
    take_diagonals(op, text, t);
    for (int label : t.labels) {
      if (size_t(label) >= sizes.size()) sizes.resize(size_t(label) + 1, 1);
      int64_t& size = sizes[size_t(label)];
      const int64_t here = size_at(t, label);
      check(size == here || size == 1 || here == 1,
            "[{}] expected sizes of a subscript that fit, got {} and {} (\"{}\", {})", op, size, here, text, t.x);
      if (size == 1) size = here;
    }
  }
  const bool many = terms.size() > 1;  // a sum of one operand has a sum's dtype
  for (Term& t : terms) {              // what broadcasts is no dimension, nor what has one element to sum
    Dims single;
    Labels labels;
    for (int label : t.labels)
      if (size_at(t, label) == 1 && (sizes[size_t(label)] != 1 || (many && !has(result, label))))
        single.push_back(place(t.labels, label));
      else labels.push_back(label);
    if (!single.empty()) t = {squeeze(t.x, single), std::move(labels)};
  }
  for (size_t i = 0; i < terms.size(); ++i) {
    std::vector<Term> others = terms;
    others.erase(others.begin() + int64_t(i));
    sum_alone(terms[i], others, result, keep_dtype);
  }
  const DType dtype = type_of(op, terms, result, sizes);
  while (terms.size() > 1) {
    size_t first = 0, second = 1;
    double best = growth(terms[0], terms[1], terms, result);
    for (size_t i = 0; terms.size() > 2 && i < terms.size(); ++i)
      for (size_t j = i + 1; j < terms.size(); ++j)
        if (const double g = growth(terms[i], terms[j], terms, result); g < best) best = g, first = i, second = j;
    Term a = std::move(terms[first]), b = std::move(terms[second]);
    terms.erase(terms.begin() + int64_t(second)), terms.erase(terms.begin() + int64_t(first));
    terms.push_back(contract(std::move(a), std::move(b), terms, result));
  }
  Dims order;
  bool sorted = true;
  for (int label : result)
    sorted &= place(terms[0].labels, label) == order.size(), order.push_back(place(terms[0].labels, label));
  return to(sorted ? terms[0].x : permute(terms[0].x, order), dtype);
}

/// A parsed equation. Letters are labels 0 to 51, A-Z first; dimension d of "...", counted from the last, is label 52 + d.
class Equation {
 public:
  static constexpr int kLetters = 52, kEllipsis = -1;

  explicit Equation(std::string_view text) : text_(text) {
    const size_t arrow = text.find("->");
    explicit_ = arrow != text.npos;
    std::string_view left = text.substr(0, arrow);
    for (;;) {
      const size_t comma = left.find(',');
      terms_.push_back(parse(left.substr(0, comma)));
      if (comma == left.npos) break;
      left = left.substr(comma + 1);
    }
    if (explicit_) result_ = parse(text.substr(arrow + 2));
  }

  std::vector<Term> bind(std::span<const Tensor> operands) {
    check(operands.size() == terms_.size(), "[einsum] expected {} operands for \"{}\", got {}", int64_t(terms_.size()),
          text_, int64_t(operands.size()));
    std::vector<Term> terms;
    for (size_t i = 0; i < operands.size(); ++i) {
      const int64_t letters = int64_t(terms_[i].size()) - has(terms_[i], kEllipsis), rest = operands[i].dim() - letters;
      check(rest == 0 || (rest > 0 && has(terms_[i], kEllipsis)),
            "[einsum] expected {} dimensions for term {} of \"{}\", got {}", letters, int64_t(i), text_, operands[i]);
      if (has(terms_[i], kEllipsis)) ellipsis_ = std::max(ellipsis_, rest);
      terms.push_back({operands[i], spread(terms_[i], rest)});
    }
    return terms;
  }

  /// After bind(): the labels of the result.
  Labels result() const {
    std::vector<int> count(kLetters);
    for (const Labels& t : terms_)
      for (int label : t)
        if (label >= 0) ++count[size_t(label)];
    if (!explicit_) {
      Labels all = spread({kEllipsis}, ellipsis_);
      for (int label = 0; label < kLetters; ++label)
        if (count[size_t(label)] == 1) all.push_back(label);
      return all;
    }
    for (size_t i = 0; i < result_.size(); ++i) {
      const int label = result_[i];
      check(label == kEllipsis || count[size_t(label)] > 0,
            "[einsum] expected the subscripts of the result in an operand, got '{}' (\"{}\")", letter(label), text_);
      check(size_t(place(result_, label)) == i,
            "[einsum] expected each subscript of the result once, got '{}' twice (\"{}\")", letter(label), text_);
    }
    return spread(result_, ellipsis_);
  }

 private:
  static std::string letter(int label) { return std::string(1, char(label < 26 ? 'A' + label : 'a' + label - 26)); }
  static Labels spread(const Labels& labels, int64_t count) {
    Labels out;
    for (int label : labels)
      if (label != kEllipsis) out.push_back(label);
      else
        for (int64_t d = count; d-- > 0;) out.push_back(kLetters + int(d));
    return out;
  }
  Labels parse(std::string_view term) const {
    Labels labels;
    for (size_t i = 0; i < term.size(); ++i) {
      const char c = term[i];
      if (c == ' ') continue;
      const bool dots = term.substr(i, 3) == "..." && !has(labels, kEllipsis);
      check((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || dots,
            "[einsum] expected letters and at most one \"...\" in each term, got \"{}\" (\"{}\")", term, text_);
      labels.push_back(dots ? kEllipsis : c <= 'Z' ? c - 'A' : c - 'a' + 26);
      i += dots ? 2 : 0;
    }
    return labels;
  }

  std::string_view text_;
  std::vector<Labels> terms_;
  Labels result_;
  bool explicit_ = false;
  int64_t ellipsis_ = 0;
};

}  // namespace

Tensor einsum(std::string_view equation, std::span<const Tensor> operands) try {
  check_defined("einsum", "operands", operands);
  TAPIR_AUTOCAST(einsum, equation, operands);
  check(!operands.empty(), "[einsum] expected at least one operand for \"{}\"", equation);
  Equation parsed(equation);
  std::vector<Term> terms = parsed.bind(operands);
  return contract_all("einsum", equation, std::move(terms), parsed.result(), false);
} catch (...) {
  fail_as("einsum");
}

Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b) try {
  check_defined("tensordot", "a", a, "b", b);
  TAPIR_AUTOCAST(tensordot, a, b, dims_a, dims_b);
  check(a.dtype() == b.dtype(), "[tensordot] expected operands of one dtype, got {} and {}", a, b);
  check(dims_a.size() == dims_b.size(), "[tensordot] expected as many dimensions of both, got {} and {}", dims_a,
        dims_b);
  Labels left, right, result;
  for (int64_t d = 0; d < a.dim(); ++d) left.push_back(int(d));
  for (int64_t d = 0; d < b.dim(); ++d) right.push_back(int(kMaxRank + d));
  std::vector<bool> gone(size_t(a.dim()));
  for (int64_t i = 0; i < dims_a.size(); ++i) {
    const int64_t da = wrap_dim("tensordot", dims_a[i], a.dim()), db = wrap_dim("tensordot", dims_b[i], b.dim());
    check(a.dim() > 0 && b.dim() > 0 && !gone[size_t(da)] && right[size_t(db)] >= kMaxRank,
          "[tensordot] expected each dimension once, got {} and {}", dims_a, dims_b);
    const int64_t na = a.shape()[da], nb = b.shape()[db];
    check(na == nb || na == 1 || nb == 1,
          "[tensordot] expected contracted dimensions of one size, got {} in dim {} of {} and {} in dim {} of {}", na,
          da, a.shape(), nb, db, b.shape());
    gone[size_t(da)] = true, right[size_t(db)] = int(da);
  }
  for (int label : left)
    if (!gone[size_t(label)]) result.push_back(label);
  for (int label : right)
    if (label >= kMaxRank) result.push_back(label);
  if (modes.autocast) [[unlikely]]
    if (detail::CastScope cast(cast_rule(result.empty() ? "dot" : "mm"), a, b); cast)
      return tensordot(cast(a), cast(b), dims_a, dims_b);
  return contract_all("tensordot", "", {{a, left}, {b, right}}, result, true);
} catch (...) {
  fail_as("tensordot");
}
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims) try {
  check_defined("tensordot", "a", a, "b", b);
  TAPIR_AUTOCAST(tensordot, a, b, dims);
  check(dims >= 0 && dims <= a.dim() && dims <= b.dim(),
        "[tensordot] expected at most as many dims as both operands have, got {} for {} and {}", dims, a, b);
  Dims last, first;
  for (int64_t d = 0; d < dims; ++d) last.push_back(a.dim() - dims + d), first.push_back(d);
  return tensordot(a, b, last, first);
} catch (...) {
  fail_as("tensordot");
}

Tensor inner(const Tensor& a, const Tensor& b) try {
  check_defined("inner", "a", a, "b", b);
  if (a.dim() == 0 || b.dim() == 0) return mul(a, b);
  check(a.shape().back() == b.shape().back(), "[inner] expected last dimensions of one size, got {} and {}", a, b);
  return tensordot(a, b, Dims(-1), Dims(-1));
} catch (...) {
  fail_as("inner");
}

Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& w, const Tensor& bias) {
  check_defined("bilinear", "x1", x1, "x2", x2, "w", w);
  TAPIR_AUTOCAST(bilinear, x1, x2, w, bias);
  check(w.dim() == 3 && x1.dim() > 0 && x1.dim() == x2.dim() && x1.shape().back() == w.shape()[1] &&
            x2.shape().back() == w.shape()[2],
        "[bilinear] expected inputs (..., I) and (..., J) for a weight (O, I, J), got {}, {} and {}", x1, x2, w);
  check(x1.dtype() == x2.dtype() && x1.dtype() == w.dtype(),
        "[bilinear] expected inputs and weight of one dtype, got {}, {} and {}", x1, x2, w);
  for (int64_t d = 0; d + 1 < x1.dim(); ++d)
    check(x1.shape()[d] == x2.shape()[d], "[bilinear] expected inputs with the same leading dimensions, got {} and {}",
          x1, x2);
  const bool fits = !bias.defined() || (bias.dim() == 1 && bias.shape()[0] == w.shape()[0]);
  check(fits, "[bilinear] expected a bias of shape ({},), got {}", w.shape()[0], bias);
  const Tensor y = to(einsum("...i,...j,oij->...o", {x1, x2, w}), x1.dtype());
  return bias.defined() ? y + bias : y;
}

}  // namespace tapir::inline v0
