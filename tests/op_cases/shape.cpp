// Views, slices, joins: the same numbers in other places.
#include "case.h"

namespace op_cases {

/// x's numbers, in their order, in another shape.
static Array reshaped(Array x, const Shape& shape) { return x.shape = shape, x; }
static Array permuted(const Array& x, const Dims& dims) {
  Shape shape = x.shape;
  for (int64_t d = 0; d < dims.size(); ++d) shape[d] = x.shape[dims[d]];
  return make(shape, [&](const Dims& i) {
    Dims from = i;
    for (int64_t d = 0; d < dims.size(); ++d) from[dims[d]] = i[d];
    return x.at(from);
  });
}
/// Positions start, start + step, ... along dim.
static Array part(const Array& x, int64_t dim, int64_t start, int64_t count, int64_t step = 1) {
  Shape shape = x.shape;
  shape[dim] = count;
  return make(shape, [&](Dims i) { return i[dim] = start + i[dim] * step, x.at(i); });
}
static Array without(Array x, int64_t dim) { return x.shape.erase(dim), x; }
static Array joined(const Array& a, const Array& b, int64_t dim) {
  Shape shape = a.shape;
  shape[dim] += b.shape[dim];
  return make(shape, [&](Dims i) {
    if (i[dim] < a.shape[dim]) return a.at(i);
    i[dim] -= a.shape[dim];
    return b.at(i);
  });
}
static std::function<Array(const Arrays&)> to_shape(Shape shape) {
  return [shape](const Arrays& x) { return reshaped(x[0], shape); };
}

static void views(Table& table) {
  // view() itself refuses most strides, so it is called on what is contiguous.
  CASE(view, view(contiguous(x[0]), {4, -1})).of(kAll).on("(2,3,4)").views(Shares::Maybe).expect(to_shape({4, 6}));
  CASE(view, view(contiguous(x[0]), {1, 1})).of(kAll).on("()").views(Shares::Maybe).expect(to_shape({1, 1}));
  CASE(reshape, reshape(x[0], {-1, 6})).of(kAll).on("(2,3,4)").views(Shares::Maybe).expect(to_shape({4, 6}));
  CASE(reshape, reshape(x[0], {3, 0, 2})).of(kAll).on("(0,3)").views(Shares::Maybe).expect(to_shape({3, 0, 2}));
  CASE(reshape, reshape(x[0], {2, 1, 2, 3, 1, 2, 2})).of(kAll).on("(2,2,3,2,2)").views(Shares::Maybe).expect(to_shape({2, 1, 2, 3, 1, 2, 2}));
  CASE(flatten, flatten(x[0])).of(kAll).on("(2,3,4)").views(Shares::Maybe).expect(to_shape(24));
  CASE(flatten, flatten(x[0])).of(kAll).on("()").views(Shares::Maybe).expect(to_shape(1));
  CASE(flatten, flatten(x[0], 1, 2)).of(kAll).on("(2,3,4,1)").views(Shares::Maybe).expect(to_shape({2, 12, 1}));
  CASE(permute, permute(x[0], {2, 0, 1})).of(kAll).on("(2,3,4) | (2,0,4)").views().EXPECT(permuted(x[0], {2, 0, 1}));
  CASE(permute, permute(x[0], {-1, 0, 2, 1, 4, 3, 5, 6})).of(kAll).on("(2,1,2,1,3,1,2,2)").views().EXPECT(permuted(x[0], {7, 0, 2, 1, 4, 3, 5, 6}));
  CASE(transpose, transpose(x[0], 0, -1)).of(kAll).on("(2,3,4) | (0,1,3)").views().EXPECT(permuted(x[0], {2, 1, 0})).TWIN(transpose_, 0, -1).new_geometry();
  CASE(t, t(x[0])).of(kAll).on("(2,3) | (0,3)").views().EXPECT(permuted(x[0], {1, 0})).TWIN(t_).new_geometry();
  CASE(t, t(x[0])).of(kAll).on("(3) | ()").views().EXPECT(x[0]).TWIN(t_).new_geometry();
  CASE(squeeze, squeeze(x[0])).of(kAll).on("(1,3,1,2)").views().expect(to_shape({3, 2})).TWIN(squeeze_).new_geometry();
  CASE(squeeze, squeeze(x[0])).of(kAll).on("(1,1)").views().expect(to_shape({})).TWIN(squeeze_).new_geometry();
  CASE(squeeze, squeeze(x[0], {0, 1})).of(kAll).on("(1,3,1,2)").views().expect(to_shape({3, 1, 2})).TWIN(squeeze_, {0, 1}).new_geometry();
  CASE(unsqueeze, unsqueeze(x[0], -2)).of(kAll).on("(2,3)").views().expect(to_shape({2, 1, 3})).TWIN(unsqueeze_, -2).new_geometry();
  CASE(unsqueeze, unsqueeze(x[0], 0)).of(kAll).on("()").views().expect(to_shape({1})).TWIN(unsqueeze_, 0).new_geometry();
  CASE(expand, expand(x[0], {2, 3, -1})).of(kAll).on("(3,4) | (1,4) | (2,1,4)").views().expect([](const Arrays& x) {
    return make({2, 3, 4}, [&](const Dims& i) { return broadcast_at(x[0], i); });
  });
  CASE(expand, expand(x[0], {2, 0})).of(kAll).on("() | (1)").views().EXPECT(Array(Shape{2, 0}));
  // The offset and strides count in x's storage, so x is made contiguous first. Elements overlap.
  CASE(as_strided, as_strided(clone(x[0], kContiguous), {3, 2}, {2, 3}, 1)).of(kAll).on("(2,3,4)").expect([](const Arrays& x) {
    return make({3, 2}, [&](const Dims& i) { return x[0].v[size_t(1 + 2 * i[0] + 3 * i[1])]; });
  });
  CASE(as_strided_, as_strided_(written(clone(x[0], kContiguous)), {2, 2}, {0, 1}, 2)).of(kAll).on("(2,3,4)").expect([](const Arrays& x) {
    return make({2, 2}, [&](const Dims& i) { return x[0].v[size_t(2 + i[1])]; });
  });
}

static void slices(Table& table) {
  CASE(select, select(x[0], 1, -1)).of(kAll).on("(2,3,4) | (0,3)").views().EXPECT(without(part(x[0], 1, 2, 1), 1));
  CASE(narrow, narrow(x[0], -1, 1, 2)).of(kAll).on("(2,3,4)").views().EXPECT(part(x[0], 2, 1, 2));
  CASE(narrow, narrow(x[0], 0, 1, 0)).of(kAll).on("(2,3)").views().EXPECT(part(x[0], 0, 1, 0));
  CASE(slice, slice(x[0], 1, -4, {}, 2)).of(kAll).on("(2,5)").views().EXPECT(part(x[0], 1, 1, 2, 2));
  CASE(slice, slice(x[0], 0, 1, 100)).of(kAll).on("(3,2)").views().EXPECT(part(x[0], 0, 1, 2));
  CASE(split, split(x[0], 2, 1)).of(kAll).on("(2,5,3)").views().EXPECT(Arrays{part(x[0], 1, 0, 2), part(x[0], 1, 2, 2), part(x[0], 1, 4, 1)});
  CASE(split, split(x[0], std::vector<int64_t>{1, 0, 3}, -1))
      .of(kAll)
      .on("(2,4)")
      .views()
      .EXPECT(Arrays{part(x[0], 1, 0, 1), part(x[0], 1, 1, 0), part(x[0], 1, 1, 3)});
  CASE(chunk, chunk(x[0], 3)).of(kAll).on("(5,2)").views().EXPECT(Arrays{part(x[0], 0, 0, 2), part(x[0], 0, 2, 2), part(x[0], 0, 4, 1)});
  CASE(unbind, unbind(x[0], 1))
      .of(kAll)
      .on("(2,3,4)")
      .views()
      .EXPECT(Arrays{without(part(x[0], 1, 0, 1), 1), without(part(x[0], 1, 1, 1), 1), without(part(x[0], 1, 2, 1), 1)});
}

static void joins(Table& table) {
  CASE(cat, cat({x[0], x[1]}, 1)).of(kAll).on("(2,3,4) (2,1,4) | (2,0,4) (2,3,4) | (0,3) (0,3)").perf("(1024,512) (1024,512)").EXPECT(joined(x[0], x[1], 1));
  CASE(cat, cat({x[0], x[1]})).of(kAll).on("(3) (0) | (2,1,2,1,3,1,2,2) (1,1,2,1,3,1,2,2)").EXPECT(joined(x[0], x[1], 0));
  CASE(stack, stack({x[0], x[1]}, -1)).of(kAll).on("(2,3) (2,3) | () () | (0,3) (0,3)").expect([](const Arrays& x) {
    Shape shape = x[0].shape;
    shape.push_back(2);
    return make(shape, [&](Dims i) {
      const size_t which = size_t(i.back());
      i.resize(i.size() - 1);
      return x[which].at(i);
    });
  });
}

void shape_cases(Table& table) {
  views(table);
  slices(table);
  joins(table);
}

}  // namespace op_cases
