#include <dlfcn.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include <tapir/core/cuda_libraries.h>

#include "../catch.h"
#include "messages.h"

using namespace tapir;
using tapir_tests::contains;
namespace fs = std::filesystem;

namespace {

/// A folder of its own, and the environment of a machine that has nothing of CUDA's but what a test puts there.
class Machine {
 public:
  Machine() {
    char name[] = "/tmp/tapir_librariesXXXXXX";
    root = mkdtemp(name);
    for (const char* v : kVariables) {
      const char* const before = std::getenv(v);
      before_.emplace_back(before ? std::optional<std::string>(before) : std::nullopt);
      unsetenv(v);
    }
    set("HOME", root / "home"), set("PATH", root / "bin");
  }
  ~Machine() {
    for (size_t i = 0; i < before_.size(); ++i)
      before_[i] ? setenv(kVariables[i], before_[i]->c_str(), 1) : unsetenv(kVariables[i]);
    fs::remove_all(root);
  }
  void set(const char* name, const fs::path& value) { setenv(name, value.c_str(), 1); }
  /// A library that opens, as that file: one that this program has open anyway.
  fs::path put(const fs::path& file) {
    Dl_info info{};
    REQUIRE(dladdr(reinterpret_cast<void*>(static_cast<double (*)(double)>(&std::cbrt)), &info) != 0);
    fs::create_directories((root / file).parent_path());
    fs::create_symlink(fs::canonical(info.dli_fname), root / file);
    return root / file;
  }
  fs::path root;

 private:
  static constexpr const char* kVariables[] = {"TAPIR_CUDA_LIBRARIES", "CUDA_HOME",  "CUDA_PATH", "CONDA_PREFIX",
                                               "VIRTUAL_ENV",          "PYENV_ROOT", "HOME",      "PATH"};
  std::vector<std::optional<std::string>> before_;
};

constexpr const char* kFile = "libtapir_test_of_places.so.13";
std::string found(const char* wheel = "cublas") { return open_cuda_library({kFile}, wheel).path; }

}  // namespace

TEST_CASE("CUDA's libraries: where there is none, each place that was tried is named") {
  Machine m;
  fs::create_directories(m.root / "toolkit/lib64"), fs::create_directories(m.root / "named");
  m.set("CUDA_HOME", m.root / "toolkit"), m.set("TAPIR_CUDA_LIBRARIES", m.root / "named");
  const CudaLibrary none = open_cuda_library({kFile}, "cublas");
  CHECK(none.handle == nullptr);
  CHECK(contains(none.why_not, std::string(kFile) + ": cannot open shared object file"));
  CHECK(contains(none.why_not, "not in " + (m.root / "named").string()));
  CHECK(contains(none.why_not, (m.root / "toolkit/lib64").string()));
}

TEST_CASE("CUDA's libraries: a toolkit, and what is not a library") {
  Machine m;
  const fs::path good = m.put(fs::path("toolkit/lib64") / kFile);
  m.set("CUDA_HOME", m.root / "toolkit");
  CHECK(found() == good);
  fs::create_directories(m.root / "named");
  std::ofstream(m.root / "named" / kFile) << "not a library";
  m.set("TAPIR_CUDA_LIBRARIES", (m.root / "absent").string() + ":" + (m.root / "named").string());
  CHECK(found() == good);  // the next place serves
  fs::remove(good);
  CHECK(contains(open_cuda_library({kFile}, "cublas").why_not, "named/" + std::string(kFile) + ": file too short"));
  fs::remove(m.root / "named" / kFile);
  const fs::path named = m.put(fs::path("named") / kFile);
  m.put(fs::path("toolkit/lib64") / kFile);
  CHECK(found() == named);  // what was named goes first
}

TEST_CASE("CUDA's libraries: packages of Python, in both of their layouts") {
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    for (const char* layout : {"cublas", "cu13"}) {
      CAPTURE(variable, layout);
      Machine m;
      const fs::path file = m.put(fs::path("venv/lib/python3.12/site-packages/nvidia") / layout / "lib" / kFile);
      CHECK(found().empty());
      m.set(variable, m.root / "venv");
      CHECK(found() == file);
      CHECK(found("nccl").empty() == (std::string(layout) == "cublas"));  // each wheel has a folder, cu13 has all
    }
}

TEST_CASE("CUDA's libraries: the packages of the python3 on the path, of its links, and of the user") {
  Machine m;
  fs::create_directories(m.root / "bin");
  fs::create_directories(m.root / "real/bin"), std::ofstream(m.root / "real/bin/python3.11") << "";
  fs::create_symlink(m.root / "real/bin/python3.11", m.root / "bin/python3");
  const fs::path user = m.put(fs::path("home/.local/lib/python3.9/site-packages/nvidia/cublas/lib") / kFile);
  CHECK(found() == user);
  const fs::path newer = m.put(fs::path("home/.local/lib/python3.12/site-packages/nvidia/cublas/lib") / kFile);
  CHECK(found() == newer);
  const fs::path real = m.put(fs::path("real/lib/python3.11/dist-packages/nvidia/cublas/lib") / kFile);
  CHECK(found() == real);
  const fs::path near = m.put(fs::path("lib/python3.11/site-packages/nvidia/cublas/lib") / kFile);
  CHECK(found() == near);
}

TEST_CASE("CUDA's libraries: the packages of pyenv, whose python3 on the path is a script") {
  Machine m;
  const fs::path of_home =
      m.put(fs::path("home/.pyenv/versions/3.11.7/lib/python3.11/site-packages/nvidia/cublas/lib") / kFile);
  CHECK(found() == of_home);
  m.set("PYENV_ROOT", m.root / "pyenv");
  CHECK(found().empty());
  const fs::path named =
      m.put(fs::path("pyenv/versions/3.12.1/lib/python3.12/site-packages/nvidia/cublas/lib") / kFile);
  CHECK(found() == named);
}

TEST_CASE("CUDA's libraries: a file that is named in full is looked for nowhere else") {
  Machine m;
  const fs::path file = m.put(fs::path("named") / kFile);
  m.put(fs::path("toolkit/lib64") / kFile);
  m.set("CUDA_HOME", m.root / "toolkit");
  CHECK(open_cuda_library({file.c_str()}, "nccl").path == file);
  const fs::path absent = m.root / "absent" / kFile;
  const CudaLibrary none = open_cuda_library({absent.c_str()}, "nccl");
  CHECK(none.handle == nullptr);
  CHECK(contains(none.why_not, absent.string() + ": cannot open"));
  CHECK_FALSE(contains(none.why_not, "toolkit"));
}

TEST_CASE("CUDA's libraries: of several file names the first goes first everywhere but in the folders that are named") {
  Machine m;
  constexpr const char *kNew = "libtapir_test_of_names.so.13", *kOld = "libtapir_test_of_names.so.12";
  const auto opened = [&] { return open_cuda_library({kNew, kOld}, "cublas").path; };
  const fs::path old = m.put(fs::path("toolkit/lib64") / kOld);
  m.set("CUDA_HOME", m.root / "toolkit"), m.set("VIRTUAL_ENV", m.root / "venv");
  CHECK(opened() == old);
  const fs::path fresh = m.put(fs::path("venv/lib/python3.12/site-packages/nvidia/cublas/lib") / kNew);
  CHECK(opened() == fresh);
  const fs::path named = m.put(fs::path("named") / kOld);
  m.set("TAPIR_CUDA_LIBRARIES", m.root / "named");
  CHECK(opened() == named);
}
