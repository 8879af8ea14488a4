// Diagonals and triangles of matrices.
#include <algorithm>
#include <cstdlib>

#include "case.h"

namespace op_cases {

/// f(row, column, x's element) in place of each element of the matrices of the last two dimensions.
static Array each_place(const Array& x, const std::function<double(int64_t, int64_t, double)>& f) {
  return make(x.shape, [&](const Dims& i) { return f(i[i.size() - 2], i.back(), x.at(i)); });
}
/// Diagonal k of matrices.
static Array diagonal_of(const Array& x, int64_t k) {
  Shape shape = x.shape;
  const int64_t rank = shape.size(), rows = shape[rank - 2], columns = shape[rank - 1];
  shape.resize(rank - 1);
  shape[rank - 2] = std::max<int64_t>(0, std::min(rows + std::min<int64_t>(k, 0), columns - std::max<int64_t>(k, 0)));
  return make(shape, [&](Dims i) {
    const int64_t at = i.back();
    i[i.size() - 1] = at - std::min<int64_t>(k, 0);
    i.push_back(at + std::max<int64_t>(k, 0));
    return x.at(i);
  });
}
static Array matrix_with(const Array& x, int64_t k) {
  Shape shape = x.shape;
  const int64_t n = shape.back() + std::abs(k);
  shape[shape.size() - 1] = n, shape.push_back(n);
  return make(shape, [&](Dims i) {
    const int64_t column = i.back(), row = i[i.size() - 2];
    i.resize(i.size() - 1);
    i[i.size() - 1] = std::min(row, column);
    return column - row == k ? x.at(i) : 0;
  });
}

void diagonal_cases(Table& table) {
  for (int64_t k : {0, 1, -2, 9}) {
    CASE(diagonal, diagonal(x[0], k, -2, -1)).of(kAll).on("(4,3) | (2,3,4) | (0,3)").views().EXPECT(diagonal_of(x[0], k));
    CASE(tril, tril(x[0], k))
        .of(kAll)
        .on("(4,3) | (2,3,4) | (0,3) | (3,0) | (1,5) | (5,1) | (2,1,2,1,3,1,2,2)")
        .EXPECT(each_place(x[0], [=](int64_t r, int64_t c, double v) { return c - r <= k ? v : 0; }));
    CASE(tril, tril(x[0], k)).of(kAll).no_expand().on("(4,3) | (2,3,4)").TWIN(tril_, k);  // may be expanded
    CASE(triu, triu(x[0], k))
        .of(kAll)
        .on("(4,3) | (2,3,4) | (0,3) | (3,0) | (1,5) | (5,1) | (2,1,2,1,3,1,2,2)")
        .EXPECT(each_place(x[0], [=](int64_t r, int64_t c, double v) { return c - r >= k ? v : 0; }));
    CASE(triu, triu(x[0], k)).of(kAll).no_expand().on("(4,3) | (2,3,4)").TWIN(triu_, k);
    CASE(diagonal_scatter, diagonal_scatter(x[0], full_like(diagonal(x[0], k), 2), k))
        .of(kAll)
        .on("(4,3) | (3,3)")
        .EXPECT(each_place(x[0], [=](int64_t r, int64_t c, double v) { return c - r == k ? 2 : v; }));
  }
  CASE(diagonal, diagonal(x[0])).of(kAll).on("(4,3,2)").views().expect([](const Arrays& x) {
    return make({2, 3}, [&](const Dims& i) { return x[0].at({i[1], i[1], i[0]}); });
  });
  CASE(diagonal_scatter, diagonal_scatter(x[0], x[1])).of(kNumbers).on("(4,3) (3)").EXPECT(each_place(x[0], [&](int64_t r, int64_t c, double v) {
    return c == r ? x[1].v[size_t(r)] : v;
  }));
  for (int64_t k : {0, 2, -1}) {
    CASE(diag, diag(x[0], k)).of(kAll).on("(3) | (0)").EXPECT(matrix_with(x[0], k));
    CASE(diag, diag(x[0], k)).of(kAll).on("(4,3)").EXPECT(diagonal_of(x[0], k));
    CASE(diag_embed, diag_embed(x[0], k)).of(kAll).on("(3) | (2,3) | (2,0)").EXPECT(matrix_with(x[0], k));
  }
  CASE(trace, trace(x[0])).of(kAll).gives(Gives::Sums).on("(4,3) | (2,5) | (0,3)").within(8).expect([](const Arrays& x) {
    Array y(Shape{});
    for (double v : diagonal_of(x[0], 0).v) y.v[0] += v;
    return y;
  });
  const auto places = [](int64_t rows, int64_t columns, std::function<bool(int64_t)> in) {
    return [=](const Arrays&) {
      Array y(Shape{2, 0});
      for (int64_t d : {0, 1})
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < columns; ++c)
            if (in(c - r)) y.v.push_back(double(d ? c : r));
      return y.shape = {2, int64_t(y.v.size()) / 2}, y;
    };
  };
  CASE(tril_indices, tril_indices(3, 4, 1)).gives(Gives::Int64).on("(1)").no_gradient().expect(places(3, 4, [](int64_t d) { return d <= 1; }));
  CASE(triu_indices, triu_indices(4, 3, -1)).gives(Gives::Int64).on("(1)").no_gradient().expect(places(4, 3, [](int64_t d) { return d >= -1; }));
  CASE(block_diag, block_diag({x[0], x[1], x[2]})).of(kAll).on("(2,3) (2) ()").expect([](const Arrays& x) {
    Array y(Shape{4, 6});
    for (int64_t i = 0; i < 6; ++i) y.at({i / 3, i % 3}) = x[0].v[size_t(i)];
    return y.at({2, 3}) = x[1].v[0], y.at({2, 4}) = x[1].v[1], y.at({3, 5}) = x[2].v[0], y;
  });
}

}  // namespace op_cases
