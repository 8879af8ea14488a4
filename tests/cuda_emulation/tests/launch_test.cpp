// core/cuda_launch.h: the one way to start a kernel (BI-119).
#include <tapir/core/cuda_launch.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "../../catch.h"

using namespace tapir;

namespace {
__global__ void count_up(int* out, int64_t n) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x)
    out[i] = int(i);
}
/// The text of the RuntimeError that a launch with that grid throws, or nothing.
std::string refusal(const cuda::Grid& grid) {
  try {
    cuda::launch_on(kCUDA, nullptr, "count_up", grid, count_up, nullptr, 0);
  } catch (const RuntimeError& e) {
    return e.what();
  }
  return "";
}
}  // namespace

TEST_CASE("a launch: an empty grid is none, a large one loops") {
  CHECK(refusal(cuda::grid_of(0)).empty());
  CHECK(refusal({dim3(1, 0, 1), dim3(32)}).empty());
  const int64_t n = 10000;
  int* there = nullptr;
  REQUIRE(cudaMalloc(&there, size_t(n) * sizeof(int)) == cudaSuccess);
  cuda::launch_on(kCUDA, nullptr, "count_up", cuda::grid_of(n, 64, 3), count_up, there, n);  // 3 blocks for all
  std::vector<int> here(static_cast<size_t>(n));
  REQUIRE(cudaMemcpy(here.data(), there, here.size() * sizeof(int), cudaMemcpyDeviceToHost) == cudaSuccess);
  for (int64_t i = 0; i < n; ++i) REQUIRE(here[size_t(i)] == int(i));
  cudaFree(there);
  CHECK(cuda::grid_of(int64_t(1) << 50).blocks.x == 1u << 16);
}

TEST_CASE("a launch that CUDA refuses is a RuntimeError with the operation and the grid") {
  for (const cuda::Grid& grid : {cuda::Grid{dim3(1), dim3(2048)}, cuda::Grid{dim3(1, 70000), dim3(32)},
                                 cuda::Grid{dim3(1), dim3(32), size_t(1) << 20}}) {
    const std::string text = refusal(grid);
    CHECK(text.find("[count_up] CUDA: ") == 0);
    CHECK(text.find(std::to_string(grid.threads.x)) != std::string::npos);
    CHECK(cudaGetLastError() == cudaSuccess);
  }
}

TEST_CASE("child: a launch without code for the device", "[.child]") {
  CHECK(refusal(cuda::grid_of(64)) ==
        "[count_up] expected a device of the architectures that it was compiled for (those of its nvcc call), "
        "got compute capability 7.5: compile it for 75 too, with CMAKE_CUDA_ARCHITECTURES");
}
TEST_CASE("a launch without code for the device says how to compile it") {
  CHECK(tapir_tests::run_alone("TAPIR_EMULATED_CAPABILITY=75", "child: a launch without code for the device") == 0);
}

TEST_CASE("child: launches", "[.child]") {
  for (const unsigned threads : {32u, 96u})
    cuda::launch_on(kCUDA, nullptr, "count_up", {dim3(1), dim3(threads), threads << 10}, count_up, nullptr, 0);
}
TEST_CASE("TAPIR_EMULATED_LAUNCHES: a line for each kernel, processes together") {
  const auto path = std::filesystem::temp_directory_path() / ("launches." + std::to_string(getpid()));
  std::ofstream(path) << "# another build\nold_kernel 1 2 3 4 5\n";
  for (int launches : {2, 4}) {
    REQUIRE(tapir_tests::run_alone("TAPIR_EMULATED_LAUNCHES=" + path.string(), "child: launches") == 0);
    std::ifstream file(path);
    std::string head, kernel, rest, more;
    std::getline(file, head);
    CHECK(head.find("# cuda_emulation") == 0);
    REQUIRE(file >> kernel);
    CHECK(kernel.find("count_up") != std::string::npos);
    std::getline(file, rest);
    CHECK(rest == " " + std::to_string(launches) + " 32 96 32768 98304");
    CHECK(!(file >> more));
  }
  std::filesystem::remove(path);
}
