#include "trace.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <tuple>

#include "error.h"
#include "trace_dump.h"

namespace tapir::inline v0 {
namespace {

struct Tracing {
  BackendTable table;
  const BackendTable* real = nullptr;
};
Tracing tracing[kNumDeviceTypes];
bool logging = false;
std::string dump_dir;
constexpr int64_t kMaxDumps = 100;  // one bad step makes thousands

// ---- arguments: from C++ and back ----
/// The name of an enumerator, cut out of what the compiler writes of a template's argument: "... V = tapir::v0::BinaryOp::Mul; ...".
template <auto V> consteval auto enumerator() {
  std::string_view s = __PRETTY_FUNCTION__;
  s = s.substr(s.find("V = ") + 4);
  s = s.substr(0, s.find_first_of(";]"));
  s = s.substr(s.rfind(':') + 1);
  std::array<char, 24> name{};
  std::copy_n(s.begin(), std::min(s.size(), name.size() - 1), name.begin());
  return name;
}
template <class E> const char* name_of_op(E op) {
  constexpr size_t kMost = 96;
  static constexpr auto names = []<size_t... i>(std::index_sequence<i...>) { return std::array{enumerator<E(i)>()...}; }
  (std::make_index_sequence<kMost>());
  return size_t(op) < kMost ? names[size_t(op)].data() : "?";
}
void flatten(std::vector<TraceArg>& to, const TensorView& v) { to.push_back({.view = v}); }
void flatten(std::vector<TraceArg>& to, std::span<const TensorView> list) {
  to.push_back({.kind = TraceArg::Kind::List, .list = {list.begin(), list.end()}});
}
void flatten(std::vector<TraceArg>& to, const OptimizerLists& l) {
  for (const auto& list : {l.params, l.grads, l.first, l.second, l.third}) flatten(to, list);
}
void flatten(std::vector<TraceArg>& to, const OptimizerScalars& s) {
  for (const TensorView* v : {&s.lr, &s.step, &s.inv_scale, &s.found_inf, &s.beta1, &s.numbers}) flatten(to, *v);
}
template <class P> void flatten(std::vector<TraceArg>& to, const P& params) {
  static_assert(std::is_trivially_copyable_v<P>);
  TraceArg a{.kind = TraceArg::Kind::Bytes, .bytes = std::string(reinterpret_cast<const char*>(&params), sizeof(P))};
  if constexpr (requires { params.op; }) a.op = int(params.op), a.op_name = name_of_op(params.op);
  if constexpr (std::is_same_v<P, Scalar>) a.finite = std::isfinite(params.to_double());
  to.push_back(std::move(a));
}

using Rest = std::span<const TraceArg>;
const TraceArg& take_arg(Rest& rest, TraceArg::Kind kind) {
  check(!rest.empty() && rest.front().kind == kind, "[call_entry] expected {}, got {}",
        kind == TraceArg::Kind::View   ? "a view"
        : kind == TraceArg::Kind::List ? "a list"
                                       : "parameters",
        rest.empty() ? "nothing" : "another kind");
  const TraceArg& first = rest.front();
  rest = rest.subspan(1);
  return first;
}
template <class T> T take(Rest& rest) {
  const auto view = [&] { return take_arg(rest, TraceArg::Kind::View).view; };
  const auto list = [&] { return std::span<const TensorView>(take_arg(rest, TraceArg::Kind::List).list); };
  if constexpr (std::is_same_v<T, TensorView>) return view();
  else if constexpr (std::is_same_v<T, std::span<const TensorView>>) return list();
  else if constexpr (std::is_same_v<T, OptimizerLists>) return T{list(), list(), list(), list(), list()};
  else if constexpr (std::is_same_v<T, OptimizerScalars>) return T{view(), view(), view(), view(), view(), view()};
  else {
    const std::string& bytes = take_arg(rest, TraceArg::Kind::Bytes).bytes;
    check(bytes.size() == sizeof(T), "[call_entry] expected {} bytes of parameters, got {}", int64_t(sizeof(T)),
          int64_t(bytes.size()));
    alignas(T) char raw[sizeof(T)];
    std::memcpy(raw, bytes.data(), sizeof(T));
    return *std::launder(reinterpret_cast<T*>(raw));
  }
}

// ---- what is done around a call ----
std::string text_of(const TensorView& v) {
  if (!v.defined()) return "-";
  if (v.is_scalar) return format("{}", v.scalar);
  std::string s = format("{} {}", v.dtype, v.shape());
  if (!v.is_contiguous()) s += format(" strides {}", v.stride_list());
  return s;
}

class Probe {
 public:
  Probe(const char* entry, Context& ctx) : entry_(entry), ctx_(ctx) {}
  template <class... A> void look_at(const A&... args) {
    (flatten(args_, args), ...);
    if (!dump_dir.empty()) before_.emplace(real(), args_);
  }
  template <class F> auto run(F call) -> decltype(call()) {
    const auto start = std::chrono::steady_clock::now();
    const auto done = [&] {
      if (logging) log(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
      judge();
    };
    try {
      if constexpr (std::is_void_v<decltype(call())>) return call(), done();
      else {
        const auto result = call();
        done();
        return result;
      }
    } catch (const std::exception& e) {
      if (before_) dump(e.what());
      throw;
    }
  }

 private:
  const BackendTable& real() const { return *tracing[int(ctx_.device.type)].real; }
  void log(double us) const {
    std::string line = std::string("[tapir] ") + entry_;
    for (const TraceArg& a : args_)
      if (a.op >= 0) line += std::string("(") + a.op_name + ")";
    const char* separator = "  ";
    for (const TraceArg& a : args_) {
      if (a.kind == TraceArg::Kind::View) line += separator + text_of(a.view);
      if (a.kind == TraceArg::Kind::List)
        line += separator + format("{} x {}", int64_t(a.list.size()), a.list.empty() ? "-" : text_of(a.list[0]));
      if (a.kind != TraceArg::Kind::Bytes) separator = ", ";
    }
    std::fprintf(stderr, "%s  %.1f us\n", line.c_str(), us);
  }
  void judge() {
    if (!before_) return;
    if (ctx_.error.set)
      dump(format("bad value {} at position {}, bound {}", ctx_.error.value, ctx_.error.position, ctx_.error.bound));
    else if (before_->all_finite() && !detail::Snapshot(real(), args_).all_finite())
      dump("NaN or infinity of finite operands");
  }
  void dump(const std::string& reason) {
    static std::atomic<int64_t> next{0};
    const int64_t number = next.fetch_add(1);
    if (number > kMaxDumps) return;
    try {
      if (number == kMaxDumps) std::fprintf(stderr, "[tapir] %d calls dumped: no more of them\n", int(kMaxDumps));
      else before_->write(dump_dir, number, entry_, ctx_.device, reason);
    } catch (const std::exception& e) {  // the program goes on as it would have
      std::fprintf(stderr, "[tapir] %s\n", e.what());
    }
  }

  const char* entry_;
  Context& ctx_;
  std::vector<TraceArg> args_;
  std::optional<detail::Snapshot> before_;
};

// ---- the table ----
template <auto Member, class = decltype(Member)> struct Entry;
template <auto Member, class R, class... A> struct Entry<Member, R (*BackendTable::*)(Context&, A...)> {
  static inline const char* name = "";
  static R call(Context& ctx, A... args) {
    Probe probe(name, ctx);
    probe.look_at(args...);
    return probe.run([&] { return (tracing[int(ctx.device.type)].real->*Member)(ctx, args...); });
  }
  static void replay(const BackendTable& table, Context& ctx, Rest rest) {
    const std::tuple<std::remove_cvref_t<A>...> values{take<std::remove_cvref_t<A>>(rest)...};
    check(rest.empty(), "[call_entry] expected no more arguments, got {}", int64_t(rest.size()));
    std::apply([&](const auto&... v) { (void)(table.*Member)(ctx, v...); }, values);
  }
};

/// New memory is zeroed while dumping: what an output held by chance would count as an operand.
void* allocate_zeroed(int64_t bytes, Device device, void* stream) {
  const BackendTable& real = *tracing[int(device.type)].real;
  void* data = real.allocate(bytes, device, stream);
  static const std::vector<char> zeros(size_t(1) << 20);
  for (int64_t at = 0; data && at < bytes; at += int64_t(zeros.size()))
    real.copy_bytes(static_cast<char*>(data) + at, device, zeros.data(), kCPU,
                    std::min<int64_t>(bytes - at, int64_t(zeros.size())), stream);
  return data;
}

#define X(entry) +1
constexpr int kEntries = TAPIR_KERNEL_ENTRIES(X);
#undef X
static_assert(sizeof(BackendTable) == sizeof(void*) * (kEntries + 6),
              "TAPIR_KERNEL_ENTRIES must name every kernel entry of the table");

}  // namespace

const BackendTable& make_traced(const BackendTable& real, DeviceType type, bool log, const std::string& dump) {
  Tracing& t = tracing[int(type)];
  t.table = real;
  t.real = &real;
  logging = log, dump_dir = dump;
#define X(entry)                               \
  Entry<& BackendTable::entry>::name = #entry; \
  if (real.entry) t.table.entry = Entry<&BackendTable::entry>::call;
  TAPIR_KERNEL_ENTRIES(X)
#undef X
  if (!dump.empty()) t.table.allocate = allocate_zeroed;
  return t.table;
}

const BackendTable& traced(const BackendTable& real, DeviceType type) {
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text ? text : "");
  };
  const std::string log = variable("TAPIR_LOG"), dump = variable("TAPIR_DUMP");
  if (log.find("ops") == std::string::npos && dump.empty()) return real;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  Tracing& t = tracing[int(type)];
  return t.real == &real ? t.table : make_traced(real, type, log.find("ops") != std::string::npos, dump);
}

void call_entry(const BackendTable& table, std::string_view entry, Context& ctx, std::span<const TraceArg> args) {
#define X(e)                                                                                         \
  if (entry == #e) {                                                                                 \
    check(table.e != nullptr, "[call_entry] expected an entry that this device has, got {}", entry); \
    return Entry<&BackendTable::e>::replay(table, ctx, args);                                        \
  }
  TAPIR_KERNEL_ENTRIES(X)
#undef X
  fail(ErrorKind::Value, "[call_entry] expected the name of a kernel entry, got \"{}\"", entry);
}

}  // namespace tapir::inline v0
