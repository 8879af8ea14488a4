// Failing: Faults, the names of kernels, and the handler of accesses to closed memory.
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <unordered_map>

#include "runtime.h"

namespace cuda_emulation {
namespace {

using Symbols = std::unordered_map<uint64_t, std::string>;  // of functions, by their place in the file
/// From the file's full table, read once: kernels are often local, and dladdr sees exported ones alone.
const Symbols& symbols_of(const Dl_info& info) {
  static auto& files = *new std::map<std::string, Symbols>;
  const auto [place, fresh] = files.try_emplace(info.dli_fname);
  const int file = fresh ? open(info.dli_fname, O_RDONLY | O_CLOEXEC) : -1;
  struct stat status {};
  if (file < 0) return place->second;
  void* image =
      fstat(file, &status) == 0 ? mmap(nullptr, size_t(status.st_size), PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  close(file);
  if (image == MAP_FAILED) return place->second;
  const char* bytes = static_cast<const char*>(image);
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(bytes);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes + header->e_shoff);
  const uint64_t base = header->e_type == ET_EXEC ? reinterpret_cast<uint64_t>(info.dli_fbase) : 0;
  for (int s = 0; s < header->e_shnum; ++s) {
    if (sections[s].sh_type != SHT_SYMTAB && sections[s].sh_type != SHT_DYNSYM) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(bytes + sections[s].sh_offset);
    for (size_t i = 0; i < sections[s].sh_size / sizeof(Elf64_Sym); ++i)
      if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC)
        place->second[symbols[i].st_value - base] =
            bytes + sections[sections[s].sh_link].sh_offset + symbols[i].st_name;
  }
  munmap(image, size_t(status.st_size));
  return place->second;
}

struct sigaction before {};  // whose faults they are that are not ours
void* frames[64];
int frame_count = 0;
char message[1024];

[[noreturn]] void terminate_with_message() {  // the code that faulted was compiled without -fnon-call-exceptions
  std::fprintf(stderr, "\n%s\n", message);
  backtrace_symbols_fd(frames, frame_count, 2);
  std::abort();
}

void on_fault(int signal, siginfo_t* info, void*) {
  const void* p = info->si_addr;
  const bool ours = info->si_code > 0 && is_device_pointer(p);
  if (kernel_runs()) {
    Allocation* a = ours ? find(p) : nullptr;
    if (a && p >= a->pages && p < a->pages + a->bytes && a->state != Allocation::Writable)
      return touch(*a, a->state == Allocation::Readable);
    if (ours) fail_outside(p, a);
    fail("touches an address that is mapped nowhere (or overflows its stack)");
  }
  if (ours) {
    const Allocation* a = find(p);
    std::string text = works_here() ? "[" + work->label.text() + "] touches device memory that it did not announce"
                                    : "host code used a device pointer";
    if (a) text += ", into " + describe(*a);
    std::snprintf(message, sizeof message, "%s", text.c_str());
    frame_count = backtrace(frames, 64);
    std::set_terminate(terminate_with_message);
    throw Fault(text);
  }
  // Not ours: the instruction is tried again under the handler that was there before us, once; after that it may kill.
  static bool passed_on = false;
  if (passed_on) before = {}, before.sa_handler = SIG_DFL;
  passed_on = true;
  sigaction(signal, &before, nullptr);
}

struct SignalStack {  // of a thread: so that a fiber's overflow can be told too
  void* memory = nullptr;
  SignalStack() {
    stack_t s{};
    if (sigaltstack(nullptr, &s) == 0 && !(s.ss_flags & SS_DISABLE)) return;
    s = {};
    s.ss_size = 64 << 10, s.ss_sp = memory = std::malloc(s.ss_size);
    sigaltstack(&s, nullptr);
  }
  ~SignalStack() {
    if (!memory) return;
    stack_t now{}, off{};
    off.ss_flags = SS_DISABLE;
    if (sigaltstack(nullptr, &now) == 0 && now.ss_sp == memory) sigaltstack(&off, nullptr);
    std::free(memory);
  }
};
}  // namespace

std::string symbol_of(const void* kernel, bool own) {
  Dl_info info, here;
  if (!dladdr(kernel, &info)) return {};
  if (own && (!dladdr(&before, &here) || here.dli_fbase != info.dli_fbase)) return {};
  const Symbols& symbols = symbols_of(info);
  const auto at = symbols.find(uint64_t(static_cast<const char*>(kernel) - static_cast<const char*>(info.dli_fbase)));
  return at == symbols.end() ? std::string() : at->second;
}

std::string Label::text() const {
  if (!kernel) return call ? call : "?";
  std::string name = symbol_of(kernel);
  if (name.empty()) return "a kernel without a name (the file is stripped)";
  std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr), std::free);
  if (text) name = text.get();
  int depth =
      0;  // cut the parameters: the parenthesis that is in no angle bracket and opens no "(anonymous namespace)"
  for (size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<', depth -= name[i] == '>';
    if (depth == 0 && name[i] == '(' && name.compare(i, 11, "(anonymous ") != 0) name.resize(i);
  }
  return name.starts_with("void ") ? name.substr(5) : name;
}

void fail(const std::string& why) {
  const std::string text = "[" + (work ? work->label.text() : std::string("cuda")) + "] ";
  if (kernel_runs()) abandon_kernel(text + place() + why);
  throw Fault(text + why);
}

void watch_memory() {
  static thread_local SignalStack stack;
  (void)stack;
  struct sigaction now {};
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) return;
  before = now;
  struct sigaction ours {};
  ours.sa_sigaction = on_fault, ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &ours, nullptr);
}

}  // namespace cuda_emulation
