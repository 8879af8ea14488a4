// Sorting, searching, choosing by rank. A NaN is the largest number; equal elements keep their order.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "case.h"

namespace op_cases {

using Numbers = std::vector<double>;

static bool less(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }
/// The positions of v's elements in their order.
static std::vector<size_t> order_of(const Numbers& v, bool descending = false) {
  std::vector<size_t> order(v.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return descending ? less(v[b], v[a]) : less(v[a], v[b]); });
  return order;
}
/// Lines along dim, each replaced by what f gives of it: as many numbers for every line.
static Array lines(const Array& x, int64_t dim, const std::function<Numbers(const Numbers&)>& f) {
  Shape shape = x.shape;
  const bool scalar = shape.empty();
  if (scalar) shape.push_back(1), dim = 0;
  int64_t inner = 1;
  for (int64_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  const int64_t n = shape[dim], outer = n ? int64_t(x.v.size()) / n / std::max<int64_t>(inner, 1) : 0;
  std::vector<Numbers> results;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      Numbers line;
      for (int64_t k = 0; k < n; ++k) line.push_back(x.v[size_t((o * n + k) * inner + i)]);
      results.push_back(f(line));
    }
  const int64_t m = results.empty() ? int64_t(f(Numbers(size_t(n), 0)).size()) : int64_t(results[0].size());
  shape[dim] = m;
  Array y(shape);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i)
      for (int64_t k = 0; k < m; ++k) y.v[size_t((o * m + k) * inner + i)] = results[size_t(o * inner + i)][size_t(k)];
  if (scalar && m == 1) y.shape = Shape();
  return y;
}
/// The elements, or their positions, at ranks [from, to) of each line.
static Numbers ranked(const Numbers& v, bool descending, size_t from, size_t to, bool positions) {
  const auto order = order_of(v, descending);
  Numbers y;
  for (size_t i = from; i < to; ++i) y.push_back(positions ? double(order[i]) : v[order[i]]);
  return y;
}
static size_t count_nan(const Numbers& v) {
  return size_t(std::count_if(v.begin(), v.end(), [](double a) { return std::isnan(a); }));
}
static size_t median_rank(const Numbers& v, bool skip_nan) {
  const size_t nans = count_nan(v), n = v.size();
  if (skip_nan) return n == nans ? 0 : (n - nans - 1) / 2;
  return nans ? n - nans : (n - 1) / 2;
}
static Array dropped(Array x, int64_t dim) {
  if (!x.shape.empty()) x.shape.erase(dim);
  return x;
}

static void sorts(Table& table) {
  for (const bool down : {false, true}) {
    const auto both = [down](const Arrays& x) {
      Arrays y;
      for (const bool positions : {false, true})
        y.push_back(lines(x[0], x[0].shape.size() > 1, [&](const Numbers& v) { return ranked(v, down, 0, v.size(), positions); }));
      return y;
    };
    CASE(sort, sort(x[0], x[0].dim() > 1 ? 1 : 0, {.descending = down}))
        .of(kAll)
        .gives(Gives::Other)
        .on("(2,5,3) | (7) | () | (2,0) | (0,3) | (3,1500) | (2,1,2,1,3,1,2,2)")
        .perf("(1024,1024)")
        .expect(both);
    CASE(argsort, argsort(x[0], -1, {.descending = down})).of(kAll).gives(Gives::Int64).no_gradient().on("(2,5) | ()").expect([=](const Arrays& x) {
      return both(x)[1];
    });
    CASE(topk, topk(x[0], 2, 1, {.largest = down}))
        .of(kAll)
        .gives(Gives::Other)
        .on("(2,5,3) | (2,2) | (2,431)")
        .perf("(1024,1024)")
        .expect([down](const Arrays& x) {
          Arrays y;
          for (const bool positions : {false, true}) y.push_back(lines(x[0], 1, [&](const Numbers& v) { return ranked(v, down, 0, 2, positions); }));
          return y;
        });
  }
  CASE(topk, topk(x[0], 0)).of(kAll).gives(Gives::Other).on("(3)").EXPECT(Arrays{Array(Shape{0}), Array(Shape{0})});
  CASE(topk, topk(x[0], 0)).of(kAll).gives(Gives::Other).on("()").EXPECT(Arrays{x[0], Array(Shape{})});
  CASE(msort, msort(x[0])).of(kAll).on("(5,3) | (0,3)").expect([](const Arrays& x) {
    return x[0].v.empty() ? x[0] : lines(x[0], 0, [](const Numbers& v) { return ranked(v, false, 0, v.size(), false); });
  });
}

