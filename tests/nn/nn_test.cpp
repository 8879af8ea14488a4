// What every module has: its text, its state.
#include <tapir/tapir.h>

#include "../catch.h"
using namespace tapir;

TEST_CASE("modules print as in PyTorch 2.15") {
  const std::pair<std::string, const char*> texts[] = {
      {nn::Conv1d(3, 4, 3).str(), "Conv1d(3, 4, kernel_size=(3,), stride=(1,))"},
      {nn::ConvTranspose2d(4, 6, 3, {.stride = 2, .output_padding = 1, .groups = 2, .bias = false}).str(),
       "ConvTranspose2d(4, 6, kernel_size=(3, 3), stride=(2, 2), output_padding=(1, 1), groups=2, bias=False)"},
      {nn::Conv3d(3, 4, 2, {.padding = "same", .dilation = {1, 2, 1}}).str(),
       "Conv3d(3, 4, kernel_size=(2, 2, 2), stride=(1, 1, 1), padding=same, dilation=(1, 2, 1))"},
      {nn::BatchNorm3d(3, {.momentum = std::nullopt}).str(),
       "BatchNorm3d(3, eps=1e-05, momentum=None, affine=True, bias=True, track_running_stats=True)"},
      {nn::InstanceNorm1d(3).str(),
       "InstanceNorm1d(3, eps=1e-05, momentum=0.1, affine=False, bias=False, track_running_stats=False)"},
      {nn::GroupNorm(2, 4).str(), "GroupNorm(2, 4, eps=1e-05, affine=True, bias=True)"},
      {nn::RMSNorm(4).str(), "RMSNorm((4,), eps=None, elementwise_affine=True)"},
      {nn::RMSNorm({3, 4}, {.eps = 1e-3}).str(), "RMSNorm((3, 4), eps=0.001, elementwise_affine=True)"},
      {nn::LayerNorm(4, {.bias = false}).str(), "LayerNorm((4,), eps=1e-05, elementwise_affine=True, bias=False)"},
      {nn::LocalResponseNorm(3).str(), "LocalResponseNorm(3, alpha=0.0001, beta=0.75, k=1.0)"},
      {nn::MaxPool3d({1, 2, 3}, {.ceil_mode = true}).str(),
       "MaxPool3d(kernel_size=(1, 2, 3), stride=(1, 2, 3), padding=0, dilation=1, ceil_mode=True)"},
      {nn::AvgPool1d(2).str(), "AvgPool1d(kernel_size=(2,), stride=(2,), padding=(0,))"},
      {nn::AvgPool3d(2).str(), "AvgPool3d(kernel_size=2, stride=2, padding=0)"},
      {nn::AdaptiveAvgPool2d({-1, 3}).str(), "AdaptiveAvgPool2d(output_size=(None, 3))"},
      {nn::AdaptiveMaxPool3d(3).str(), "AdaptiveMaxPool3d(output_size=3)"},
      {nn::LPPool2d(2, {2, 3}, {.stride = 1}).str(),
       "LPPool2d(norm_type=2.0, kernel_size=(2, 3), stride=1, ceil_mode=False)"},
      {nn::MaxUnpool2d(2, {.padding = 1}).str(), "MaxUnpool2d(kernel_size=(2, 2), stride=(2, 2), padding=(1, 1))"},
      {nn::FractionalMaxPool2d(2, {.output_size = 3}).str(), "FractionalMaxPool2d()"},
      {nn::ZeroPad1d(2).str(), "ZeroPad1d((2, 2))"},
      {nn::ConstantPad2d({1, 2, 0, 1}, 0.5).str(), "ConstantPad2d(padding=(1, 2, 0, 1), value=0.5)"},
      {nn::ReflectionPad2d(2).str(), "ReflectionPad2d((2, 2, 2, 2))"},
      {nn::CircularPad3d(1).str(), "CircularPad3d((1, 1, 1, 1, 1, 1))"},
      {nn::ReplicationPad1d({1, 2}).str(), "ReplicationPad1d((1, 2))"},
      {nn::ReLU6({.inplace = true}).str(), "ReLU6(inplace=True)"},
      {nn::ELU(0.5, {.inplace = true}).str(), "ELU(alpha=0.5, inplace=True)"},
      {nn::CELU().str(), "CELU(alpha=1.0)"},
      {nn::GELU().str(), "GELU(approximate='none')"},
      {nn::Mish().str(), "Mish()"},
      {nn::Softplus(2).str(), "Softplus(beta=2.0, threshold=20.0)"},
      {nn::Hardtanh(-0.5, 0.8).str(), "Hardtanh(min_val=-0.5, max_val=0.8)"},
      {nn::Hardshrink().str(), "Hardshrink(0.5)"},
      {nn::Threshold(0.1, -1).str(), "Threshold(threshold=0.1, value=-1.0)"},
      {nn::PReLU(3).str(), "PReLU(num_parameters=3)"},
      {nn::GLU().str(), "GLU(dim=-1)"},
      {nn::Softmin(0).str(), "Softmin(dim=0)"},
      {nn::RReLU().str(), "RReLU(lower=0.125, upper=0.3333333333333333)"},
      {nn::Softmax2d().str(), "Softmax2d()"},
      {nn::Upsample({.scale_factor = {2}, .mode = "bilinear", .align_corners = true}).str(),
       "Upsample(scale_factor=2.0, mode='bilinear')"},
      {nn::Upsample({.size = {5, 7}}).str(), "Upsample(size=(5, 7), mode='nearest')"},
      {nn::UpsamplingNearest2d({.scale_factor = {2, 3}}).str(),
       "UpsamplingNearest2d(scale_factor=(2.0, 3.0), mode='nearest')"},
      {nn::UpsamplingBilinear2d({.size = 3}).str(), "UpsamplingBilinear2d(size=3, mode='bilinear')"},
      {nn::Unfold({2, 3}, {.padding = 1}).str(), "Unfold(kernel_size=(2, 3), dilation=1, padding=1, stride=1)"},
      {nn::Fold({4, 5}, 2).str(), "Fold(output_size=(4, 5), kernel_size=2, dilation=1, padding=0, stride=1)"},
      {nn::PixelShuffle(2).str(), "PixelShuffle(upscale_factor=2)"},
      {nn::ChannelShuffle(3).str(), "ChannelShuffle(groups=3)"},
      {nn::CosineSimilarity().str(), "CosineSimilarity()"},
      {nn::Bilinear(4, 5, 2).str(), "Bilinear(in1_features=4, in2_features=5, out_features=2, bias=True)"},
      {nn::Unflatten(1, {2, 3}).str(), "Unflatten(dim=1, unflattened_size=(2, 3))"},
      {nn::Embedding(6, 4, {.padding_idx = 2}).str(), "Embedding(6, 4, padding_idx=2)"},
      {nn::Embedding(6, 4, {.max_norm = 1, .norm_type = 1, .scale_grad_by_freq = true}).str(),
       "Embedding(6, 4, max_norm=1.0, norm_type=1.0, scale_grad_by_freq=True)"},
      {nn::EmbeddingBag(6, 4, {.max_norm = 2, .mode = "sum", .padding_idx = 1}).str(),
       "EmbeddingBag(6, 4, max_norm=2.0, mode='sum', padding_idx=1)"},
      {nn::Dropout2d(0.2, {.inplace = true}).str(), "Dropout2d(p=0.2, inplace=True)"},
      {nn::FeatureAlphaDropout().str(), "FeatureAlphaDropout(p=0.5, inplace=False)"},
      {nn::CrossEntropyLoss({.label_smoothing = 0.1}).str(), "CrossEntropyLoss()"},
      {nn::CTCLoss().str(), "CTCLoss()"},
  };
  for (auto& [got, want] : texts) CHECK(got == want);
}

