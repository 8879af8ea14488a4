#include "profiler.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "../core/error.h"
#include "../io/file.h"
#include "../io/json.h"
#include "table.h"
#include "terminal.h"

namespace tapir::inline v0::profiler {
namespace {

/// "[2, 3] [3]"
std::string shapes_text(const ThreadRecording& thread, const Event& e, std::string_view open, std::string_view close,
                        std::string_view between, std::string_view absent) {
  std::string out;
  if (e.shapes < 0) return out;
  const int64_t* at = thread.shapes.data() + e.shapes;
  for (int64_t inputs = *at++; inputs > 0; --inputs) {
    if (!out.empty()) out += between;
    const int64_t rank = *at++;
    if (rank < 0) out += absent;
    else out += open;
    for (int64_t d = 0; d < rank; ++d) (out += d ? ", " : "") += std::to_string(*at++);
    if (rank >= 0) out += close;
  }
  return out;
}

/// Events in the order in which they began, what encloses others first.
std::vector<size_t> nested(const std::vector<Event>& events) {
  std::vector<size_t> order(events.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t i, size_t k) {
    const Event &a = events[i], &b = events[k];
    return std::tuple(a.begin, -a.end, k) < std::tuple(b.begin, -b.end, i);  // of two alike the outer one ended last
  });
  return order;
}

/// Names are made once for each that events point to.
class Names {
 public:
  const std::string& of(const Event& e) {
    std::string& name = known_[{int(e.kind), e.name, e.detail}];
    if (name.empty()) name = train::plain(shown_name(e));
    return name;
  }

 private:
  std::map<std::tuple<int, const char*, const char*>, std::string> known_;
};

/// Adds up the events of a thread by name.
class Sums {
 public:
  explicit Sums(bool by_shape) : by_shape_(by_shape) {}
  void add(const ThreadRecording& thread) {
    for (const size_t i : nested(thread.events)) {
      const Event& e = thread.events[i];
      while (!stack_.empty() && e.begin >= stack_.back().end && e.end > stack_.back().end) leave();
      const int64_t span = e.span < 0 ? 0 : thread.spans[size_t(e.span)].end - thread.spans[size_t(e.span)].begin;
      const bool part = e.kind == Kind::Kernel && !stack_.empty() && stack_.back().kind == Kind::Op;
      if (!part) enter(thread, e);
      Open& o = stack_.back();
      o.self_cuda += span, o.bytes += e.bytes, o.work.flops += e.work.flops, o.work.bytes += e.work.bytes;
    }
    while (!stack_.empty()) leave();
  }
  std::vector<ProfileRow> rows;