static void ranks(Table& table) {
  const auto one = [](size_t (*rank)(const Numbers&)) {
    return [rank](const Arrays& x) {
      Arrays y;
      for (const bool positions : {false, true})
        y.push_back(dropped(lines(x[0], 1,
                                  [&](const Numbers& v) {
                                    const size_t k = rank(v);
                                    return ranked(v, false, k, k + 1, positions);
                                  }),
                            1));
      return y;
    };
  };
  const char* sets = "(2,5,3) | (2,6) | (2,1) | (0,3)";
  CASE(kthvalue, kthvalue(x[0], 1, 1)).of(kAll).gives(Gives::Other).on(sets).expect(one([](const Numbers&) -> size_t { return 0; }));
  CASE(median, median(x[0], 1)).of(kAll).gives(Gives::Other).on(sets).expect(one([](const Numbers& v) { return median_rank(v, false); }));
  CASE(nanmedian, nanmedian(x[0], 1)).of(kAll).gives(Gives::Other).on(sets).expect(one([](const Numbers& v) { return median_rank(v, true); }));
  for (const bool skip : {false, true}) {
    const auto all = [skip](const Arrays& x) {
      const size_t k = median_rank(x[0].v, skip);
      return Array(Shape{}, ranked(x[0].v, false, k, k + 1, false)[0]);
    };
    if (skip) CASE(nanmedian, nanmedian(x[0])).of(kAll).on("(2,5,3) | (4) | ()").expect(all);
    else CASE(median, median(x[0])).of(kAll).on("(2,5,3) | (4) | ()").expect(all);
  }
  CASE(mode, mode(x[0], 1)).of(kInts).in({{.low = -1.4, .high = 1.4}}).gives(Gives::Other).on("(3,9) | (2,4,3)").expect([](const Arrays& x) {
    Arrays y;
    for (const bool positions : {false, true})
      y.push_back(dropped(lines(x[0], 1,
                                [&](const Numbers& v) {
                                  size_t best = 0, most = 0;
                                  for (size_t i : order_of(v)) {
                                    const size_t n = size_t(std::count(v.begin(), v.end(), v[i]));
                                    if (n > most || (n == most && v[i] == v[best])) best = i, most = n;
                                  }
                                  return Numbers{positions ? double(best) : v[best]};
                                }),
                          1));
    return y;
  });
  const auto between = [](double q, bool skip, bool floor_only) {
    return [=](const Numbers& v) {
      const size_t nans = count_nan(v);
      if (nans && (!skip || nans == v.size())) return Numbers{NAN};
      const Numbers s = ranked(v, false, 0, v.size() - nans, false);
      const double at = q * double(s.size() - 1), low = std::floor(at), part = floor_only ? 0 : at - low;
      const double a = s[size_t(low)], b = s[size_t(std::ceil(at))];
      return Numbers{part == 0 ? a : a + part * (b - a)};
    };
  };
  const DTypes wide = set_of({kFloat32, kFloat64});
  CASE(quantile, quantile(x[0], 0.3, 1)).of(wide).on("(2,5,3) | (2,1)").finite_only().within(16).expect([=](const Arrays& x) {
    return dropped(lines(x[0], 1, between(0.3, false, false)), 1);
  });
  CASE(quantile, quantile(x[0], 0.3, 1, {.interpolation = "lower"})).of(wide).on("(2,5,3)").expect([=](const Arrays& x) {
    return dropped(lines(x[0], 1, between(0.3, false, true)), 1);
  });
  CASE(quantile, quantile(x[0], tensor({0.25, 1.0}, {.dtype = x[0].dtype(), .device = x[0].device()})))
      .of(wide)
      .on("(2,5,3) | ()")
      .finite_only()
      .within(16)
      .expect([=](const Arrays& x) {
        Array y(Shape{2});
        return y.v = {between(0.25, false, false)(x[0].v)[0], between(1, false, false)(x[0].v)[0]}, y;
      });
  CASE(nanquantile, nanquantile(x[0], 0.4, 1, {.keepdim = true, .interpolation = "lower"})).of(wide).on("(2,5,3)").expect([=](const Arrays& x) {
    return lines(x[0], 1, between(0.4, true, true));
  });
}