TEST_CASE("losses with a weight save and move it as a buffer") {
  nn::CrossEntropyLoss loss({.weight = ones(3)});
  CHECK(loss.state_dict().contains("weight"));
  loss.to(kFloat64);
  CHECK(loss(zeros({2, 3}, {.dtype = kFloat64}), tensor({0, 2})).item() == Approx(std::log(3.)));
  CHECK(nn::BCEWithLogitsLoss({.pos_weight = ones(2)}).state_dict().contains("pos_weight"));
  CHECK(nn::NLLLoss().state_dict().size() == 0);
  nn::TripletMarginWithDistanceLoss city([](const Tensor& a, const Tensor& b) { return sum(abs(a - b), 1); });
  CHECK(city(zeros({1, 2}), ones({1, 2}), zeros({1, 2})).item() == Approx(3));
}

TEST_CASE("transposed convolutions reach an output_size") {
  nn::Conv1d down(1, 1, 3, {.stride = 2, .padding = 1});
  nn::ConvTranspose1d up(1, 1, 3, {.stride = 2, .padding = 1});
  const Tensor x = randn({1, 1, 12});
  CHECK(up(down(x)).shape() == Shape{1, 1, 11});
  CHECK(up(down(x), 12).shape() == Shape{1, 1, 12});
  CHECK(up(down(x), x.shape()).shape() == x.shape());
  CHECK_THROWS_AS(up(down(x), 13), ValueError);
  CHECK_THROWS_AS(up(down(x), Dims{1, 12}), ValueError);
}