 private:
  struct Open {
    Kind kind;
    int64_t row, begin, end, inner = 0;  // inner: time of the rows within
    int64_t self_cuda = 0, inner_cuda = 0, bytes = 0, inner_bytes = 0;
    entry::Work work = {};
  };
  void enter(const ThreadRecording& thread, const Event& e) {
    const std::string shapes = by_shape_ ? shapes_text(thread, e, "[", "]", " ", "-") : "";
    const auto [at, fresh] = row_of_.try_emplace(names_.of(e) + '\n' + shapes, int64_t(rows.size()));
    if (fresh) rows.push_back({.name = names_.of(e), .input_shapes = shapes}), depth_.push_back(0);
    ++depth_[size_t(at->second)];
    stack_.push_back({.kind = e.kind, .row = at->second, .begin = e.begin, .end = e.end});
  }
  void leave() {
    const Open o = stack_.back();
    stack_.pop_back();
    const int64_t time = o.end - o.begin, cuda = o.self_cuda + o.inner_cuda, bytes = o.bytes + o.inner_bytes;
    ProfileRow& row = rows[size_t(o.row)];
    ++row.count;
    row.self_cpu += double(time - o.inner) * 1e-9, row.self_cuda += double(o.self_cuda) * 1e-9;
    row.self_bytes += o.bytes, row.flops += o.work.flops, row.traffic += o.work.bytes;
    if (--depth_[size_t(o.row)] == 0)
      row.cpu += double(time) * 1e-9, row.cuda += double(cuda) * 1e-9, row.bytes += bytes;
    if (!stack_.empty())
      stack_.back().inner += time, stack_.back().inner_cuda += cuda, stack_.back().inner_bytes += bytes;
  }
  bool by_shape_;
  Names names_;
  std::unordered_map<std::string, int64_t> row_of_;
  std::vector<int64_t> depth_;  // how often each row is open: what calls itself counts once
  std::vector<Open> stack_;
};

double sort_key(const ProfileRow& r, const std::string& by) {
  const std::pair<const char*, double> keys[] = {{"self_cpu_time_total", r.self_cpu},
                                                 {"cpu_time_total", r.cpu},
                                                 {"self_cuda_time_total", r.self_cuda},
                                                 {"cuda_time_total", r.cuda},
                                                 {"self_memory_usage", double(r.self_bytes)},
                                                 {"memory_usage", double(r.bytes)},
                                                 {"count", double(r.count)}};
  for (const auto& [name, value] : keys)
    if (by == name) return value;
  fail(ErrorKind::Value,
       "[Profile] expected sort_by to be self_cpu_time_total, cpu_time_total, self_cuda_time_total, cuda_time_total, "
       "self_memory_usage, memory_usage or count, got \"{}\"",
       by);
}

/// "1.234 ms"
std::string time_text(double seconds) {
  if (seconds < 1e-3) return train::fixed(seconds * 1e6, 1) + " us";
  return seconds < 1 ? train::fixed(seconds * 1e3, 3) + " ms" : train::fixed(seconds, 3) + " s";
}

/// Billions per second of the time that the row's own kernels took; "-" where there is nothing to count.
std::string rate_text(double count, const ProfileRow& r) {
  const double seconds = r.self_cuda > 0 ? r.self_cuda : r.self_cpu;
  return count > 0 && seconds > 0 ? train::fixed(count / seconds * 1e-9, 1) : "-";
}

// ---- the trace ----
class Trace {
 public:
  explicit Trace(const Recording& r) : pid_("\"pid\": " + std::to_string(getpid()) + ", \"tid\": ") {
    for (size_t t = 0; t < r.threads.size(); ++t) add_thread(r.threads[t], t);
    for (auto& [stream, spans] : streams_) add_stream(stream, spans);
    text_ = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" + text_ + "\n]}\n";
  }
  std::string text_;

 private:
  struct Span {
    int64_t begin, end;
    std::string name;
  };
  using Stream = std::pair<int, void*>;  // device and queue

  static std::string json(const std::string& s) {
    std::string out;
    io::append_json_string(out, io::valid_utf8(s) ? s : io::shown(s));
    return out;
  }
  static std::string micro(int64_t ns) { return train::fixed(double(ns) * 1e-3, 3); }
  void put(const std::string& event) { (text_ += text_.empty() ? "{" : ",\n{") += event + "}"; }
  void complete(size_t track, const std::string& name, const char* category, int64_t begin, int64_t end,
                const std::string& args) {
    put("\"ph\": \"X\", \"name\": " + json(name) + ", \"cat\": \"" + category + "\", " + pid_ + std::to_string(track) +
        ", \"ts\": " + micro(begin) + ", \"dur\": " + micro(end - begin) + ", \"args\": {" + args + "}");
  }
  void name_track(size_t track, const std::string& name) {
    for (const auto& [key, value] : {std::pair<std::string, std::string>{"thread_name", "\"name\": " + json(name)},
                                     {"thread_sort_index", "\"sort_index\": " + std::to_string(track)}})
      put("\"ph\": \"M\", \"name\": \"" + key + "\", " + pid_ + std::to_string(track) + ", \"args\": {" + value + "}");
  }

  void add_thread(const ThreadRecording& thread, size_t track) {
    static const char* const categories[] = {"op", "kernel", "module", "backward", "optimizer", "loader", "user"};
    name_track(track, track ? thread.name + " (" + std::to_string(track) + ")" : "main (" + thread.name + ")");
    for (const size_t i : nested(thread.events)) {
      const Event& e = thread.events[i];
      std::string args = e.bytes ? "\"bytes\": " + std::to_string(e.bytes) : "";
      if (e.shapes >= 0)
        (args += args.empty() ? "" : ", ") += "\"shapes\": [" + shapes_text(thread, e, "[", "]", ", ", "null") + "]";
      complete(track, names_.of(e), categories[int(e.kind)], e.begin, e.end, args);
      if (e.span < 0) continue;
      const DeviceSpan& span = thread.spans[size_t(e.span)];
      streams_[{span.device.index, span.stream}].push_back({span.begin, span.end, names_.of(e)});
    }
    for (const MemoryPoint& p : thread.memory)
      put("\"ph\": \"C\", \"name\": \"memory of " + p.device.str() + "\", " + pid_ + "0, \"ts\": " + micro(p.time) +
          ", \"args\": {\"allocated\": " + std::to_string(p.allocated) + "}");
  }
  /// What runs on a stream runs one after the other; the clock of its events is coarser than that.
  void add_stream(const Stream& stream, std::vector<Span>& spans) {
    const size_t track = 1000 + number_++;
    name_track(track, tapir::format("cuda:{} stream {}", int64_t(stream.first), int64_t(number_)));
    std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    int64_t last = 0;
    for (const Span& s : spans) {
      const int64_t begin = std::max(s.begin, last), end = std::max(s.end, begin);
      complete(track, s.name, "kernel", begin, end, "");
      last = end;
    }
  }
  std::string pid_;
  Names names_;
  std::map<Stream, std::vector<Span>> streams_;
  size_t number_ = 0;
};

}  // namespace

