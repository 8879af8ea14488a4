// Calls of libraries beside the plugin: checked as a kernel's accesses are, and their memory held until the host has waited for their end.
#include "beside.h"

#include <algorithm>
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

struct Underway {
  const char* name;
  cudaStream_t stream;
  int stream_id = -1;
  uint64_t time = 0;
  Clock known = {};  // what it waits for
  std::vector<std::list<Held>::iterator> memory = {};
};
auto& on_their_way = *new std::set<const Underway*>;

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
void hold(Underway& call, Parts parts) {
  for (size_t i = 0; i < parts.count; ++i)
    if (const Part& p = parts.begin[i]; p.bytes > 0)
      call.memory.push_back(held.insert(held.end(), {.data = static_cast<const char*>(p.device),
                                                     .bytes = p.bytes,
                                                     .by = call.name,
                                                     .stream = call.stream_id,
                                                     .time = call.time}));
}
template <class F> void touch(LibraryCall& work, Parts parts, bool write, F each) {
  for (size_t i = 0; i < parts.count; ++i) {
    const Part& p = parts.begin[i];
    if (write) work.writes(p.device, p.bytes);
    else work.reads(p.device, p.bytes);
    if (p.bytes > 0) each(p);
  }
}

void* begin_call(const char* name, int device, void* stream, Parts reads, Parts writes, const char*& why) {
  const std::lock_guard lock(runtime);
  try {
    Stream* const s = stream_of(static_cast<cudaStream_t>(stream));
    check(s, name, "expected a live stream");
    check(s->device == device, name,
          "expected a stream of device " + std::to_string(device) + ", got one of device " + std::to_string(s->device));
    for (const Parts& parts : {reads, writes})
      for (size_t i = 0; i < parts.count; ++i)
        if (parts.begin[i].bytes > 0) check_part(name, device, parts.begin[i]);
    auto call = std::make_unique<Underway>(Underway{keep_text(name), s});
    {
      LibraryCall checks(call->name, new Work({.call = call->name}, *s, Work::Later()));
      touch(checks, reads, false, [](const Part&) {});
      touch(checks, writes, true, [](const Part&) {});
    }
    call->stream_id = s->id, call->known = s->known;
    call->time = std::exchange(call->known[size_t(s->id)], 0);  // a stream's calls run one after the other anyway
    hold(*call, reads), hold(*call, writes);
    on_their_way.insert(call.get());
    return call.release();
  } catch (const Fault& fault) {
    return why = keep_text(fault.what()), nullptr;
  }
}
void drop_call(void* p) {
  const std::lock_guard lock(runtime);
  const std::unique_ptr<Underway> call(static_cast<Underway*>(p));
  on_their_way.erase(call.get());
  runtime.notify_all();
  for (const auto& memory : call->memory) held.erase(memory);
}
const char* run_call(void* p, Parts reads, Parts writes) {
  const std::lock_guard lock(runtime);
  auto& call = *static_cast<Underway*>(p);
  wait_for_calls(call.known);
  try {
    LibraryCall work(call.name, new Work({.call = call.name}, *call.stream, call.time));
    touch(work, reads, false, [](const Part& part) { std::memcpy(part.host, part.device, part.bytes); });
    touch(work, writes, true, [](const Part& part) { std::memset(part.device, 0xff, part.bytes); });
    return "";
  } catch (const Fault& fault) {
    return keep_text(fault.what());
  }
}
const char* end_call(void* p, Parts writes) {
  const std::lock_guard lock(runtime);
  auto& call = *static_cast<Underway*>(p);
  try {
    LibraryCall work(call.name, new Work({.call = call.name}, *call.stream, call.time));
    touch(work, writes, true, [](const Part& part) { std::memcpy(part.device, part.host, part.bytes); });
    work.end();
  } catch (const Fault& fault) {
    return drop_call(p), keep_text(fault.what());
  }
  for (const auto& memory : call.memory) memory->ended = true;
  call.memory.clear();
  return drop_call(p), "";
}
bool captured(void* stream) { return is_captured(static_cast<cudaStream_t>(stream)); }
void keep_call(void* stream, std::function<std::string(void*)> call) {
  keep(static_cast<cudaStream_t>(stream), [call = std::move(call)](cudaStream_t s) {
    if (const std::string why = call(s); !why.empty()) throw Fault(why);
    return cudaSuccess;
  });
}
bool set_device(int device) { return cudaSetDevice(device) == cudaSuccess; }

}  // namespace

bool awaits_calls(const Clock& known) {
  return std::any_of(on_their_way.begin(), on_their_way.end(), [&](const Underway* call) {
    return size_t(call->stream_id) < known.size() && known[size_t(call->stream_id)] >= call->time;
  });
}
void wait_for_calls(const Clock& known) {
  while (awaits_calls(known)) runtime.wait();
}
void check_held(const char* call, const Allocation& a) {
  held.remove_if([](const Held& h) { return h.ended && knows(host, h.stream, h.time); });
  Clock ends;  // of calls that a stream of kernels has waited for: what is freed in its order is free behind them
  for (const Held& h : held)
    if (h.data < a.begin + a.size && a.begin < h.data + h.bytes) {
      if (!another_stream_knows(h.stream, h.time))
        throw Fault(std::string("[") + call + "] " + h.by + " uses " + describe(a) +
                    ": neither the host nor a stream has waited for its end");
      ends.resize(std::max(ends.size(), size_t(h.stream) + 1));
      ends[size_t(h.stream)] = std::max(ends[size_t(h.stream)], h.time);
    }
  wait_for_calls(ends);  // as cudaFree does
}
}  // namespace cuda_emulation

extern "C" __attribute__((visibility("default"))) const cuda_emulation::Beside* cuda_emulation_beside() {
  using namespace cuda_emulation;
  static const Beside all = {current_device, set_device, begin_call, run_call,
                             end_call,       drop_call,  captured,   keep_call};
  return &all;
}