TEST_CASE("modules that overwrite their input give what the others give, with the same gradients") {
  const auto same = [](auto apart, auto inplace) {
    const Tensor a = linspace(-2, 2, 24).view({2, 3, 4}).requires_grad_(), b = a.detach().clone().requires_grad_();
    manual_seed(5);
    const Tensor x = apart(a * 1);
    manual_seed(5);
    Tensor y = b * 1;
    CHECK(inplace(y).is_same(y));
    sum(x * x).backward(), sum(y * y).backward();
    CHECK(x.to_vector<float>() == y.to_vector<float>());
    CHECK(a.grad().to_vector<float>() == b.grad().to_vector<float>());
  };
  same(nn::RReLU(), nn::RReLU(1.0 / 8, 1.0 / 3, {.inplace = true}));
  same(nn::Dropout1d(), nn::Dropout1d(0.5, {.inplace = true}));
  same(nn::AlphaDropout(), nn::AlphaDropout(0.5, {.inplace = true}));
  same(nn::Mish(), nn::Mish({.inplace = true}));
  same(nn::Threshold(0.1, 3), nn::Threshold(0.1, 3, {.inplace = true}));
}

TEST_CASE("AdaptiveLogSoftmaxWithLoss: figures of PyTorch 2.15") {
  nn::AdaptiveLogSoftmaxWithLoss m(4, 6, {2, 4}, {.div_value = 2, .head_bias = true});
  m.to(kFloat64);
  std::string names;
  double scale = 0.5;
  for (auto& [name, p] : m.named_parameters()) {
    NoGrad guard;
    Tensor t = p;
    t.copy_(linspace(-0.5, 0.7, p.numel(), {.dtype = kFloat64}).view(p.shape()) * scale);
    names += name + " ", scale += 0.5;
  }
  CHECK(names == "head.weight head.bias tail.0.0.weight tail.0.1.weight tail.1.0.weight tail.1.1.weight ");
  const Tensor x = (arange(0, 12).to(kFloat64).view({3, 4}) * 0.3 - 1).requires_grad_();
  auto [output, loss] = m(x, tensor({5, 0, 2}));
  loss.backward();
  const auto near = [](const Tensor& got, std::vector<double> want) {
    const auto v = got.to_vector<double>();
    REQUIRE(v.size() == want.size());
    for (size_t i = 0; i < v.size(); ++i) CHECK(v[i] == Approx(want[i]).epsilon(1e-8));
  };
  near(output, {-1.347922664, -2.992763965, -6.606426985});
  near(loss, {3.649037871});
  near(x.grad(), {-0.02928774455, -0.06729921861, -0.1053106927, -0.1433221667, 0.1262012513, 0.1262012513,
                  0.1262012513, 0.1262012513, -0.2094017863, 0.06261439102, 0.3346305684, 0.6066467457});
  near(m.log_prob(x).select(0, 0),
       {-1.459733891, -1.411733891, -2.149991903, -1.971706188, -4.767922664, -1.347922664});
  CHECK(m.predict(x).to_vector<int64_t>() == std::vector<int64_t>{5, 5, 5});
  CHECK_THROWS_AS(m(x, tensor({5, 0, 6})), ValueError);
  CHECK_THROWS_AS(nn::AdaptiveLogSoftmaxWithLoss(4, 6, {4, 2}), ValueError);
}
