// Writing and combining elements at given places; masks; positions in the flattened tensor.
#include <cmath>

#include "case.h"

namespace op_cases {

static int64_t whole(double v) { return int64_t(v); }
/// f(element of y at the place that index i names along dim, element i of source).
static Array scattered(Array y, int64_t dim, const Array& index, const Array& source, const std::function<void(double& to, double from)>& f) {
  Dims i = Dims::filled(index.shape.size(), 0);
  if (!index.v.empty()) do {
      Dims to = i;
      if (!to.empty()) to[dim] = whole(index.at(i));
      f(y.at(to), source.at(i));
    } while (next(i, index.shape));
  return y;
}
static void assign(double& to, double from) { to = from; }
static Array filled(Array x, double value) { return x.v.assign(x.v.size(), value), x; }
static double larger(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b); }

/// What elements that meet at one place become.
static Array reduced(const Array& x, int64_t dim, const Array& index, const Array& source, const std::string& how, bool include_self) {
  Array y = x, count = filled(x, include_self);
  if (!include_self)
    y = scattered(y, dim, index, source, [&](double& to, double) { to = how == "prod" ? 1 : how == "amax" ? -INFINITY : how == "amin" ? INFINITY : 0; });
  count = scattered(count, dim, index, source, [](double& to, double) { ++to; });
  y = scattered(y, dim, index, source, [&](double& to, double from) {
    to = how == "prod" ? to * from : how == "amax" ? larger(to, from) : how == "amin" ? -larger(-to, -from) : to + from;
  });
  for (size_t i = 0; how == "mean" && i < y.v.size(); ++i) y.v[i] /= std::max(count.v[i], 1.0);
  return y;
}

static void scatters(Table& table) {
  const char* sets = "(4) (3) (3) | (1,4) (1,3) (1,5) | (2,3) (2,0) (2,0)";
  const auto last = [](const Arrays& x) { return x[0].shape.size() - 1; };
  CASE(scatter, scatter(x[0], -1, x[1], x[2]))
      .of(kAll)
      .no_expand()
      .in({kAny, labels(4), kAny})
      .on(sets)
      .EXPECT(scattered(x[0], last(x), x[1], x[2], assign))
      .TWIN(scatter_, -1, x[1], x[2]);
  CASE(scatter, scatter(x[0], -1, x[1], 1))
      .of(kAll)
      .in({kAny, labels(4)})
      .on("(4) (3) | (2,4) (2,4) | () ()")
      .in({kAny, {.low = 0, .high = 1, .dtype = kInt64}})
      .EXPECT(scattered(x[0], last(x), x[1], filled(x[1], 1), assign))
      .TWIN(scatter_, -1, x[1], 1);
  CASE(scatter, scatter(x[0], 1, x[1], x[2], "add"))
      .of(kNumbers)
      .in({kAny, labels(3), kAny})
      .on("(2,3) (2,5) (2,5)")
      .within(8)
      .EXPECT(scattered(x[0], 1, x[1], x[2], [](double& to, double from) { to += from; }))
      .TWIN(scatter_, 1, x[1], x[2], "add");
  CASE(scatter, scatter(x[0], 1, x[1], x[2], "multiply"))
      .of(kFloats)
      .in({kNonzero, labels(3), kNonzero})
      .on("(2,3) (2,3) (2,3)")
      .within(16)
      .EXPECT(scattered(x[0], 1, x[1], x[2], [](double& to, double from) { to *= from; }))
      .TWIN(scatter_, 1, x[1], x[2], "multiply");
  for (const char* how : {"sum", "prod", "mean", "amax", "amin"})
    for (const bool own : {true, false}) {
      const DTypes set = std::string(how) == "mean" || std::string(how) == "prod" ? kFloats : kNumbers;
      CASE(scatter_reduce, scatter_reduce(x[0], 1, x[1], x[2], how, {own}))
          .of(set)
          .in({kNonzero, labels(3), kNonzero})
          .finite_only()
          .on("(2,3) (2,4) (2,4) | (2,3,2) (1,5,2) (2,5,2)")
          .within(32)
          .EXPECT(reduced(x[0], 1, x[1], x[2], how, own))
          .TWIN(scatter_reduce_, 1, x[1], x[2], how, {own});
      if (std::string(how) == "sum") continue;
      CASE(index_reduce, index_reduce(x[0], 1, x[1], x[2], how, {own}))
          .of(set)
          .in({kNonzero, labels(3), kNonzero})
          .finite_only()
          .on("(2,3) (4) (2,4)")
          .within(32)
          .expect([=](const Arrays& x) { return reduced(x[0], 1, make(x[2].shape, [&](const Dims& i) { return x[1].v[size_t(i[1])]; }), x[2], how, own); })
          .TWIN(index_reduce_, 1, x[1], x[2], how, {own});
    }
}

