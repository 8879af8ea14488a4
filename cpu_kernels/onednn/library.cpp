#include "library.h"

#include <algorithm>
#include <new>

#include "../../core/denormals.h"
#include "../../core/parallel_detail.h"
#include "../dnn.h"

// Of the OpenMP runtime that the library is linked to; omp.h belongs to the compiler, and clang's is a package of its own.
extern "C" void omp_set_num_threads(int);
extern "C" int omp_get_max_threads();

namespace tapir::inline v0::cpu::dnn {

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}
static dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}

/// Of the session that began last: Note [Simulated threads].
static thread_local constinit int simulated_threads = 1;

Session::Session(int threads) : denormals_(detail::flush_denormal_bits()) {
  share_threads();  // what this thread may use: 1 in a forked child or a loader's worker
  if (detail::simulated.load(std::memory_order_relaxed)) simulated_threads = threads ? threads : threads_here();
  before_ = omp_get_max_threads();
  threads_ = std::min(threads ? threads : threads_here(), before_);
  if (threads_ != before_) omp_set_num_threads(threads_);
}
Session::~Session() {
  if (threads_ != before_) omp_set_num_threads(before_);
}

uint64_t Key::hash() const {
  uint64_t h = uint64_t(count);
  for (int i = 0; i < count; ++i) {
    h = (h ^ uint64_t(words[size_t(i)])) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
  }
  return h;
}

void Call::argument(int name, const dnnl::memory::desc& desc) {
  check_internal(count_ < kMost, "[onednn] a call has at most {} arguments", kMost);
  const size_t i = size_t(count_++);
  memory_[i] = dnnl::memory(desc, engine(), DNNL_MEMORY_NONE);
  arguments_[i] = {name, memory_[i].get()};
}

void Call::run(Context& ctx, std::initializer_list<void*> data) {
  int i = 0;
  if (scratch_) dnnl_memory_set_data_handle(arguments_[size_t(i++)].memory, ctx.scratch(scratch_));
  for (void* p : data) dnnl_memory_set_data_handle(arguments_[size_t(i++)].memory, p);
  const bool team = omp_get_max_threads() > 1;
  const detail::LibraryLoop begun = team ? detail::begin_library_loop() : detail::LibraryLoop();
  detail::Simulation* const simulation = simulated_threads > 1 ? detail::simulation : nullptr;
  const int64_t start = simulation ? detail::clock_now() : 0;
  dnnl_status_t status = dnnl_out_of_memory;
  try {
    status = dnnl_primitive_execute(primitive_.get(), stream().get(), count_, arguments_.data());
  } catch (const std::bad_alloc&) {}  // it reports lack of memory in both ways
  if (team) detail::end_library_loop(begun, fastest_);
  if (simulation) [[unlikely]] {
    const int64_t took = detail::clock_now() - start;
    simulation->add(took, took / simulated_threads);
  }
  if (status == dnnl_out_of_memory) fail(ErrorKind::OutOfMemory, "[onednn] expected memory for a call, got none");
  check_internal(status == dnnl_success, "[onednn] execution failed with status {}", int(status));
}

Call make_reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  const dnnl::reorder::primitive_desc desc(engine(), from, engine(), to, attributes());
  Call call(dnnl::reorder(desc), desc.scratchpad_desc());
  call.argument(DNNL_ARG_FROM, from);
  call.argument(DNNL_ARG_TO, to);
  return call;
}

static bool has(dnnl::cpu_isa wanted) { return (int(dnnl::get_effective_cpu_isa()) & int(wanted)) == int(wanted); }
bool has_bfloat16() {
  static const bool there = has(dnnl::cpu_isa::avx512_core_bf16);
  return there;
}
bool has_amx() {
  static const bool there = has(dnnl::cpu_isa::avx512_core_amx);
  return there;
}
bool has_vnni() {
  static const bool there = has(dnnl::cpu_isa::avx512_core_vnni) || has(dnnl::cpu_isa::avx2_vnni);
  return there;
}

}  // namespace tapir::inline v0::cpu::dnn
