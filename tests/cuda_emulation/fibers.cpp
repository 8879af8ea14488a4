// Fibers: the threads of a block take turns on one host thread. One that ends leaves its fiber to the next thread, so that a kernel in
// which nobody waits runs its whole grid on one fiber, by plain calls.
#include "fibers.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstring>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

#ifdef __x86_64__
// tapir_emulation_switch(&from, to): keeps the registers that a call keeps, on the stack.
asm(R"(
.text
.hidden tapir_emulation_switch
.globl tapir_emulation_switch
.type tapir_emulation_switch, @function
tapir_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tapir_emulation_switch, .-tapir_emulation_switch
.section .note.GNU-stack,"",@progbits
.text
)");
extern "C" void tapir_emulation_switch(void** from, void* to);
#else
#include <ucontext.h>
#endif

namespace cuda_emulation {
namespace {
constexpr size_t kStack = 256 << 10, kGuard = 4096;

/// Where a stack stopped.
struct Context {
#ifdef __x86_64__
  void* top = nullptr;
#else
  ucontext_t registers{};
#endif
  const void* stack = nullptr;  // for the address sanitizer
  size_t bytes = 0;
  void* fake = nullptr;
};
}  // namespace
struct Fiber {
  char* memory = nullptr;
  Context context;
};
namespace {
Context host_context;
std::string failure;  // why the block ended early
auto& all = *new std::vector<Fiber*>;
auto& idle = *new std::vector<Fiber*>;
uint64_t random_state = 0x9e3779b97f4a7c15;
const Call* call;
uint32_t launches = 0;
Block block;
Thread* current = nullptr;  // null on the host's own stack

void switch_to(Context& from, Context& to, [[maybe_unused]] bool for_good = false) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(for_good ? nullptr : &from.fake, to.stack, to.bytes);
#endif
#ifdef __x86_64__
  tapir_emulation_switch(&from.top, to.top);
#else
  swapcontext(&from.registers, &to.registers);
#endif
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(from.fake, nullptr, nullptr);
#endif
}
/// A private copy for each thread: a kernel may change its arguments, and looks at no stack but its own.
__attribute__((noinline)) void run_kernel() {
  call->invoke(std::memcpy(__builtin_alloca_with_align(call->size, 1024), call->args, call->size));
}
void become(Thread* t) {
  current = t;
  if (t) threadIdx = t->index;
}
void fiber_main() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  for (;;) {
    run_kernel();
    Fiber* const self = current->fiber;
    block.finish(*current);
    Thread* next = block.pick();
    become(next);
    if (next && !next->fiber) {
      next->fiber = self;
      continue;
    }
    idle.push_back(self);
    switch_to(self->context, next ? next->fiber->context : host_context);
  }
}
void prepare(Fiber& f, size_t number) {
  char* const stack = f.memory + kGuard;
  const size_t bytes =
      kStack - number % 64 * 64;  // stacks that began at one offset in a page would fight for the same cache lines
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(stack, kStack);
#endif
  f.context = {};
  f.context.stack = stack, f.context.bytes = bytes;
#ifdef __x86_64__
  void** top = reinterpret_cast<void**>(stack + bytes) - 1;  // as after a call: 8 bytes below a multiple of 16
  *top = nullptr;
  *--top = reinterpret_cast<void*>(fiber_main);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  f.context.top = top;
#else
  getcontext(&f.context.registers);
  f.context.registers.uc_stack.ss_sp = stack, f.context.registers.uc_stack.ss_size = bytes;
  makecontext(&f.context.registers, fiber_main, 0);
#endif
}
Fiber* idle_fiber() {
  if (idle.empty()) {
    auto* f = new Fiber;
    void* p =
        mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, kGuard, PROT_NONE) != 0) fail("no memory for the stack of a fiber");
    f->memory = static_cast<char*>(p);
    prepare(*f, all.size());
    all.push_back(f), idle.push_back(f);
  }
  Fiber* f = idle.back();
  idle.pop_back();
  return f;
}
/// Leaves the stack `from` to thread `t`, or to the host where t is null.
void give_way(Context& from, Thread* t) {
  become(t);
  if (t && !t->fiber) t->fiber = idle_fiber();
  switch_to(from, t ? t->fiber->context : host_context);
}
void leave() {
  Thread& self = *current;
  Thread* next = block.pick();
  if (next != &self) give_way(self.fiber->context, next);
}
}  // namespace

