#include <cstring>

#include "../core/allocator.h"
#include "../core/parallel.h"
#include "kernels.h"
#include "stream_store.h"

namespace tapir::inline v0::cpu {

void* allocate(int64_t bytes, Device, void*) { return cpu_allocate(bytes); }
void release(void* data, int64_t bytes, Device) { cpu_release(data, bytes); }
void synchronize(Device, void*) {}

void copy_bytes(void* to, Device, const void* from, Device, int64_t bytes, void*) {
  parallel_for(bytes, int64_t(1) << 18, [&](int64_t first, int64_t last) {
    char* const place = static_cast<char*>(to) + first;
    const char* const source = static_cast<const char*>(from) + first;
    if (!past_caches(bytes)) std::memcpy(place, source, size_t(last - first));
    else stream_copy(place, source, last - first), end_stream();
  });
}

}  // namespace tapir::inline v0::cpu