static void slices(Table& table) {
  const auto written = [](int64_t dim, double alpha, bool add) {
    return [=](const Arrays& x) {
      const Array index = make(x[2].shape, [&](const Dims& i) { return x[1].v[size_t(i.empty() ? 0 : i[dim])]; });
      return scattered(x[0], dim, index, x[2], [=](double& to, double from) { to = (add ? to : 0) + alpha * from; });
    };
  };
  CASE(index_add, index_add(x[0], 1, x[1], x[2]))
      .of(kAll)
      .in({kAny, labels(3), kAny})
      .on("(2,3,4) (5) (2,5,4) | (2,3) (0) (2,0) | (0,3) (2) (0,2)")
      .within(8)
      .expect(written(1, 1, true))
      .TWIN(index_add_, 1, x[1], x[2]);
  CASE(index_add, index_add(x[0], 0, x[1], x[2], -2))
      .of(kFloats)
      .in({kAny, labels(3), kAny})
      .on("(3,4) (5) (5,4) | (3) () (1)")
      .within(8)
      .expect(written(0, -2, true))
      .TWIN(index_add_, 0, x[1], x[2], -2);
  CASE(index_copy, index_copy(x[0], 1, x[1], x[2]))
      .of(kAll)
      .no_expand()
      .in({kAny, labels(3), kAny})
      .on("(2,3,4) (2) (2,2,4) | (2,3) (0) (2,0)")
      .expect(written(1, 1, false))
      .TWIN(index_copy_, 1, x[1], x[2]);
  CASE(index_copy, index_copy(x[0], 0, x[1], x[2]))
      .of(kAll)
      .in({kAny, {.low = 0, .high = 1, .dtype = kInt64}, kAny})
      .on("() (1) ()")
      .EXPECT(x[2])
      .TWIN(index_copy_, 0, x[1], x[2]);
  CASE(index_fill, index_fill(x[0], -1, x[1], 1))
      .of(kAll)
      .in({kAny, labels(3)})
      .on("(2,3) (2) | (4,3) () | (0,3) (1)")
      .expect([](const Arrays& x) {
        return make(x[0].shape, [&](const Dims& i) { return std::count(x[1].v.begin(), x[1].v.end(), double(i.back())) ? 1 : x[0].at(i); });
      })
      .TWIN(index_fill_, -1, x[1], 1);
  CASE(index_fill, index_fill(x[0], 0, sub(x[1], 3), x[2]))
      .of(kFloats)
      .no_expand()
      .in({kAny, labels(3), kAny})
      .on("(3,2) (2) ()")
      .expect([](const Arrays& x) {
        return make(x[0].shape, [&](const Dims& i) { return std::count(x[1].v.begin(), x[1].v.end(), double(i[0])) ? x[2].v[0] : x[0].at(i); });
      })
      .TWIN(index_fill_, 0, sub(x[1], 3), x[2]);
}

