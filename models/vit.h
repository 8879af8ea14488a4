#pragma once
#include <vector>

#include "../nn/container.h"
#include "../nn/conv.h"
#include "../nn/linear.h"
#include "../nn/norm.h"

namespace tapir::inline v0::models {

struct ViTOptions {
  int64_t image_size = 224, patch_size = 16;
  int64_t layers = 12, heads = 12, hidden = 768, mlp = 3072;
  int64_t num_classes = 1000;
  double dropout = 0, attention_dropout = 0;
};

/// Attention of x to itself, all heads in one product: (N, S, E) -> (N, S, E). Names and initialisation of PyTorch's MultiheadAttention.
struct SelfAttention : nn::Module {
  int64_t heads;
  double dropout;
  Parameter in_proj_weight, in_proj_bias;
  nn::Linear out_proj;
  SelfAttention(int64_t hidden, int64_t heads, double dropout);
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(heads, dropout, in_proj_weight, in_proj_bias, out_proj)
};

/// x + attention(norm(x)), then x + mlp(norm(x)).
struct ViTBlock : nn::Module {
  double dropout;
  nn::LayerNorm ln_1;
  SelfAttention self_attention;
  nn::LayerNorm ln_2;
  nn::Sequential mlp;
  explicit ViTBlock(const ViTOptions& options);
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(dropout, ln_1, self_attention, ln_2, mlp)
};

struct ViTEncoder : nn::Module {
  double dropout;
  Parameter pos_embedding;  // (1, S, E)
  std::vector<ViTBlock> layers;
  nn::LayerNorm ln;
  explicit ViTEncoder(const ViTOptions& options);
  Tensor forward(const Tensor& x);
  void tapir_rename(std::vector<nn::Field>& fields) override;
  TAPIR_DECLARE_FIELDS(dropout, pos_embedding, layers, ln)
};

/// (N, 3, image_size, image_size) -> (N, num_classes): patches as tokens, a class token before them. Dosovitskiy et al. 2020,
/// arXiv 2010.11929; torchvision's names and initialisation.
struct VisionTransformer : nn::Module {
  int64_t image_size;
  Parameter class_token;  // (1, 1, E)
  nn::Conv2d conv_proj;
  ViTEncoder encoder;
  nn::Linear heads;
  explicit VisionTransformer(const ViTOptions& options = {});
  Tensor forward(const Tensor& x);
  void tapir_rename(std::vector<nn::Field>& fields) override;
  TAPIR_DECLARE_FIELDS(image_size, class_token, conv_proj, encoder, heads)
};
inline VisionTransformer vit_b_16(const ViTOptions& options = {}) { return VisionTransformer(options); }

}  // namespace tapir::inline v0::models
