// Memory that is not there: an error that can be caught, after which everything goes on as if nothing had been.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include <tapir/core/allocator.h>
#include <tapir/tapir.h>

#include "../same_bits.h"
#include "processes.h"
#include "row.h"

namespace reliability {
using namespace tapir;

Figure out_of_memory(const Settings& settings) {
  const TemporaryFolder folder;
  const int n = settings.rounds(100, 26);
  const Ended ended = started({"memory", std::to_string(n), folder / "big.safetensors", std::to_string(settings.seed)},
                              {}, folder / "out")
                          .end(300);
  const double recovered = told(ended, "recovered");
  const size_t at = ended.output.find("FAILED");
  return {(recovered >= 0 ? count(int64_t(recovered)) : "none") + " of " + count(n) +
              (at == std::string::npos ? "" : ": " + ended.output.substr(at, ended.output.find('\n', at) - at)),
          recovered == n && ended.status == 0};
}

namespace {

constexpr int64_t kMegabyte = int64_t(1) << 20, kRoom = 640 * kMegabyte;

void limit_memory() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long pages = 0;
  if (!file || std::fscanf(file, "%ld", &pages) != 1) pages = 1 << 16;
  if (file) std::fclose(file);
  const rlim_t bytes = rlim_t(pages) * rlim_t(sysconf(_SC_PAGESIZE)) + rlim_t(kRoom);
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
}

/// What three steps of a small net leave.
std::vector<Tensor> trained() {
  manual_seed(1);
  nn::Sequential net(nn::Linear(64, 256), nn::ReLU(), nn::Linear(256, 8));
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  for (int i = 0; i < 3; ++i) {
    opt.zero_grad();
    mse_loss(net(randn({128, 64})), randn({128, 8})).backward();
    opt.step();
  }
  std::vector<Tensor> out;
  for (const Tensor& p : net.parameters()) out.push_back(p.detach());
  return out;
}
bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!tapir_tests::same_bits(a[i], b[i])) return false;
  return a.size() == b.size();
}

/// Takes memory until there is none, and throws.
void fill_up(std::vector<Tensor>& held, Random& random, int64_t most) {
  for (;;) held.push_back(zeros({1 + below(random, most)}, {.dtype = kUInt8}));
}

/// A file whose header promises 4 GB, which are there (as a hole).
void write_hole(const std::string& path) {
  std::string header = R"({"x":{"dtype":"F32","shape":[1073741824],"data_offsets":[0,4294967296]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t size = header.size();
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const bool good = fd >= 0 && write(fd, &size, 8) == 8 && write(fd, header.data(), size) == ssize_t(size) &&
                    ftruncate(fd, off_t(8 + size + (uint64_t(1) << 32))) == 0;
  close(fd);
  check_runtime(good, "cannot write {}", path);
}

void in_backward(Random& random) {
  const Tensor x = zeros({10 * kMegabyte}).requires_grad_();
  Tensor y = x;
  for (int i = 0; i < 6; ++i) y = tanh(y);
  const Tensor loss = sum(y);
  std::vector<Tensor> held;
  try {
    fill_up(held, random, 4 * kMegabyte);
  } catch (const OutOfMemoryError&) {}
  loss.backward();
}
void in_optimizer(Random& random) {
  const Tensor x = zeros({20 * kMegabyte}).requires_grad_();
  x.set_grad(ones_like(x));
  optim::AdamW opt({x});
  std::vector<Tensor> held;
  try {
    fill_up(held, random, 8 * kMegabyte);
  } catch (const OutOfMemoryError&) {}
  opt.step();
}
void in_compiled() {
  auto f = compile([](const Tensor& x) { return sum(exp(x.expand({400 * kMegabyte, 2}) * 2)); });
  const Tensor x = ones({1, 2});
  for (int i = 0; i < 4; ++i) f(x);
}
void in_loader() {
  data::DataLoader loader(data::TensorDataset(zeros({1, 1}).expand({100000, 20000})), {.batch_size = 50000});
  for (auto& batch : loader) (void)batch;
}

std::vector<std::function<void(Random&)>> attempts(const std::string& big) {
  return {[](Random& r) { zeros({(int64_t(1) << (30 + below(r, 12))) + below(r, 1000)}); },
          [](Random& r) {
            std::vector<Tensor> held;
            fill_up(held, r, 64 * kMegabyte);
          },
          [](Random&) {
            matmul(ones({40000, 2}), ones({2, 40000}));
          },
          [](Random&) {
            const Tensor x = ones({25 * kMegabyte});
            cat(std::vector<Tensor>(12, x));
          },
          [](Random&) {
            conv2d(ones({16, 3, 512, 512}), ones({64, 3, 3, 3}), {}, {.padding = 1});
          },
          [](Random& r) { in_backward(r); },
          [](Random& r) { in_optimizer(r); },
          [](Random&) { in_compiled(); },
          [](Random&) { in_loader(); },
          [=](Random&) { io::load_safetensors(big); },
          [](Random&) { zeros({1}).expand({int64_t(1) << 30}).to_vector<float>(); },
          [](Random&) { sort(zeros({1}).expand({400 * kMegabyte})); },
          [](Random&) { randperm(int64_t(1) << 31); }};
}

}  // namespace

void out_of_memory_again(const std::vector<std::string>& words) {
  const int n = std::atoi(words.at(2).c_str());
  Random random(std::strtoull(words.at(4).c_str(), nullptr, 10));
  write_hole(words.at(3));
  const auto all = attempts(words.at(3));
  const std::vector<Tensor> want = trained();
  limit_memory();
  int recovered = 0;
  for (int i = 0; i < n; ++i) {
    const int64_t held = memory_stats().allocated;
    const size_t k = size_t(i) % all.size();
    std::string wrong = "there was no error";
    try {
      all[k](random);
    } catch (const OutOfMemoryError& e) {
      wrong.clear();
    } catch (const std::exception& e) {
      wrong = std::string("another error: ") + e.what();
    }
    if (wrong.empty() && !same(trained(), want)) wrong = "training has other bits";
    if (wrong.empty() && memory_stats().allocated > held) wrong = "memory is still held";
    if (wrong.empty()) ++recovered;
    else std::printf("FAILED attempt %zu: %s\n", k, wrong.c_str());
  }
  std::printf("recovered %d\n", recovered);
}

}  // namespace reliability