static void searches(Table& table) {
  const auto place = [](const Numbers& sorted, double v, bool right) {
    return double(std::count_if(sorted.begin(), sorted.end(), [&](double e) { return right ? !less(v, e) : less(e, v); }));
  };
  for (const bool right : {false, true}) {
    CASE(searchsorted, searchsorted(sort(x[0]).first, x[1], {.right = right}))
        .of(kAll)
        .gives(Gives::Int64)
        .no_gradient()
        .finite_only()
        .on("(5) (2,3) | (2,4) (2,6) | (0) (3) | (3) ()")
        .expect([=](const Arrays& x) {
          return make(x[1].shape, [&](Dims i) {
            Numbers row = x[0].v;
            if (x[0].shape.size() > 1) row = {x[0].v.begin() + i[0] * 4, x[0].v.begin() + i[0] * 4 + 4};
            return place(row, x[1].at(i), right);
          });
        });
    CASE(bucketize, bucketize(x[1], sort(x[0]).first, {.right = right}))
        .of(kNumbers)
        .gives(Gives::Int64)
        .no_gradient()
        .finite_only()
        .on("(5) (2,3) | (0) (4)")
        .expect([=](const Arrays& x) { return make(x[1].shape, [&](const Dims& i) { return place(x[0].v, x[1].at(i), right); }); });
  }
  CASE(isin, isin(x[0], x[1])).of(kAll).gives(Gives::Bool).no_gradient().on("(2,3) (4) | () (2) | (3) (0)").expect([](const Arrays& x) {
    return make(x[0].shape, [&](const Dims& i) { return double(std::count(x[1].v.begin(), x[1].v.end(), x[0].at(i)) > 0); });
  });
  const auto distinct = [](bool in_order) {
    return [in_order](const Arrays& x) {
      Numbers values = x[0].v;
      if (!in_order) std::sort(values.begin(), values.end());
      const auto runs = std::unique(values.begin(), values.end());
      values.erase(runs, values.end());
      Array y(Shape(int64_t(values.size()))), inverse(x[0].shape), counts(y.shape);
      y.v = values;
      size_t run = 0;
      for (size_t i = 0; i < x[0].v.size(); ++i) {
        run = in_order ? run + (i > 0 && x[0].v[i] != x[0].v[i - 1]) : size_t(std::lower_bound(values.begin(), values.end(), x[0].v[i]) - values.begin());
        inverse.v[i] = double(run), ++counts.v[run];
      }
      return Arrays{y, inverse, counts};
    };
  };
  const auto parts = [](Unique u) { return List{u.values, u.inverse, u.counts}; };
  CASE(unique, parts(unique(x[0], {.return_inverse = true, .return_counts = true})))
      .of(kAll)
      .gives(Gives::Other)
      .no_gradient()
      .finite_only()
      .in({{.low = -1.4, .high = 1.4}})
      .on("(2,5,3) | () | (0,3)")
      .expect(distinct(false));
  CASE(unique_consecutive, parts(unique_consecutive(x[0], {.return_inverse = true, .return_counts = true})))
      .of(kAll)
      .gives(Gives::Other)
      .no_gradient()
      .finite_only()
      .in({{.low = -1.4, .high = 1.4}})
      .on("(2,5,3) | () | (0)")
      .expect(distinct(true));
}

void order_cases(Table& table) {
  sorts(table);
  ranks(table);
  searches(table);
}

}  // namespace op_cases
