// Choosing and writing elements by tensors of positions.
#include "case.h"

namespace op_cases {

static int64_t whole(double v) { return int64_t(v); }

static void chosen(Table& table) {
  CASE(index_select, index_select(x[0], 1, x[1]))
      .of(kAll)
      .in({kAny, labels(3)})
      .on("(2,3,4) (5) | (2,3) (0) | (0,3) (2) | (2,3,4) ()")
      .perf("(1024,1024) (1024)")
      .expect([](const Arrays& x) {
        Shape shape = x[0].shape;
        shape[1] = int64_t(x[1].v.size());
        return make(shape, [&](Dims i) { return i[1] = whole(x[1].v[size_t(i[1])]), x[0].at(i); });
      });
  CASE(gather, gather(x[0], 1, x[1]))
      .of(kAll)
      .in({kAny, labels(3)})
      .on("(2,3,4) (2,5,3) | (2,3) (0,3) | (2,3,4) (1,1,4)")
      .perf("(1024,1024) (1024,1024)")
      .expect([](const Arrays& x) { return make(x[1].shape, [&](Dims i) { return i[1] = whole(x[1].at(i)), x[0].at(i); }); });
  CASE(gather, gather(x[0], 0, x[1])).of(kAll).in({kAny, labels(1)}).on("() ()").EXPECT(x[0]);
  CASE(index, index(x[0], {x[1]})).of(kAll).in({kAny, labels(3)}).on("(3,4) (2,2) | (3) () | (3,4) (0)").perf("(1024,1024) (1024)").expect([](const Arrays& x) {
    Shape shape = x[1].shape;
    for (int64_t d = 1; d < x[0].shape.size(); ++d) shape.push_back(x[0].shape[d]);
    return make(shape, [&](const Dims& i) {
      Dims at(x[0].shape), row(x[1].shape);
      for (int64_t d = 0; d < row.size(); ++d) row[d] = i[d];
      for (int64_t d = 1; d < at.size(); ++d) at[d] = i[row.size() + d - 1];
      at[0] = whole(x[1].at(row));
      return x[0].at(at);
    });
  });
  CASE(index, index(x[0], {Tensor(), x[1], x[2]})).of(kAll).in({kAny, labels(3)}).on("(2,3,4) (2,1) (3)").expect([](const Arrays& x) {
    return make({2, 2, 3}, [&](const Dims& i) { return x[0].at({i[0], whole(x[1].v[size_t(i[1])]), whole(x[2].v[size_t(i[2])])}); });
  });
  CASE(index, index(x[0], {x[1], Tensor(), x[2]})).of(kAll).in({kAny, labels(2)}).on("(2,3,4) (5) (5)").expect([](const Arrays& x) {
    return make({5, 3}, [&](const Dims& i) { return x[0].at({whole(x[1].v[size_t(i[0])]), i[1], whole(x[2].v[size_t(i[0])])}); });
  });
  CASE(index, index(x[0], {x[1]})).of(kAll).in({kAny, kMask}).on("(2,3,4) (2,3) | (4) (4) | (0,3) (0)").expect([](const Arrays& x) {
    const size_t row = x[1].v.empty() ? 3 : x[0].v.size() / x[1].v.size();
    std::vector<double> taken;
    for (size_t k = 0; k < x[1].v.size(); ++k)
      for (size_t j = 0; j < row && x[1].v[k]; ++j) taken.push_back(x[0].v[k * row + j]);
    Shape shape = int64_t(taken.size() / row);
    for (int64_t d = x[1].shape.size(); d < x[0].shape.size(); ++d) shape.push_back(x[0].shape[d]);
    Array y(shape);
    return y.v = taken, y;
  });
  CASE(nonzero, nonzero(x[0]))
      .of(kAll)
      .gives(Gives::Int64)
      .on("(2,3,4) | () | (0,2) | (2,1,2,1,3,1,2,2)")
      .in({{.low = -0.7, .high = 0.7}})
      .expect([](const Arrays& x) {
        std::vector<double> places;
        Dims i = Dims::filled(x[0].shape.size(), 0);
        int64_t count = 0;
        if (!x[0].v.empty()) do {
            if (x[0].at(i) != 0) places.insert(places.end(), i.begin(), i.end()), ++count;
          } while (next(i, x[0].shape));
        Array y(Shape{count, x[0].shape.size()});
        return y.v = places, y;
      });
  CASE(embedding, embedding(x[1], x[0]))
      .of(kAll)
      .in({kAny, labels(5)})
      .on("(5,3) (2,4) | (5,3) () | (5,3) (0)")
      .perf("(1024,1024) (1024)")
      .expect([](const Arrays& x) {
        Shape shape = x[1].shape;
        shape.push_back(x[0].shape[1]);
        return make(shape, [&](const Dims& i) {
          Dims at = i;
          at.resize(i.size() - 1);
          return x[0].at({whole(x[1].at(at)), i.back()});
        });
      });
  // The row of padding gets no gradient, so differences would not agree.
  CASE(embedding, embedding(x[1], x[0], {.padding_idx = 1})).in({kAny, labels(5)}).on("(5,3) (4)").no_gradient();
  CASE(one_hot, one_hot(x[0], 4)).of(kInts).gives(Gives::Int64).in({{.low = 0, .high = 2.4}}).on("(2,3) | () | (0)").expect([](const Arrays& x) {
    Shape shape = x[0].shape;
    shape.push_back(4);
    return make(shape, [&](const Dims& i) {
      Dims at = i;
      at.resize(i.size() - 1);
      return double(whole(x[0].at(at)) == i.back());
    });
  });
}

static void places_written(Table& table) {
  const auto add_at = [](const Arrays& x) {
    Array y = x[0];
    Dims i = Dims::filled(x[1].shape.size(), 0);
    if (!x[1].v.empty()) do {
        Dims to = i;
        to[1] = whole(x[1].at(i));
        y.at(to) += x[2].at(i);
      } while (next(i, x[1].shape));
    return y;
  };
  CASE(scatter_add, scatter_add(x[0], 1, x[1], x[2]))
      .of(kAll)
      .in({kAny, labels(3), kAny})
      .on("(2,3,4) (2,5,3) (2,5,4) | (2,3) (2,0) (2,0) | (0,0) (0,1) (0,0)")
      .within(8)
      .expect(add_at)
      .perf("(1024,1024) (1024,1024) (1024,1024)")
      .TWIN(scatter_add_, 1, x[1], x[2]);
  const auto put = [](bool add) {
    return [add](const Arrays& x) {
      Array y = x[0];
      for (int64_t k = 0; k < x[1].shape[0]; ++k)
        for (int64_t j = 0; j < x[0].shape[1]; ++j) {
          double& to = y.at({whole(x[1].at({k})), j});
          to = (add ? to : 0) + broadcast_at(x[2], {k, j});
        }
      return y;
    };
  };
  CASE(index_put, index_put(x[0], {x[1]}, x[2]))
      .of(kAll)
      .in({kAny, labels(4), kAny})
      .no_expand()
      .on("(4,3) (3) (3,3) | (4,3) (2) () | (4,3) (0) (3)")
      .expect(put(false))
      .TWIN(index_put_, {x[1]}, x[2]);
  CASE(index_put, index_put(x[0], {x[1]}, x[2], true))
      .of(kAll)
      .in({kAny, labels(4), kAny})
      .on("(4,3) (6) (6,3) | (4,3) (6) (3)")
      .within(8)
      .expect(put(true))
      .TWIN(index_put_, {x[1]}, x[2], true);
  CASE(index_put, index_put(x[0], {x[1]}, x[2]))
      .of(kAll)
      .in({kAny, kMask, kAny})
      .on("(2,3) (2,3) ()")
      .expect([](const Arrays& x) { return make(x[0].shape, [&](const Dims& i) { return x[1].at(i) ? x[2].v[0] : x[0].at(i); }); })
      .TWIN(index_put_, {x[1]}, x[2]);
}

void index_cases(Table& table) {
  chosen(table);
  places_written(table);
}

}  // namespace op_cases
