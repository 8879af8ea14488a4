#include "count.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <unordered_map>
#include <vector>

#include "fibers.h"

namespace cuda_emulation {
namespace {

constexpr size_t kWhole = 64;         // blocks of a launch that may run whole
constexpr size_t kSample = 32;        // blocks of a sample
constexpr size_t kLeast = 8;          // ... whatever they cost
constexpr size_t kEnough = 300'000;   // accesses that end a sample
constexpr size_t kMost = 24'000'000;  // accesses of a block that is cut short

/// Of a block, and of a launch.
struct Counts {
  double read = 0, written = 0;                // bytes, as threads ask for them
  double sectors = 0;                          // moved by warps' accesses, both ways
  double memory_read = 0, memory_written = 0;  // bytes in different sectors
  double shared = 0;                           // turns of shared memory
  double operations = 0;                       // of tensor cores
};
struct Access {
  uint64_t group, place;  // group: instruction, warp, which time, write
  bool operator<(const Access& o) const { return group != o.group ? group < o.group : place < o.place; }
  bool operator==(const Access&) const = default;
};
struct Measured {
  Counts all;
  size_t sampled = 0, accesses = 0;
  std::string fault;  // why blocks ended early
};

FILE* file() {
  static FILE* const f = [] {
    const char* path = std::getenv("TAPIR_EMULATED_COUNT");
    FILE* opened = std::fopen(path, "w");
    if (!opened) throw Fault(std::string("[TAPIR_EMULATED_COUNT] cannot write ") + path);
    return opened;
  }();
  return f;
}
bool in_graph = false;
std::vector<std::string>& ranges() {
  static thread_local std::vector<std::string> list;
  return list;
}
void end_line() {
  if (!ranges().empty()) std::fprintf(file(), ", \"range\": \"%s\"", ranges().back().c_str());
  std::fprintf(file(), ", \"stream\": %d%s}\n", work ? work->stream.id : 0, in_graph ? ", \"graph\": true" : "");
}

/// The accesses of the running block.
struct Trace {
  std::unordered_map<const void*, uint32_t> numbers;  // of the launch's instructions
  std::pair<const void*, uint32_t> last[256] = {};
  std::vector<uint32_t> times;  // [instruction][thread]
  std::vector<Access> global, shared;
  size_t threads = 0, accesses = 0;
  Counts counts;

