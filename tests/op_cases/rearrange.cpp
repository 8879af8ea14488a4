// Elements in other places: repeated, turned, joined, and windows.
#include <algorithm>

#include "case.h"

namespace op_cases {

static int64_t mod(int64_t a, int64_t n) { return ((a % n) + n) % n; }
/// The element at from(i) for each index i of a shape.
static Array moved(const Array& x, const Shape& shape, const std::function<void(Dims&)>& from) {
  return make(shape, [&](Dims i) { return from(i), x.at(i); });
}
static Array same(const Array& x, const Shape& shape) {
  Array y = x;
  return y.shape = shape, y;
}
static Array turned(const Array& x, const Dims& order) {
  Shape shape;
  for (int64_t d : order) shape.push_back(x.shape[d]);
  return moved(x, shape, [&](Dims& i) {
    const Dims to = i;
    for (int64_t d = 0; d < order.size(); ++d) i[order[d]] = to[d];
  });
}
static Array mirrored(const Array& x, const Dims& dims) {
  return moved(x, x.shape, [&](Dims& i) {
    for (int64_t d : dims) i[d] = x.shape[d] - 1 - i[d];
  });
}
static Array rolled(const Array& x, const Dims& shifts, const Dims& dims) {
  return moved(x, x.shape, [&](Dims& i) {
    for (int64_t k = 0; k < dims.size(); ++k) i[dims[k]] = mod(i[dims[k]] - shifts[k], x.shape[dims[k]]);
  });
}
static Array tiled(const Array& x, const Shape& shape) {
  return moved(x, shape, [&](Dims& i) {
    while (i.size() > x.shape.size()) i.erase(0);
    for (int64_t d = 0; d < i.size(); ++d) i[d] %= x.shape[d];
  });
}
/// Parts start to end along dim.
static Array between(const Array& x, int64_t dim, int64_t start, int64_t end) {
  Shape shape = x.shape;
  shape[dim] = end - start;
  return moved(x, shape, [=](Dims& i) { i[dim] += start; });
}

static void views(Table& table) {
  CASE(movedim, movedim(x[0], {0, -1}, {1, 0})).of(kAll).on("(2,3,4) | (2,0,4)").views().EXPECT(turned(x[0], {2, 0, 1}));
  CASE(movedim, movedim(x[0], 0, 0)).of(kAll).on("()").views().EXPECT(x[0]);
  CASE(moveaxis, moveaxis(x[0], 2, 0)).of(kAll).on("(2,3,4)").views().EXPECT(turned(x[0], {2, 0, 1}));
  CASE(swapaxes, swapaxes(x[0], 0, -1)).of(kAll).on("(2,3,4)").views().EXPECT(turned(x[0], {2, 1, 0})).TWIN(swapaxes_, 0, -1).new_geometry();
  CASE(swapdims, swapdims(x[0], 1, 0)).of(kAll).on("(2,3,4)").views().EXPECT(turned(x[0], {1, 0, 2})).TWIN(swapdims_, 1, 0).new_geometry();
  CASE(unflatten, unflatten(x[0], 1, {2, -1})).of(kAll).on("(2,6,3) | (0,4,3)").views().expect([](const Arrays& x) {
    return same(x[0], {x[0].shape[0], 2, x[0].shape[1] / 2, 3});
  });
  CASE(ravel, ravel(x[0])).of(kAll).on("(2,3,4) | () | (0,3)").views(Shares::Maybe).EXPECT(same(x[0], int64_t(x[0].v.size())));
  CASE(view_as, view_as(contiguous(x[0]), ones({4, 6}))).of(kAll).on("(2,3,4)").views(Shares::Maybe).EXPECT(same(x[0], {4, 6}));
  CASE(reshape_as, reshape_as(x[0], ones({4, 6}))).of(kAll).on("(2,3,4)").views(Shares::Maybe).EXPECT(same(x[0], {4, 6}));
  CASE(expand_as, expand_as(x[0], ones({2, 3, 4}))).of(kAll).on("(3,1) | ()").views().EXPECT(make({2, 3, 4}, [&](const Dims& i) {
    return broadcast_at(x[0], i);
  }));
  CASE(broadcast_to, broadcast_to(x[0], {2, 3, 4})).of(kAll).on("(3,1)").views().EXPECT(make({2, 3, 4}, [&](const Dims& i) { return broadcast_at(x[0], i); }));
  CASE(broadcast_tensors, broadcast_tensors({x[0], x[1]})).of(kAll).on("(2,1) (3)").views().expect([](const Arrays& x) {
    Arrays y;
    for (const Array& a : x) y.push_back(make({2, 3}, [&](const Dims& i) { return broadcast_at(a, i); }));
    return y;
  });
  CASE(unfold, unfold(x[0], 1, 3, 2)).of(kAll).on("(2,7,3) | (2,3) | (0,4)").views().expect([](const Arrays& x) {
    Shape shape = x[0].shape;
    shape[1] = (shape[1] - 3) / 2 + 1, shape.push_back(3);
    return moved(x[0], shape, [](Dims& i) { i[1] = 2 * i[1] + i.back(), i.resize(i.size() - 1); });
  });
  CASE(unfold, unfold(x[0], 0, 2, 1)).of(kAll).on("(4) | (3,2)").views().expect([](const Arrays& x) {
    Shape shape = x[0].shape;
    shape[0] -= 1, shape.push_back(2);
    return moved(x[0], shape, [](Dims& i) { i[0] += i.back(), i.resize(i.size() - 1); });
  });
  CASE(unfold, unfold(x[0], 0, 1, 1)).of(kAll).on("()").views().EXPECT(same(x[0], 1));
  CASE(atleast_1d, atleast_1d(x[0])).of(kAll).on("() | (2)").views().EXPECT(same(x[0], x[0].shape.empty() ? Shape(1) : x[0].shape));
  CASE(atleast_2d, atleast_2d(x[0])).of(kAll).on("() | (2)").views().EXPECT(same(x[0], {1, int64_t(x[0].v.size())}));
  CASE(atleast_3d, atleast_3d(x[0])).of(kAll).on("() | (2)").views().EXPECT(same(x[0], {1, int64_t(x[0].v.size()), 1}));
  CASE(atleast_3d, atleast_3d(x[0])).of(kAll).on("(2,3)").views().EXPECT(same(x[0], {2, 3, 1}));
  CASE(tensor_split, tensor_split(x[0], 3, 1))
      .of(kAll)
      .on("(2,5)")
      .views()
      .EXPECT(Arrays{between(x[0], 1, 0, 2), between(x[0], 1, 2, 4), between(x[0], 1, 4, 5)});
  CASE(tensor_split, tensor_split(x[0], std::vector<int64_t>{1, 4, 3, 9}))
      .of(kAll)
      .on("(5,2)")
      .views()
      .EXPECT(Arrays{between(x[0], 0, 0, 1), between(x[0], 0, 1, 4), between(x[0], 0, 4, 4), between(x[0], 0, 3, 5), between(x[0], 0, 5, 5)});
  CASE(hsplit, hsplit(x[0], 2)).of(kAll).on("(3,4)").views().EXPECT(Arrays{between(x[0], 1, 0, 2), between(x[0], 1, 2, 4)});
  CASE(vsplit, vsplit(x[0], 2)).of(kAll).on("(4,3)").views().EXPECT(Arrays{between(x[0], 0, 0, 2), between(x[0], 0, 2, 4)});
  CASE(dsplit, dsplit(x[0], std::vector<int64_t>{1})).of(kAll).on("(2,2,4)").views().EXPECT(Arrays{between(x[0], 2, 0, 1), between(x[0], 2, 1, 4)});
  for (const bool xy : {false, true})
    CASE(meshgrid, meshgrid({x[0], x[1], x[2]}, xy ? "xy" : "ij")).of(kAll).on("(2) (3) () | (2) (0) (4)").views().expect([xy](const Arrays& x) {
      Shape shape;
      for (const Array& a : x) shape.push_back(int64_t(a.v.size()));
      if (xy) std::swap(shape[0], shape[1]);
      Arrays y;
      for (int64_t k = 0; k < 3; ++k) y.push_back(make(shape, [&](const Dims& i) { return x[size_t(k)].v[size_t(i[xy && k < 2 ? 1 - k : k])]; }));
      return y;
    });
}

static void turns(Table& table) {
  CASE(flip, flip(x[0], {0, -1})).of(kAll).on("(2,3,4) | (2,3) | (0,3)").perf("(1024,1024)").expect([](const Arrays& x) {
    return mirrored(x[0], {0, x[0].shape.size() - 1});
  });
  CASE(flip, flip(x[0], {})).of(kAll).on("(2,3) | ()").EXPECT(x[0]);
  CASE(flip, flip(x[0], {1, 3, 7})).of(kAll).on("(2,3,2,1,3,1,2,2)").EXPECT(mirrored(x[0], {1, 3, 7}));
  CASE(fliplr, fliplr(x[0])).of(kAll).on("(2,3,4)").EXPECT(mirrored(x[0], 1));
  CASE(flipud, flipud(x[0])).of(kAll).on("(3) | (2,3)").EXPECT(mirrored(x[0], 0));
  CASE(roll, roll(x[0], {1, -5}, {0, 1}))
      .of(kAll)
      .on("(2,3,4) | (3,4) | (0,3)")
      .perf("(1024,1024)")
      .EXPECT(x[0].v.empty() ? x[0] : rolled(x[0], {1, -5}, {0, 1}));
  CASE(roll, roll(x[0], 2)).of(kAll).on("(2,3,4) | (5) | ()").expect([](const Arrays& x) {
    return same(rolled(same(x[0], int64_t(x[0].v.size())), 2, 0), x[0].shape);
  });
  CASE(roll, roll(x[0], {1, 1}, {1, -1})).of(kAll).on("(2,5)").EXPECT(rolled(x[0], 2, 1));
  CASE(rot90, rot90(x[0])).of(kAll).on("(2,3) | (2,3,4)").EXPECT(mirrored(turned(x[0], x[0].shape.size() == 2 ? Dims{1, 0} : Dims{1, 0, 2}), 0));
  CASE(rot90, rot90(x[0], -3)).of(kAll).on("(2,3)").EXPECT(mirrored(turned(x[0], {1, 0}), 0));
  CASE(rot90, rot90(x[0], 2, {0, 2})).of(kAll).on("(2,3,4)").EXPECT(mirrored(x[0], {0, 2}));
  CASE(rot90, rot90(x[0], 3, {1, 0})).of(kAll).on("(2,3)").EXPECT(mirrored(turned(x[0], {1, 0}), 0));
  CASE(rot90, rot90(x[0], 4)).of(kAll).on("(2,3)").EXPECT(x[0]);
}

static void repeats(Table& table) {
  CASE(repeat, repeat(x[0], {2, 1, 3})).of(kAll).on("(2,4) | () | (3,1,2)").expect([](const Arrays& x) {
    Shape shape = x[0].shape;
    while (shape.size() < 3) shape.insert(0, 1);
    return tiled(x[0], {shape[0] * 2, shape[1], shape[2] * 3});
  });
  CASE(repeat, repeat(x[0], {0, 2})).of(kAll).on("(3) | (2,3)").EXPECT(Array(Shape{0, 6}));
  CASE(repeat, repeat(x[0], {2, 2, 1, 2, 1, 2, 2, 2, 2, 1})).of(kAll).on("(1,1,2,1,3,1,1,1,1,2)").EXPECT(tiled(x[0], {2, 2, 2, 2, 3, 2, 2, 2, 2, 2}));
  CASE(tile, tile(x[0], 2)).of(kAll).on("(3,2) | () | (2)").expect([](const Arrays& x) {
    Shape shape = x[0].shape.empty() ? Shape(1) : x[0].shape;
    shape[shape.size() - 1] *= 2;
    return tiled(x[0], shape);
  });
  CASE(repeat_interleave, repeat_interleave(x[0], 3, 1)).of(kAll).on("(2,3,4) | (2,0)").expect([](const Arrays& x) {
    Shape shape = x[0].shape;
    shape[1] *= 3;
    return moved(x[0], shape, [](Dims& i) { i[1] /= 3; });
  });
  CASE(repeat_interleave, repeat_interleave(x[0], 2)).of(kAll).on("(2,3) | ()").expect([](const Arrays& x) {
    return make(Shape(int64_t(x[0].v.size()) * 2), [&](const Dims& i) { return x[0].v[size_t(i[0] / 2)]; });
  });
  CASE(repeat_interleave, repeat_interleave(x[0], tensor({2, 0, 3}, {.device = x[0].device()}), -1)).of(kAll).on("(2,3)").expect([](const Arrays& x) {
    return moved(x[0], {2, 5}, [](Dims& i) { i[1] = i[1] < 2 ? 0 : 2; });
  });
  CASE(repeat_interleave, repeat_interleave(x[0])).in({labels(3)}).on("(6) | (0)").gives(Gives::Int64).expect([](const Arrays& x) {
    Array y(Shape{0});
    for (size_t i = 0; i < x[0].v.size(); ++i) y.v.insert(y.v.end(), size_t(x[0].v[i]), double(i));
    return y.shape = int64_t(y.v.size()), y;
  });
}

static void joins(Table& table) {
  const auto stacked = [](int64_t dim, Shape (*as)(const Shape&)) {
    return [=](const Arrays& x) {
      Array a = same(x[0], as(x[0].shape)), b = same(x[1], as(x[1].shape));
      Shape shape = a.shape;
      const int64_t n = shape[dim];
      shape[dim] += b.shape[dim];
      return make(shape, [&](Dims i) { return i[dim] < n ? a.at(i) : (i[dim] -= n, b.at(i)); });
    };
  };
  const auto rows = [](const Shape& s) { return s.size() < 2 ? Shape{1, numel_of(s)} : s; };
  const auto lines = [](const Shape& s) { return s.empty() ? Shape(1) : s; };
  const auto sheets = [](const Shape& s) { return s.size() < 2 ? Shape{1, numel_of(s), 1} : s.size() < 3 ? Shape{s[0], s[1], 1} : s; };
  const auto columns = [](const Shape& s) { return s.size() < 2 ? Shape{numel_of(s), 1} : s; };
  CASE(vstack, vstack({x[0], x[1]})).of(kAll).on("(3) (2,3) | () ()").expect(stacked(0, rows));
  CASE(hstack, hstack({x[0], x[1]})).of(kAll).on("(3) (2) | () (2)").expect(stacked(0, lines));
  CASE(hstack, hstack({x[0], x[1]})).of(kAll).on("(2,3) (2,1)").expect(stacked(1, lines));
  CASE(dstack, dstack({x[0], x[1]})).of(kAll).on("(3) (3) | (2,3) (2,3,2)").expect(stacked(2, sheets));
  CASE(column_stack, column_stack({x[0], x[1]})).of(kAll).on("(3) (3,2) | () ()").expect(stacked(1, columns));
  CASE(cartesian_prod, cartesian_prod({x[0], x[1]})).of(kAll).on("(2) (3)").EXPECT(make({6, 2}, [&](const Dims& i) {
    return i[1] ? x[1].v[size_t(i[0] % 3)] : x[0].v[size_t(i[0] / 3)];
  }));
  CASE(select_scatter, select_scatter(x[0], x[1], 1, -1)).of(kAll).on("(2,3,2) (2,2)").EXPECT(make(x[0].shape, [&](const Dims& i) {
    return i[1] == 2 ? x[1].at({i[0], i[2]}) : x[0].at(i);
  }));
  CASE(slice_scatter, slice_scatter(x[0], x[1], 1, 1, 9, 2)).of(kAll).on("(2,5) (2,2)").EXPECT(make(x[0].shape, [&](const Dims& i) {
    return i[1] % 2 ? x[1].at({i[0], i[1] / 2}) : x[0].at(i);
  }));
}

void rearrange_cases(Table& table) {
  views(table);
  turns(table);
  repeats(table);
  joins(table);
}

}  // namespace op_cases
