#include "../same_bits.h"
#include "helpers.h"

TEST_CASE("as_strided of what repeats: each place of the storage is counted once") {
  const Tensor x = leaf({1, 2, 3});
  const auto diagonal = [](const Tensor& v) { return as_strided(expand(v, {3, 3}), {3}, {1}); };
  CHECK(values(diagonal(x)) == Values{1, 2, 3});
  CHECK(close(values(grad({sum(diagonal(x))}, {x})[0]), {1, 1, 1}));
  CHECK(gradients_hold([&](const Tensor& v) { return square(diagonal(v)); }, {x}));
  CHECK(gradients_hold([](const Tensor& v) { return square(as_strided(expand(v, {2, 3}), {2, 2}, {1, 1})); }, {x}));
}

TEST_CASE("pointwise: results that are written past the caches, at any address") {
  constexpr int64_t count = (int64_t(36) << 20) / 4 + 13;
  const auto number = [](int64_t i) { return float(i % 1021) - 510; };
  Tensor memory = full({count + 16}, -7.0), x = arange(0., double(count), 1.) % 1021 - 510;
  const auto wrong = [&](int64_t offset, float factor) {
    const float* const all = static_cast<const float*>(memory.data_ptr());
    int64_t n = 0;
    for (int64_t i = 0; i < offset; ++i) n += all[i] != -7;
    for (int64_t i = 0; i < count; ++i) n += all[offset + i] != factor * number(i);
    for (int64_t i = offset + count; i < memory.numel(); ++i) n += all[i] != -7;
    return n;
  };
  x = x.to(kFloat32);
  for (const int64_t offset : {0, 1, 15}) {
    Tensor to = narrow(memory, 0, offset, count);
    memory.fill_(-7), to.copy_(x);
    CHECK(wrong(offset, 1) == 0);
    memory.fill_(-7), to.copy_(x.to(kFloat64));  // converted on the way
    CHECK(wrong(offset, 1) == 0);
    memory.fill_(-7), to.copy_(x), to.add_(x);
    CHECK(wrong(offset, 2) == 0);
  }
  const Tensor rows = reshape(narrow(x, 0, 0, count / 64 * 64), {-1, 64}),
               twice = rows + narrow(rows, 1, 0, 1) * 0 + rows;
  CHECK(sum(twice != rows * 2).item() == 0);
}

TEST_CASE("index: rows that are dense in pieces") {
  const Tensor x = randn({150, 6, 80}), i = randint(0, 150, {200});
  const Tensor part = narrow(x, 2, 8, 64), whole = part.contiguous();
  CHECK(tapir_tests::same_bits(index_select(part, 0, i), index_select(whole, 0, i)));
  const Tensor across = transpose(randn({80, 150}), 0, 1);
  CHECK(tapir_tests::same_bits(index_select(across, 0, i), index_select(across.contiguous(), 0, i)));
}
