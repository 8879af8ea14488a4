#include "../dnn.h"
#include "../libraries.h"

// For a build with TAPIR_CUDNN=OFF: kernels of our own run, and library_report() says so.
namespace tapir::inline v0::cuda_kernels::dnn {
namespace {
bool refuse(const char* call) {
  return count_refusal(tally_of(Vendor::Cudnn, call), "Tapir was built with TAPIR_CUDNN=OFF"), false;
}
}  // namespace

bool conv(Context&, Pass, V, V, V, V, const ConvParams&, bool) { return refuse("conv"); }
bool attention(Context&, V, V, V, V, V, const AttentionParams&) { return refuse("attention"); }
bool attention_backward(Context&, V, V, V, V, V, V, V, V, V, const AttentionParams&) {
  return refuse("attention backward");
}

}  // namespace tapir::inline v0::cuda_kernels::dnn
