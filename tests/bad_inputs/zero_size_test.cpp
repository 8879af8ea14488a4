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
