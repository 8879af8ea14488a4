#include "anomaly.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <unwind.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace tapir::inline v0 {

constexpr int kFrames = 24;  // the user's own are among the first that are not ours

struct CallSite {
  void* frames[kFrames];
  int count = 0;
  std::string modules;  // innermost first, mangled, each ended by a line break
};

// Not backtrace() of <execinfo.h>: where a sanitizer replaces that, the innermost frame is the sanitizer's.
static _Unwind_Reason_Code add_frame(_Unwind_Context* context, void* into) {
  auto* site = static_cast<CallSite*>(into);
  site->frames[site->count++] = reinterpret_cast<void*>(_Unwind_GetIP(context));
  return site->count < kFrames ? _URC_NO_REASON : _URC_END_OF_STACK;
}

CallSite* make_call_site() {
  auto* site = new CallSite;
  _Unwind_Backtrace(add_frame, site);
  for (const ModuleCall* m = modes.module; m; m = m->outer) site->modules.append(m->type) += '\n';
  return site;
}
void free_call_site(CallSite* site) { delete site; }

static std::string demangled(const std::string& name) {
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr);
  std::string s = text ? text : name;
  std::free(text);
  return s;
}

/// "Net > Linear" from the list of a call site.
static std::string path_of(const std::string& modules) {
  std::string path;
  for (size_t at = 0, end; (end = modules.find('\n', at)) != std::string::npos; at = end + 1) {
    std::string type = demangled(modules.substr(at, end - at));
    if (const size_t colons = type.rfind("::"); colons != std::string::npos) type = type.substr(colons + 2);
    path = path.empty() ? type : type + " > " + path;
  }
  return path;
}

/// "function at file:line" of each of those places by the program addr2line, where it is installed; without what has no debug information.
static std::vector<std::string> ask_lines(const std::string& file, const std::vector<uintptr_t>& offsets) {
  std::vector<std::string> lines(offsets.size());
  if (file.find('\'') != std::string::npos) return lines;
  std::string command = "addr2line -Cfpse '" + file + "'";
  char text[24];
  for (const uintptr_t offset : offsets) std::snprintf(text, sizeof(text), " 0x%zx", size_t(offset)), command += text;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return lines;
  char* buffer = nullptr;
  size_t size = 0;
  for (std::string& line : lines) {
    if (getline(&buffer, &size, pipe) < 0) break;
    const std::string s(buffer, std::strcspn(buffer, "\n"));
    const size_t at = s.find(" at ");
    if (at == std::string::npos || s.starts_with("??")) continue;
    line = s.find("??:", at) == std::string::npos ? s : s.substr(0, at);
  }
  std::free(buffer);
  pclose(pipe);
  return lines;
}

/// A frame that may be the user's.
struct Frame {
  std::string file, symbol;
  uintptr_t offset;
};
/// The line of frame i. A place is looked up once, with all others of its file: a large program takes a second.
static std::string line_of(const std::vector<Frame>& frames, size_t i) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, uintptr_t>, std::string> known;
  const std::string& file = frames[i].file;
  const std::lock_guard lock(mutex);
  if (!known.contains({file, frames[i].offset})) {
    std::vector<uintptr_t> offsets;
    for (const Frame& f : frames)
      if (f.file == file) offsets.push_back(f.offset);
    const std::vector<std::string> lines = ask_lines(file, offsets);
    for (size_t k = 0; k < offsets.size(); ++k) known.try_emplace({file, offsets[k]}, lines[k]);
  }
  return known[{file, frames[i].offset}];
}

/// "Net::step" of "Tensor Net::step<int>(Tensor const&) const": no types, for those of a user's function may be ours.
static std::string plain_name(const std::string& function) {
  std::string out;
  int depth = 0;
  for (const char c : function) {
    const bool opens = c == '(' || c == '<' || c == '[' || c == '{',
               closes = c == ')' || c == '>' || c == ']' || c == '}';
    if (opens) ++depth;
    else if (closes) depth = depth > 0 ? depth - 1 : 0;
    else if (depth == 0) out += c;
  }
  while (out.ends_with(' ')) out.pop_back();  // "f() [clone .cold]"
  for (const char* end : {" &&", " &", " const"})
    if (out.ends_with(end)) out.erase(out.rfind(' '));
  return out.substr(out.rfind(' ') + 1);
}
/// A function of the library's, or one between a caller and what it calls. What nobody could demangle is known by its namespace.
static bool is_ours(const std::string& function) {
  if (function.starts_with("_Z")) return function.find("5tapir") != std::string::npos;
  const std::string name = plain_name(function);
  return name.starts_with("tapir::") || name.starts_with("std::") || name.starts_with("__libc_") || name == "_start";
}

std::string describe(const CallSite* site) {
  if (!site) return "";
  std::string where;
  std::vector<Frame> frames;
  for (int i = 0; i < site->count; ++i) {
    Dl_info in;
    if (!dladdr(site->frames[i], &in) || !in.dli_fname) continue;
    std::string symbol = in.dli_sname ? demangled(in.dli_sname) : "";
    const auto from = reinterpret_cast<uintptr_t>(in.dli_fbase);
    if (!is_ours(symbol))
      frames.push_back({in.dli_fname, std::move(symbol), reinterpret_cast<uintptr_t>(site->frames[i]) - from - 1});
  }
  for (size_t i = 0; i < frames.size() && where.empty(); ++i) {
    const std::string &line = line_of(frames, i), &symbol = frames[i].symbol;
    if (!line.empty() && !is_ours(line.substr(0, line.rfind(" at ")))) where = "called in " + line;
    else if (line.empty() && !symbol.empty()) where = "called in " + symbol;
  }
  const std::string path = path_of(site->modules);
  if (!path.empty()) where += (where.empty() ? "in module " : "; in module ") + path;
  return where.empty() ? "" : " (" + where + ")";
}

}  // namespace tapir::inline v0
