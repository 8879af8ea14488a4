// Calls of libraries beside the plugin: checked as a kernel's accesses are, and their memory held until the host has waited for their end.
#include "beside.h"

#include <cstring>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "library_call.h"
#include "runtime.h"

namespace cuda_emulation {
namespace {

struct Held {
  const char* data;
  size_t bytes;
  const char* by;
  bool ended = false;
  int stream = -1;
  uint64_t time = 0;
};
auto& held = *new std::list<Held>;

struct Call {
  const char* name;
  cudaStream_t stream;
  std::vector<std::list<Held>::iterator> memory;
};

const char* keep_text(const std::string& text) {  // allocations go on naming who wrote them
  static auto& texts = *new std::set<std::string>;
  return texts.insert(text).first->c_str();
}
void check(bool ok, const char* name, const std::string& why) {
  if (!ok) throw Fault(std::string("[") + name + "] " + why);
}
void check_part(const char* name, int device, const Part& p) {
  const Allocation* a = is_device_pointer(p.device) ? find(p.device) : nullptr;
  check(a, name,
        is_device_pointer(p.device) ? "expected memory that is allocated, got a stray or freed pointer"
                                    : "expected device memory, got a host pointer");
  check(a->device == device, name, "expected memory of device " + std::to_string(device) + ", got " + describe(*a));
}
void hold(Call& call, Parts parts) {
  for (size_t i = 0; i < parts.count; ++i)
    if (const Part& p = parts.begin[i]; p.bytes > 0)
      call.memory.push_back(held.insert(held.end(), {static_cast<const char*>(p.device), p.bytes, call.name}));
}
/// Each part, in one piece of work on the stream.
void touch(const Call& call, Parts parts, bool write, void (*each)(const Part&)) {
  LibraryCall work(call.name, call.stream);
  for (size_t i = 0; i < parts.count; ++i) {
    const Part& p = parts.begin[i];
    if (write) work.writes(p.device, p.bytes);
    else work.reads(p.device, p.bytes);
    if (p.bytes > 0) each(p);
  }
  work.end();
}

void* begin_call(const char* name, int device, void* stream, Parts reads, Parts writes, const char*& why) {
  const std::lock_guard lock(runtime);
  try {
    Stream* const s = stream_of(static_cast<cudaStream_t>(stream));
    check(s, name, "expected a live stream");
    check(s->device == device, name,
          "expected a stream of device " + std::to_string(device) + ", got one of device " + std::to_string(s->device));
    check(!s->capture, name, "expected a stream that is not captured");
    for (const Parts& parts : {reads, writes})
      for (size_t i = 0; i < parts.count; ++i)
        if (parts.begin[i].bytes > 0) check_part(name, device, parts.begin[i]);
    auto call = std::make_unique<Call>(Call{keep_text(name), s, {}});
    touch(*call, reads, false, [](const Part& p) { std::memcpy(p.host, p.device, p.bytes); });
    touch(*call, writes, true, [](const Part& p) { std::memset(p.device, 0xff, p.bytes); });
    hold(*call, reads), hold(*call, writes);
    return call.release();
  } catch (const Fault& fault) {
    return why = keep_text(fault.what()), nullptr;
  }
}
void drop_call(void* p) {
  const std::lock_guard lock(runtime);
  const std::unique_ptr<Call> call(static_cast<Call*>(p));
  for (const auto& memory : call->memory) held.erase(memory);
}
const char* end_call(void* p, Parts writes) {
  const std::lock_guard lock(runtime);
  auto& call = *static_cast<Call*>(p);
  try {
    touch(call, writes, true, [](const Part& part) { std::memcpy(part.device, part.host, part.bytes); });
  } catch (const Fault& fault) {
    return drop_call(p), keep_text(fault.what());
  }
  const Stream& s = *stream_of(call.stream);
  for (const auto& memory : call.memory)
    memory->ended = true, memory->stream = s.id, memory->time = s.known[size_t(s.id)];
  call.memory.clear();
  return drop_call(p), "";
}
bool set_device(int device) { return cudaSetDevice(device) == cudaSuccess; }

}  // namespace

void check_held(const char* call, const Allocation& a) {
  held.remove_if([](const Held& h) { return h.ended && knows(host, h.stream, h.time); });
  for (const Held& h : held)
    if (h.data < a.begin + a.size && a.begin < h.data + h.bytes)
      throw Fault(std::string("[") + call + "] " + h.by + " uses " + describe(a) +
                  ": the host has not waited for its end");
}
}  // namespace cuda_emulation

extern "C" __attribute__((visibility("default"))) const cuda_emulation::Beside* cuda_emulation_beside() {
  using namespace cuda_emulation;
  static const Beside all = {current_device, set_device, begin_call, end_call, drop_call};
  return &all;
}
