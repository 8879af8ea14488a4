// NVRTC's interface as it is where something is wrong with it. TAPIR_NVRTC says what: its version, and then "works", "breaks" (it compiles
// nothing, as where its second library is missing) or "empties" (it gives an empty binary from the second text on).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

int major_version = 0, minor_version = 0, compiled = 0;
char does[16] = "";
const bool was_read = [] {
  const char* text = std::getenv("TAPIR_NVRTC");
  return text && std::sscanf(text, "%d.%d %15s", &major_version, &minor_version, does) == 3;
}();
constexpr char kLog[] = "failed to open libnvrtc-builtins.so", kBinary[] = "a binary";
struct Program {
  bool empty;
};

}  // namespace

extern "C" {
int nvrtcVersion(int* major, int* minor) { return *major = major_version, *minor = minor_version, was_read ? 0 : 1; }
int nvrtcGetNumSupportedArchs(int* count) { return *count = 2, 0; }
int nvrtcGetSupportedArchs(int* list) { return list[0] = 80, list[1] = 90, 0; }
int nvrtcCreateProgram(Program** p, const char*, const char*, int, const char* const*, const char* const*) {
  return *p = new Program{compiled++ > 0 && std::string_view(does) == "empties"}, 0;
}
int nvrtcDestroyProgram(Program** p) { return delete *p, 0; }
int nvrtcCompileProgram(Program*, int, const char* const*) { return std::string_view(does) == "breaks" ? 7 : 0; }
int nvrtcGetProgramLogSize(Program*, size_t* size) { return *size = sizeof kLog, 0; }
int nvrtcGetProgramLog(Program*, char* log) { return std::memcpy(log, kLog, sizeof kLog), 0; }
int nvrtcGetCUBINSize(Program* p, size_t* size) { return *size = p->empty ? 0 : sizeof kBinary, 0; }
int nvrtcGetCUBIN(Program*, char* to) { return std::memcpy(to, kBinary, sizeof kBinary), 0; }
int nvrtcGetPTXSize(Program* p, size_t* size) { return nvrtcGetCUBINSize(p, size); }
int nvrtcGetPTX(Program* p, char* to) { return nvrtcGetCUBIN(p, to); }
}