static void masks(Table& table) {
  CASE(masked_select, masked_select(x[0], x[1]))
      .of(kAll)
      .in({kAny, kMask})
      .on("(2,3,4) (2,3,4) | (2,3,4) (4) | (3) (2,1) | () () | (0,3) (0,3)")
      .expect([](const Arrays& x) {
        const Shape shape = broadcast(x[0].shape, x[1].shape);
        Array y(Shape{0});
        make(shape, [&](const Dims& i) { return broadcast_at(x[1], i) ? y.v.push_back(broadcast_at(x[0], i)), 0 : 0; });
        return y.shape = int64_t(y.v.size()), y;
      });
  const auto spread = [](const Arrays& x) {
    size_t next_one = 0;
    return make(x[0].shape, [&](const Dims& i) { return broadcast_at(x[1], i) ? x[2].v[next_one++] : x[0].at(i); });
  };
  CASE(masked_scatter, masked_scatter(x[0], x[1], x[2]))
      .of(kAll)
      .in({kAny, kMask, kAny})
      .no_expand()
      .on("(2,3) (2,3) (7) | (2,3) (3) (2,4) | () () (2) | (0,3) (0,3) (0)")
      .expect(spread)
      .TWIN(masked_scatter_, x[1], x[2]);
}

static void flat(Table& table) {
  CASE(take, take(x[0], x[1])).of(kAll).in({kAny, labels(6)}).on("(2,3) (4,2) | (6) () | (3,2) (0)").expect([](const Arrays& x) {
    return make(x[1].shape, [&](const Dims& i) { return x[0].v[size_t(x[1].at(i))]; });
  });
  CASE(take, take(x[0], sub(x[1], 6))).of(kFloats).in({kAny, labels(6)}).on("(2,3) (5)").expect([](const Arrays& x) {
    return make(x[1].shape, [&](const Dims& i) { return x[0].v[size_t(x[1].at(i))]; });
  });
  for (const bool add : {false, true})
    CASE(put, put(x[0], x[1], x[2], add))
        .of(add ? kNumbers : kAll)
        .no_expand()
        .in({kAny, labels(6), kAny})
        .on("(2,3) (4) (2,2) | (6) () (1) | (2,3) (0) (0)")
        .within(8)
        .expect([add](const Arrays& x) {
          Array y = x[0];
          for (size_t k = 0; k < x[1].v.size(); ++k) y.v[size_t(x[1].v[k])] = (add ? y.v[size_t(x[1].v[k])] : 0) + x[2].v[k];
          return y;
        })
        .TWIN(put_, x[1], x[2], add);
  CASE(take_along_dim, take_along_dim(x[0], x[1], 1))
      .of(kAll)
      .in({kAny, labels(3)})
      .on("(2,3,4) (1,2,1) | (1,3) (2,5) | (2,3) (2,0)")
      .expect([](const Arrays& x) {
        Shape a = x[0].shape, shape = x[1].shape;
        for (int64_t d = 0; d < a.size(); ++d) shape[d] = d == 1 ? shape[d] : std::max(a[d], shape[d]);
        return make(shape, [&](Dims i) {
          i[1] = whole(broadcast_at(x[1], i));
          return broadcast_at(x[0], i);
        });
      });
  CASE(take_along_dim, take_along_dim(x[0], x[1])).of(kAll).in({kAny, labels(6)}).on("(2,3) (2,2)").expect([](const Arrays& x) {
    return make({4}, [&](const Dims& i) { return x[0].v[size_t(x[1].v[size_t(i[0])])]; });
  });
  CASE(argwhere, argwhere(x[0])).of(kBools).gives(Gives::Int64).on("(5) | (0)").expect([](const Arrays& x) {
    Array y(Shape{0, 1});
    for (size_t i = 0; i < x[0].v.size(); ++i)
      if (x[0].v[i]) y.v.push_back(double(i)), ++y.shape[0];
    return y;
  });
  CASE(unravel_index, unravel_index(x[0], {2, 3, 4})).in({labels(24)}).gives(Gives::Int64).on("(7) | () | (2,0)").expect([](const Arrays& x) {
    Arrays y{x[0], x[0], x[0]};
    for (size_t i = 0; i < x[0].v.size(); ++i) {
      const int64_t at = whole(x[0].v[i]);
      y[0].v[i] = double(at / 12), y[1].v[i] = double(at / 4 % 3), y[2].v[i] = double(at % 4);
    }
    return y;
  });
}

void places_cases(Table& table) {
  scatters(table);
  slices(table);
  masks(table);
  flat(table);
}

}  // namespace op_cases
