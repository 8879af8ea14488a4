#include <omp.h>

#include "parallel_detail.h"

namespace tapir::inline v0::detail {

void run_team(Loop& loop) {
#pragma omp parallel num_threads(int(loop.pieces))
  {
    // Fewer threads than asked for may have come.
    for (int64_t piece = omp_get_thread_num(); piece < loop.pieces; piece += omp_get_num_threads()) loop.run(piece);
  }
}

void set_team_size(int threads) { omp_set_num_threads(threads); }

void before_fork() {
  if (!omp_in_parallel()) omp_pause_resource(omp_pause_soft, omp_get_initial_device());
}

}  // namespace tapir::inline v0::detail
