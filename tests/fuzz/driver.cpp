// Runs a fuzz target where there is no libFuzzer: random mutations of the files of a corpus. Takes libFuzzer's way of being called,
//     fuzz_pt corpus/pt [-max_total_time=SECONDS] [-runs=N] [-seed=N]
// and single files, which it runs as they are. What made the target fall stands in ./crash.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "fuzz.h"

namespace {

using Bytes = std::vector<uint8_t>;
Bytes current;

Bytes slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void save_current(int) {
  const int fd = open("crash", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd >= 0 && write(fd, current.data(), current.size()) >= 0) close(fd);
  signal(SIGABRT, SIG_DFL);
}

class Mutator {
 public:
  Mutator(std::vector<Bytes> corpus, uint64_t seed) : corpus_(std::move(corpus)), random_(seed) {}
  Bytes next() {
    Bytes b = corpus_[below(corpus_.size())];
    for (size_t n = 1 + below(6); n-- > 0;) mutate(b);
    return b;
  }

 private:
  size_t below(size_t n) { return n ? random_() % n : 0; }
  void mutate(Bytes& b) {
    const size_t at = below(b.size()), length = std::min(b.size() - at, 1 + below(16));
    const auto begin = b.begin() + long(at);
    switch (below(9)) {
      case 0:
        if (!b.empty()) b[at] ^= uint8_t(1 << below(8));
        break;
      case 1:
        if (!b.empty()) b[at] = uint8_t(random_());
        break;
      case 2: b.insert(begin, 1 + below(8), uint8_t(random_())); break;
      case 3: b.erase(begin, begin + long(length)); break;
      case 4: b.resize(at); break;
      case 5: {  // a part once more
        const Bytes part(begin, begin + long(length));
        b.insert(b.begin() + long(below(b.size() + 1)), part.begin(), part.end());
        break;
      }
      case 6: {  // a number at its limits
        constexpr uint64_t values[] = {
            0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0x7fffffffffffffff, ~0ull};
        const uint64_t v = values[below(std::size(values))];
        for (size_t i = 0, n = size_t(1) << below(4); i < n && at + i < b.size(); ++i) b[at + i] = uint8_t(v >> 8 * i);
        break;
      }
      case 7: {  // the rest of another file
        const Bytes& other = corpus_[below(corpus_.size())];
        b.resize(at);
        b.insert(b.end(), other.begin() + long(below(other.size())), other.end());
        break;
      }
      case 8:
        if (!b.empty()) b[at] = uint8_t(b[at] + (below(2) ? 1 : 255));
        break;
    }
  }
  std::vector<Bytes> corpus_;
  std::mt19937_64 random_;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0;  // 0: until the runs are done
  int64_t most = 0;    // 0: until the time is over
  uint64_t seed = 1;
  std::vector<Bytes> corpus = {{}};
  bool folder = false;
  signal(SIGABRT, save_current), signal(SIGSEGV, save_current), signal(SIGFPE, save_current);
  for (int i = 1; i < argc; ++i) {
    if (std::sscanf(argv[i], "-max_total_time=%lf", &seconds) == 1 || std::sscanf(argv[i], "-seed=%lu", &seed) == 1 ||
        std::sscanf(argv[i], "-runs=%ld", &most) == 1 || argv[i][0] == '-')
      continue;
    std::vector<std::string> files = {argv[i]};
    if (DIR* d = opendir(argv[i])) {
      files.clear(), folder = true;
      while (const dirent* entry = readdir(d))
        if (entry->d_name[0] != '.') files.push_back(std::string(argv[i]) + "/" + entry->d_name);
      closedir(d);
    } else if (access(argv[i], R_OK) != 0) return std::fprintf(stderr, "there is no %s\n", argv[i]), 2;
    for (const auto& file : files)
      corpus.push_back(current = slurp(file)), LLVMFuzzerTestOneInput(current.data(), current.size());
  }
  Mutator mutator(corpus, seed);
  int64_t runs = int64_t(corpus.size());
  if (seconds == 0 && most == 0) seconds = 10;
  for (const double end = now() + seconds; folder && (most == 0 || runs < most) && (seconds == 0 || now() < end);
       ++runs) {
    current = mutator.next();
    LLVMFuzzerTestOneInput(current.data(), current.size());
  }
  std::printf("%lld inputs\n1 passed, 0 failed, 0 skipped\n", static_cast<long long>(runs));
}
