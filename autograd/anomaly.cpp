#include "anomaly.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
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
/// A source of the library's, or of what lies between a caller and what it calls.
static bool is_our_source(const std::string& file) {
  const std::string path = std::filesystem::path(file).lexically_normal().string();
  constexpr std::string_view root = TAPIR_SOURCE_DIR "/";
  if (!path.starts_with(root))
    return path.find("/include/tapir/") != std::string::npos || path.find("/include/c++/") != std::string::npos;
  for (const char* folder : {"tests/", "samples/", "benchmarks/"})
    if (path.compare(root.size(), std::strlen(folder), folder) == 0) return false;
  return true;
}

/// A frame that may be the user's.
struct Frame {
  std::string file, symbol;
  uintptr_t offset;
};

/// A line of addr2line's: "in function at file:line", or what is known of it; empty for what has no debug information. The file tells whose it is:
/// a lambda of the user's that is inlined may bear the name of the function around it.
struct Line {
  std::string text;
  bool users = false;
};
static Line line_of(std::string answer) {
  answer.erase(std::min(answer.find(" (discriminator"), answer.size()));
  const size_t at = answer.find(" at ");
  if (at == std::string::npos || answer.starts_with("??")) return {};
  const std::string function = answer.substr(0, at), place = answer.substr(at + 4),
                    file = place.substr(0, place.rfind(':'));
  if (file == "??") return {"in " + function, !is_ours(function)};
  const std::string line = "at " + place.substr(place.rfind('/') + 1);
  if (!is_ours(function)) return {"in " + function + " " + line, !is_our_source(file)};
  return {line, file.find('/') != std::string::npos && !function.starts_with("__libc_") && !is_our_source(file)};
}

using KnownLines = std::map<std::pair<std::string, uintptr_t>, Line>;

/// Asks LLVM's addr2line or, forty times slower in a large program, GNU's, where one is installed, for the line of frame i and of all behind it in
/// the same file, up to the first that is the user's.
static void ask_lines(const std::vector<Frame>& frames, size_t i, KnownLines& known) {
  const std::string& file = frames[i].file;
  known.try_emplace({file, frames[i].offset});  // whatever comes, it is asked once
  if (file.find('\'') != std::string::npos) return;
  std::string command = "\"$(command -v llvm-addr2line || echo addr2line)\" -Cfipe '" + file + "'";
  std::vector<uintptr_t> offsets;
  char text[24];
  for (size_t k = i; k < frames.size(); ++k) {
    const uintptr_t offset = frames[k].offset;
    if (frames[k].file != file || (k > i && known.contains({file, offset}))) continue;
    offsets.push_back(offset);
    std::snprintf(text, sizeof(text), " 0x%zx", size_t(offset)), command += text;
  }
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return;
  char* buffer = nullptr;
  size_t size = 0, next = 0;
  constexpr std::string_view kInlined = " (inlined by) ";  // before what the line above was inlined into
  Line line;
  while (!line.users && getline(&buffer, &size, pipe) >= 0) {
    const std::string_view answer(buffer, std::strcspn(buffer, "\n"));
    const bool inlined = answer.starts_with(kInlined) && next > 0;
    if (!inlined && next == offsets.size()) break;
    line = line_of(std::string(answer.substr(inlined ? kInlined.size() : 0)));
    known[{file, offsets[inlined ? next - 1 : next++]}] = line;
  }
  if (!line.users)
    while (next < offsets.size()) known[{file, offsets[next++]}];  // addr2line is not there, or knows no such file
  std::free(buffer);
  pclose(pipe);
}

/// The file of this program, wherever it was started from.
static const std::string& program() {
  static const std::string file = [] {
    std::error_code none;
    return std::filesystem::read_symlink("/proc/self/exe", none).string();
  }();
  return file;
}

std::string describe(const CallSite* site) {
  if (!site) return "";
  std::string where;
  std::vector<Frame> frames;
  for (int i = 0; i < site->count; ++i) {
    Dl_info in;
    link_map* map;
    if (!dladdr1(site->frames[i], &in, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP)) continue;
    std::string symbol = in.dli_sname ? demangled(in.dli_sname) : "";
    if (is_ours(symbol)) continue;
    const uintptr_t offset = reinterpret_cast<uintptr_t>(site->frames[i]) - map->l_addr - 1;
    frames.push_back({*map->l_name ? map->l_name : program(), std::move(symbol), offset});
  }
  static std::mutex mutex;
  static KnownLines lines;
  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < frames.size() && where.empty(); ++i) {
    if (!lines.contains({frames[i].file, frames[i].offset})) ask_lines(frames, i, lines);
    const Line& line = lines[{frames[i].file, frames[i].offset}];
    if (line.users) where = "called " + line.text;
    else if (line.text.empty() && !frames[i].symbol.empty()) where = "called in " + frames[i].symbol;
  }
  const std::string path = path_of(site->modules);
  if (!path.empty()) where += (where.empty() ? "in module " : "; in module ") + path;
  return where.empty() ? "" : " (" + where + ")";
}

}  // namespace tapir::inline v0
