// Nothing to do is no error.
#include <filesystem>

#include "refused.h"

TEST_CASE("BI-116 BI-117 lookups and searches in nothing") {
  const Tensor table = ones({4, 3});
  CHECK(embedding(zeros({0}, {.dtype = kInt64}), table).shape() == Shape{0, 3});
  CHECK(cumsum(zeros({0}), 0).shape() == Shape{0});
  CHECK(nonzero(zeros({0, 3})).shape() == Shape{0, 2});
  CHECK(where(zeros({0}, {.dtype = kBool}), zeros({0}), 1).shape() == Shape{0});
}

TEST_CASE("BI-118 linear algebra on matrices of size 0, and on no matrices") {
  for (const Shape& shape : {Shape{0, 0}, Shape{0, 3, 3}, Shape{2, 0, 0}}) {
    Tensor a = zeros(shape, {.dtype = kFloat64}).requires_grad_();
    const Shape batch = shape.size() == 2 ? Shape() : Shape{shape[0]};
    const int64_t n = shape.back();
    CHECK(linalg::inv(a).shape() == shape);
    CHECK(values(linalg::det(a)) == Values(size_t(numel_of(batch)), 1));
    CHECK(values(linalg::slogdet(a).second) == Values(size_t(numel_of(batch)), 0));
    CHECK(linalg::cholesky(a).shape() == shape);
    CHECK(linalg::qr(a).second.shape() == shape);
    CHECK(linalg::eigh(a).second.shape() == shape);
    CHECK(std::get<0>(linalg::svd(a)).shape() == shape);
    CHECK(linalg::svdvals(a).shape().back() == n);
    CHECK(linalg::lu_factor(a).first.shape() == shape);
    CHECK(linalg::solve(a, a).shape() == shape);
    CHECK(linalg::solve_triangular(a, a, {.upper = true}).shape() == shape);
    CHECK(linalg::pinv(a).shape() == shape);
    CHECK(linalg::matrix_rank(a).shape() == batch);
    CHECK(linalg::matrix_power(a, 3).shape() == shape);
    CHECK(matrix_exp(a).shape() == shape);
    (sum(linalg::inv(a)) + sum(linalg::det(a)) + sum(linalg::eigh(a).first)).backward();
    CHECK(a.grad().shape() == shape);
  }
  CHECK(linalg::qr(zeros({0, 3})).second.shape() == Shape{0, 3});
  CHECK(linalg::qr(zeros({3, 0})).first.shape() == Shape{3, 0});
  CHECK(linalg::pinv(zeros({3, 0})).shape() == Shape{0, 3});
  CHECK(values(std::get<0>(linalg::svd(zeros({2, 0})))) == Values{1, 0, 0, 1});
}

TEST_CASE("BI-120 optimizers, clipping and files take tensors of no elements and of no dimensions") {
  for (const Shape& shape : {Shape{0, 3}, Shape{}}) {
    Tensor p = ones(shape).requires_grad_();
    p.set_grad(ones(shape));
    optim::SGD sgd({p}, {.lr = 0.5, .momentum = 0.9});
    optim::AdamW adam({p}, {.lr = 0.5});
    CHECK(std::isfinite(optim::clip_grad_norm_({p}, 1.0).item()));
    sgd.step();
    adam.step();
    CHECK(p.to(kCPU).shape() == shape);
    const auto file = (std::filesystem::temp_directory_path() / "tapir_zero_size.safetensors").string();
    StateDict state;
    state.set("p", p);
    io::save_safetensors(file, state);
    CHECK(io::load_safetensors(file).at("p").shape() == shape);
    std::filesystem::remove(file);
  }
}
