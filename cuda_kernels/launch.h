#pragma once
#include "../core/cuda_launch.h"
#include "runtime/device.h"

namespace tapir::inline v0::cuda_kernels {

using cuda::Grid, cuda::grid_of;

/// Of a kernel that waits for those before it: Note [Early launches] in vendor/ptx/early_launch.h.
inline Grid early(const Context& ctx, Grid grid) {
  grid.early = begins_early(ctx.device);
  return grid;
}

/// cuda::launch_on for a kernel of the table: device and stream are the context's.
template <class... P, class... A>
void launch(const Context& ctx, const char* op, const Grid& grid, void (*kernel)(P...), A&&... args) {
  cuda::launch_on(ctx.device, stream_of(ctx), op, grid, kernel, std::forward<A>(args)...);
}

}  // namespace tapir::inline v0::cuda_kernels