Profile::Profile(const ProfileOptions& options) { start_recording(options); }
Profile::~Profile() {
  try {
    stop();
  } catch (...) {  // a device that failed has said so elsewhere
  }
}
void Profile::stop() {
  if (std::exchange(running_, false)) recording_ = stop_recording();
}
const Recording& Profile::recording() const {
  check(!running_, "[Profile] expected stop() before its results are asked for");
  return recording_;
}
double Profile::duration() const { return double(recording().duration) * 1e-9; }

std::vector<ProfileRow> Profile::key_averages(const TableOptions& o) const {
  Sums sums(o.group_by_input_shape);
  for (const ThreadRecording& thread : recording().threads) sums.add(thread);
  sort_key({}, o.sort_by);
  std::stable_sort(sums.rows.begin(), sums.rows.end(), [&](const ProfileRow& a, const ProfileRow& b) {
    return sort_key(a, o.sort_by) > sort_key(b, o.sort_by);
  });
  return std::move(sums.rows);
}

std::string Profile::table(const TableOptions& o) const {
  const std::vector<ProfileRow> rows = key_averages(o);
  double cpu = 0, cuda = 0;
  size_t width = 4;
  for (const ProfileRow& r : rows) cpu += r.self_cpu, cuda += r.self_cuda, width = std::max(width, r.name.size());
  width = std::min<size_t>(width, 44);
  std::vector<std::string> columns = {"    calls", "  self CPU",  "self %",    " CPU total",
                                      " CPU avg.", "     memory", "  GFLOP/s", "   GB/s"};
  if (cuda > 0) columns.insert(columns.end(), {" self CUDA", "CUDA total"});
  const train::Table numbers(columns, -1, 1);
  const auto line = [&](const std::string& name, const std::vector<std::string>& cells, const std::string& shapes) {
    const std::string head = name.size() > width ? name.substr(0, width - 3) + "..." : name;
    return head + std::string(width - head.size(), ' ') + numbers.line(cells) + (shapes.empty() ? "" : "  " + shapes) +
           "\n";
  };
  std::string out = line("name", columns, o.group_by_input_shape ? "input shapes" : "");
  const double all = duration();
  for (int64_t i = 0; i < std::min(o.row_limit, int64_t(rows.size())); ++i) {
    const ProfileRow& r = rows[size_t(i)];
    std::vector<std::string> cells = {std::to_string(r.count),
                                      time_text(r.self_cpu),
                                      train::fixed(all > 0 ? r.self_cpu / all * 100 : 0, 1),
                                      time_text(r.cpu),
                                      time_text(r.cpu / double(r.count)),
                                      train::bytes_text(double(r.self_bytes)),
                                      rate_text(r.flops, r),
                                      rate_text(r.traffic, r)};
    if (cuda > 0) cells.insert(cells.end(), {time_text(r.self_cuda), time_text(r.cuda)});
    out += line(r.name, cells, r.input_shapes);
  }
  if (int64_t(rows.size()) > o.row_limit) out += tapir::format("... and {} more\n", int64_t(rows.size()) - o.row_limit);
  const size_t threads = recording().threads.size();
  out += "recorded " + time_text(all) + " in " + std::to_string(threads) + (threads == 1 ? " thread" : " threads") +
         "; self CPU " + time_text(cpu);
  return out + (cuda > 0 ? ", CUDA " + time_text(cuda) : "") + "\n";
}

void Profile::export_chrome_trace(const std::string& path) const {
  io::write_file("export_chrome_trace", path, Trace(recording()).text_);
}

}  // namespace tapir::inline v0::profiler