  uint32_t number(const void* by) {
    auto& known = last[uintptr_t(by) / 2 % 256];
    if (known.first == by) return known.second;
    const uint32_t n = numbers.emplace(by, uint32_t(numbers.size())).first->second;
    if (times.size() < numbers.size() * threads) times.resize(numbers.size() * threads);
    return known = {by, n}, n;
  }
  void begin() {
    std::fill(times.begin(), times.end(), 0);
    global.clear(), shared.clear(), accesses = 0, counts = {};
  }
};
auto& trace = *new Trace;

void sort_unique(std::vector<Access>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}
/// Words of one access of a warp that lie in one bank come one after the other.
double turns(std::vector<Access>& words) {
  sort_unique(words);
  double all = 0;
  for (size_t i = 0; i < words.size();) {
    const uint64_t group = words[i].group;
    unsigned in_bank[32] = {}, most = 0;
    for (; i < words.size() && words[i].group == group; ++i) most = std::max(most, ++in_bank[words[i].place % 32]);
    all += most;
  }
  return all;
}

/// The blocks to run: first, last, and others in random order.
std::vector<size_t> sample(size_t count) {
  std::vector<size_t> blocks = {0};
  if (count > 1) blocks.push_back(count - 1);
  if (count <= kWhole) {
    for (size_t i = 1; i + 1 < count; ++i) blocks.push_back(i);
    for (size_t i = blocks.size(); i > 3; --i) std::swap(blocks[i - 1], blocks[2 + random_below(i - 2)]);
    return blocks;
  }
  while (blocks.size() < kSample) {
    const size_t next = 1 + random_below(count - 2);
    if (std::find(blocks.begin(), blocks.end(), next) == blocks.end()) blocks.push_back(next);
  }
  return blocks;
}

/// Sectors that the blocks of a sample read or write, as `2 sector + write`.
struct Sectors {
  std::vector<std::pair<uint64_t, uint32_t>> of;  // with the block's number in the sample
  void add(const std::vector<Access>& accesses, uint32_t block) {
    const size_t before = of.size();
    for (const Access& a : accesses) of.emplace_back(a.place * 2 + (a.group & 1), block);
    std::sort(of.begin() + long(before), of.end());
    of.erase(std::unique(of.begin() + long(before), of.end()), of.end());
  }
  template <class W> void sum(Counts& all, W weight) {
    std::sort(of.begin(), of.end());
    for (size_t i = 0, next; i < of.size(); i = next) {
      for (next = i + 1; next < of.size() && of[next].first == of[i].first;) ++next;
      (of[i].first & 1 ? all.memory_written : all.memory_read) += 32 * (next == i + 1 ? weight(of[i].second) : 1);
    }
  }
};

Measured measure(const cudaLaunchConfig_t& config, const Call& call, uint32_t launch) {
  const dim3 g = config.gridDim;
  const size_t count = size_t(g.x) * g.y * g.z;
  const std::vector<size_t> blocks = sample(count);
  Measured m;
  std::vector<Counts> each;
  Sectors sectors;
  trace.numbers.clear(), trace.times.clear(),
      std::fill(std::begin(trace.last), std::end(trace.last), std::pair<const void*, uint32_t>());
  trace.threads = size_t(config.blockDim.x) * config.blockDim.y * config.blockDim.z;
  gridDim = g, blockDim = config.blockDim;
  for (const size_t i : blocks) {
    if (each.size() >= kLeast && m.accesses > kEnough) break;
    blockIdx = {unsigned(i % g.x), unsigned(i / g.x % g.y), unsigned(i / (size_t(g.x) * g.y))};
    trace.begin();
    try {
      run_block(call, config, launch);
    } catch (const Fault& f) {
      m.fault = f.what();
    }
    sort_unique(trace.global);
    trace.counts.sectors = double(trace.global.size()), trace.counts.shared = turns(trace.shared);
    sectors.add(trace.global, uint32_t(each.size()));
    each.push_back(trace.counts), m.accesses += trace.accesses;
  }
  m.sampled = each.size();
  const double between = m.sampled > 2 ? double(count - 2) / double(m.sampled - 2) : 1;
  const auto weight = [&](size_t i) { return i < 2 ? 1 : between; };
  for (size_t i = 0; i < each.size(); ++i) {
    const Counts& c = each[i];
    m.all.read += weight(i) * c.read, m.all.written += weight(i) * c.written;
    m.all.sectors += weight(i) * c.sectors, m.all.shared += weight(i) * c.shared;
    m.all.operations += weight(i) * c.operations;
  }
  sectors.sum(m.all, weight);
  return m;
}

/// What two launches have in common that do the same at other addresses.
std::string signature(const cudaLaunchConfig_t& config, const Call& call) {
  std::string bytes(static_cast<const char*>(call.args), call.size);
  for (size_t i = 0; i < call.count; ++i)
    for (size_t k = 0; k < call.arguments[i].count; ++k) {
      uintptr_t p;
      char* const at = bytes.data() + call.arguments[i].offset + call.arguments[i].pointers[k];
      std::memcpy(&p, at, sizeof p);
      p = p ? 256 + p % 256 : 0;
      std::memcpy(at, &p, sizeof p);
    }
  const auto add = [&](const auto& x) { bytes.append(reinterpret_cast<const char*>(&x), sizeof x); };
  add(call.kernel), add(config.gridDim), add(config.blockDim), add(config.dynamicSmemBytes);
  return bytes;
}

auto& names = *new std::map<const void*, std::string>;
const std::string& name_of(const void* kernel) {
  std::string& name = names[kernel];
  if (name.empty()) name = Label{.call = nullptr, .kernel = kernel}.text();
  return name;
}

}  // namespace

bool counting() {
  static const bool on = std::getenv("TAPIR_EMULATED_COUNT") != nullptr;
  return on;
}

void count_access(const void* p, size_t bytes, bool write, bool global, const void* by) {
  if (++trace.accesses > kMost) fail("too many accesses for one block: it is cut short");
  const size_t thread = threadIdx.x + blockDim.x * (threadIdx.y + size_t(blockDim.y) * threadIdx.z);
  const uint32_t number = trace.number(by);
  const uint32_t time = trace.times[number * trace.threads + thread]++;
  const auto address = reinterpret_cast<uintptr_t>(p);
  if (global) (write ? trace.counts.written : trace.counts.read) += double(bytes);
  for (size_t done = 0; done < bytes; done += 16) {  // no instruction moves more than 16 bytes of a lane
    const uint64_t part = done / 16 % 8, step = global ? 32 : 4;
    const uint64_t group =
        uint64_t(number) << 44 | part << 41 | uint64_t(time) << 6 | thread / 32 << 1 | uint64_t(write);
    const uintptr_t last = address + std::min(done + 16, bytes) - 1;
    for (uintptr_t at = (address + done) / step; at <= last / step; ++at)
      (global ? trace.global : trace.shared).push_back({group, at});
  }
}

void count_operations(double n) { trace.counts.operations += n; }

void count_grid(const cudaLaunchConfig_t& config, const Call& call, uint32_t launch) {
  static auto& known = *new std::unordered_map<std::string, Measured>;
  const dim3 g = config.gridDim, b = config.blockDim;
  const size_t count = size_t(g.x) * g.y * g.z;
  const std::string key = signature(config, call);
  Measured m;
  if (const auto before = known.find(key); before != known.end()) {
    m = before->second;
  } else {
    m = measure(config, call, launch);
    if (m.sampled < count || m.accesses > kEnough) known.emplace(key, m);
  }
  std::fprintf(
      file(),
      "{\"kind\": \"kernel\", \"name\": \"%s\", \"blocks\": %zu, \"threads\": %u, \"sampled\": %zu, \"read\": %.0f, "
      "\"written\": %.0f, \"sectors\": %.0f, \"memory_read\": %.0f, \"memory_written\": %.0f, \"shared\": %.0f",
      name_of(call.kernel).c_str(), count, b.x * b.y * b.z, m.sampled, m.all.read, m.all.written, m.all.sectors,
      m.all.memory_read, m.all.memory_written, m.all.shared);
  if (is_early(config)) std::fprintf(file(), ", \"early\": true");
  if (m.all.operations > 0) std::fprintf(file(), ", \"operations\": %.0f", m.all.operations);
  if (!m.fault.empty()) std::fprintf(file(), ", \"fault\": \"%s\"", m.fault.c_str());
  end_line();
}
void name_kernel(const void* kernel, const std::string& name) {
  const std::lock_guard lock(runtime);
  names[kernel] = name;
}
void count_call(const char* kind, const std::string& name, const Moved& m) {
  std::fprintf(file(), "{\"kind\": \"%s\", \"name\": \"%s\", \"read\": %.0f, \"written\": %.0f", kind, name.c_str(),
               m.read, m.written);
  if (!m.rate.empty())
    std::fprintf(file(), ", \"operations\": %.0f, \"rate\": \"%s\", \"text\": \"%s\"", m.operations, m.rate.c_str(),
                 m.text.c_str());
  end_line();
}
void count_wait(const char* what) {
  std::fprintf(file(), "{\"kind\": \"wait\", \"name\": \"%s\"", what);
  end_line(), std::fflush(file());
}
void push_range(const char* name) {
  if (counting()) ranges().emplace_back(name);
}
void pop_range() {
  if (!ranges().empty()) ranges().pop_back();
}
CountedGraph::CountedGraph() {
  if (!counting()) return;
  count_call("graph", "launch", {});
  in_graph = true;
}
CountedGraph::~CountedGraph() { in_graph = false; }
}  // namespace cuda_emulation