uint64_t random_below(uint64_t n) {
  random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
  return uint64_t(static_cast<unsigned __int128>(random_state * 0x2545f4914f6cdd1d) * n >> 64);
}
void set_seed(unsigned seed) {
  const std::lock_guard lock(runtime);
  random_state = (seed + 1) * 0x9e3779b97f4a7c15;
}
bool kernel_runs() { return current && works_here(); }
unsigned running_thread() { return current->id; }
bool in_own_stack(const void* p) {
  return size_t(static_cast<const char*>(p) - current->fiber->memory) < kGuard + kStack;
}
std::string place() {
  const auto at = [](uint3 i) {
    return "(" + std::to_string(i.x) + ", " + std::to_string(i.y) + ", " + std::to_string(i.z) + ")";
  };
  return "block " + at(blockIdx) + " thread " + at(threadIdx) + ": ";
}
Actor actor() {
  const uint32_t number = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  return {launches,
          number,
          block.barriers_passed,
          current->warp_epoch,
          uint8_t(current->id / 32),
          uint8_t(current->id % 32)};
}
void abandon_kernel(const std::string& message) {
  failure = message;
  Context lost;
  current = nullptr;
  switch_to(lost, host_context, true);
  __builtin_unreachable();
}
void trap() { fail("__trap()"); }

int barrier(Vote vote, bool predicate, const Site& site) {
  Thread& t = *current;
  t.state = State::AtBarrier, t.site = site, t.vote = vote, t.value = predicate;
  leave();
  return int(t.value);
}
uint64_t exchange(unsigned mask, uint64_t value, unsigned source, Combine combine, bool orders_memory,
                  const Site& site) {
  Thread& t = *current;
  if (!(mask >> t.id % 32 & 1)) fail("is not in its own mask, at " + line(site));
  if (!combine && !(mask >> source % 32 & 1))
    fail("asks for the value of a lane that is not in the mask, at " + line(site));
  t.state = State::AtWarp, t.mask = mask, t.value = value, t.source = source % 32, t.combine = combine;
  t.orders_memory = orders_memory, t.site = site;
  block.arrive(t);
  leave();
  return t.value;
}

#ifdef __SANITIZE_ADDRESS__
void find_host_stack() {
  static thread_local void* stack = nullptr;
  static thread_local size_t bytes = 0;
  if (!stack) {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &bytes);
    pthread_attr_destroy(&attributes);
  }
  host_context.stack = stack, host_context.bytes = bytes;
}
#endif
namespace {
auto& waits_left = *new std::vector<bool>;  // of the threads of an early launch's block: has it yet to wait?
bool lets_first = false;                    // some thread of the launch has let the next one begin before its own wait
}  // namespace
bool is_early(const cudaLaunchConfig_t& c) {
  return std::any_of(c.attrs, c.attrs + c.numAttrs, [](const cudaLaunchAttribute& a) {
    return a.id == cudaLaunchAttributeProgrammaticStreamSerialization && a.val.programmaticStreamSerializationAllowed;
  });
}
bool has_waited() { return waits_left.empty() || !waits_left[running_thread()]; }
void note_early_wait() {
  if (!waits_left.empty()) waits_left[running_thread()] = false;
}
void note_next_begins() { lets_first = lets_first || !has_waited(); }
bool take_lets_first() { return std::exchange(lets_first, false); }
void run_block(const Call& of, const cudaLaunchConfig_t& config, uint32_t launch) {
#ifdef __SANITIZE_ADDRESS__
  find_host_stack();
#endif
  call = &of, launches = launch;
  if (config.dynamicSmemBytes) std::memset(dynamic_shared(), 0xff, config.dynamicSmemBytes);
  block.start(config.blockDim);
  waits_left.assign(is_early(config) ? size_t(config.blockDim.x) * config.blockDim.y * config.blockDim.z : 0, true);
  forget_async_copies();
  failure.clear();
  do {
    while (failure.empty()) {
      Thread* t = block.pick();
      if (!t) break;
      give_way(host_context, t);
    }
  } while (failure.empty() && block.unblock());
  current = nullptr;
  if (failure.empty() && !block.done()) failure = "[" + work->label.text() + "] " + block.divergence();
  if (failure.empty()) return;
  idle.clear();  // threads were left in the middle of the kernel: every fiber begins anew
  for (size_t i = 0; i < all.size(); ++i) prepare(*all[i], i), idle.push_back(all[i]);
  throw Fault(failure);
}
}  // namespace cuda_emulation
