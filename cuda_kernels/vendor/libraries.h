#pragma once
#include <atomic>
#include <cstdint>
#include <string>

// CUDA's libraries that the plugin opens while it runs: it loads, and says what is missing, where they are not. And what they were asked for.
namespace tapir::inline v0::cuda_kernels {

enum class Vendor : uint8_t { CublasLt, Cublas, Cusolver, Cudnn };
/// Opened at the first call. Empty where its functions can be called, else the places that were tried; calls are errors then (status 1).
const std::string& why_not(Vendor library);
/// "cuBLASLt 13.0.2 (/usr/local/cuda/lib64/libcublasLt.so.13)", or what is missing. Opens it.
std::string describe(Vendor library);

/// What became of the calls of one signature.
struct Tally {
  std::atomic<int64_t> served{0}, refused{0};
};
/// Made at the first call with that text, and never destroyed. For each plan once: it takes a lock.
Tally& tally_of(Vendor library, const std::string& call);
/// Counts a refusal and keeps the library's words for the first one.
void count_refusal(Tally& tally, const std::string& why);
/// The libraries and the tallies as a text for people: every refused signature with its count and the library's words.
std::string library_report();

}  // namespace tapir::inline v0::cuda_kernels
