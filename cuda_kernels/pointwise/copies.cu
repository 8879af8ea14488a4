#include "../../core/dispatch.h"
#include "../optimizer/tensor_table.h"
#include "../rows.h"

// Copies of many tensors at once: weights that autocast rounds to 16 bits.
namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kConverted = 4;

template <class To, class From> __global__ void copies_flat(const TensorTable<2> table, uint32_t chunks) {
  for (uint32_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const TableChunk at = chunk_at(table, chunk);
    To* const out = data_at<To>(table, 0, at);
    const From* const x = data_at<const From>(table, 1, at);
    const bool aligned = head_of(out) == 0 && head_of(x) == 0;
    for_packs<kConverted>(at.size, aligned ? 0 : -1, [&]<int W>(int64_t i) {
      float v[W];
      load_pack<W>(x + i, v);
      store_pack<W>(out + i, v);
    });
  }
}

/// All pairs of these types that lie without gaps and in one order.
template <class To, class From> void copy_flat(Context& ctx, const entry::Copies& c, std::vector<bool>& done) {
  const auto takes = [&](size_t i) {
    const TensorView* const views[] = {&c.outs[i], &c.xs[i]};
    return c.outs[i].dtype == dtype_of<To> && c.xs[i].dtype == dtype_of<From> && is_flat<2>(views);
  };
  for (size_t i = 0; i < done.size(); ++i) done[i] = done[i] || takes(i);
  for_tables<2>(
      done.size(), [&](size_t i, int k) -> V { return k == 0 ? c.outs[i] : c.xs[i]; }, takes,
      [&](const TensorTable<2>& table, uint32_t chunks) {
        launch(ctx, "copies", table_grid(chunks), copies_flat<To, From>, table, chunks);
      });
}

}  // namespace

void copies(Context& ctx, const entry::Copies& c) {
  std::vector<bool> done(c.xs.size());
  copy_flat<BFloat16, float>(ctx, c, done), copy_flat<Half, float>(ctx, c, done);
  copy_flat<float, BFloat16>(ctx, c, done), copy_flat<float, Half>(ctx, c, done);
  for (size_t i = 0; i < done.size(); ++i)
    if (!done[i]) copy(ctx, {c.outs[i], c.xs[i]});
}

}  // namespace tapir::inline v0::cuda_kernels
