// Copies to shared memory that end when their thread waits for them, as late as they may.
#include <deque>

#include "fibers.h"
#include "include/cuda_pipeline_primitives.h"

namespace cuda_emulation {
namespace {
struct Copy {
  void* to;
  size_t size;
  AsyncBytes<16> bytes;
};
using Group = std::vector<Copy>;
/// Of the threads of the running block; the last group is not committed yet.
auto& groups = *new std::vector<std::deque<Group>>;
/// Of the running thread.
std::deque<Group>& own() {
  const unsigned thread = running_thread();
  if (groups.size() <= thread) groups.resize(thread + 1);
  if (groups[thread].empty()) groups[thread].emplace_back();
  return groups[thread];
}
}  // namespace

void forget_async_copies() { groups.clear(); }
void begin_async_copy(void* to, const void* bytes, size_t size) {
  Copy copy{to, size, {}};
  std::memcpy(&copy.bytes, bytes, size);
  own().back().push_back(copy);
}
void end_async_group() { own().emplace_back(); }
void wait_for_async_groups(size_t but_the_last) {
  std::deque<Group>& g = own();
  for (; g.size() > but_the_last + 1; g.pop_front())
    for (const Copy& c : g.front()) std::memcpy(c.to, &c.bytes, c.size);
}
}  // namespace cuda_emulation
