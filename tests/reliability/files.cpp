// Files: what a kill, a flipped bit and a failing disk leave of them.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include <tapir/data/image.h>
#include <tapir/tapir.h>

#include "../io/temporary.h"
#include "../same_bits.h"
#include "injected.h"
#include "row.h"

namespace reliability {
using namespace tapir;
using namespace tapir_tests;

namespace {

/// A state whose every number is the step: half a file of another one cannot pass for whole.
struct Run {
  nn::Linear net{96, 512};
  optim::SGD opt{net.parameters(), {.lr = 0.1, .momentum = 0.9}};
  train::Checkpoint checkpoint;
  explicit Run(const std::string& folder, const train::CheckpointOptions& options = {}) : checkpoint(folder, options) {
    for (const Tensor& p : net.parameters()) p.set_grad(ones_like(p));
    opt.step();  // its momenta are there
    checkpoint.add("model", net).add("optimizer", opt);
  }
  std::vector<Tensor> state() {
    std::vector<Tensor> out;
    for (const Tensor& p : net.parameters()) out.push_back(p.detach());
    for (const auto& [name, t] : opt.state_dict())
      if (name.ends_with("momentum_buffer")) out.push_back(t);
    return out;
  }
  void become(int64_t step) {
    NoGrad guard;
    for (const Tensor& t : state()) Tensor(t).fill_(double(step));
  }
  bool is(int64_t step) {
    for (const Tensor& t : state())
      if (!equal(t, full_like(t, double(step)))) return false;
    return true;
  }
};

/// What parent and child both see.
struct Seen {
  std::atomic<int64_t> begun, saved;
};

[[noreturn]] void save_for_ever(const std::string& folder, Seen& seen) {
  Run run(folder, {.keep_last = 2});
  for (int64_t step = run.checkpoint.resume().value_or(-1) + 1;; ++step) {
    run.become(step);
    seen.begun = step;
    run.checkpoint.save(step, double(step % 7));
    seen.saved = step;
  }
}

}  // namespace

Figure kills(const Settings& settings) {
  const TemporaryFolder folder;
  Random random(settings.seed);
  auto& seen =
      *static_cast<Seen*>(mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  seen.begun = seen.saved = -1;
  const int n = settings.rounds(200, 25);
  int lost = 0, during = 0, early = 0;
  for (int i = 0; i < n; ++i) {
    const int64_t before = seen.saved;
    const pid_t child = fork();
    if (child == 0) save_for_ever(folder / "c", seen);
    const auto pause = std::chrono::microseconds(below(random, 15000));
    for (int wait = 0; seen.saved == before && wait < 20000; ++wait) usleep(500);
    early += seen.saved == before;  // it had died, or hung
    std::this_thread::sleep_for(pause);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    early += !WIFSIGNALED(status);
    during += seen.begun != seen.saved;
    Run run(folder / "c", {.keep_last = 2});
    const std::optional<int64_t> step = run.checkpoint.resume();
    const bool whole = step && *step >= seen.saved && run.checkpoint.refused().empty() && run.is(*step);
    for (const std::string& name : names_in(folder / "c"))
      lost += name.ends_with(".tmp");  // the constructor removes it
    lost += !whole;
    if (step) seen.saved = seen.begun = *step;
  }
  munmap(&seen, sizeof(Seen));
  return {count(lost) + " lost of " + count(n) + ", " + count(during) + " kills within a save",
          lost == 0 && early == 0 && during > n / 4};
}

namespace {

/// A file of a format with checksums: its bytes, and what reading it gives, bit for bit.
struct Format {
  std::string name;
  std::function<void(const std::string&)> save;
  std::function<std::vector<Tensor>(const std::string&)> load;
};

StateDict some_state() {
  manual_seed(5);
  return {{"layer.weight", randn({12, 20})},
          {"layer.bias", randn({12}).to(kBFloat16)},
          {"steps", arange(9)},
          {"mask", gt(randn({5}), 0)},
          {"empty", zeros({0, 3})}};
}
/// Tensors, and names as bytes.
std::vector<Tensor> listed(const StateDict& state) {
  std::vector<Tensor> out;
  for (const auto& [name, t] : state) {
    out.push_back(t);
    out.push_back(tensor(std::vector<int64_t>(name.begin(), name.end())));
  }
  return out;
}
bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i], b[i])) return false;
  return true;
}

std::vector<Format> formats() {
  const StateDict state = some_state();
  StateDict numpy = state;  // it lacks bfloat16
  numpy.set("layer.bias", state.at("layer.bias").to(kFloat32));
  std::vector<Format> all;
  all.push_back({"safetensors",
                 [=](const std::string& path) {
                   io::save_safetensors(path, state, {{"by", "us"}});
                 },
                 [](const std::string& path) {
                   io::Metadata metadata;
                   auto out = listed(io::load_safetensors(path, &metadata));
                   for (const auto& [key, text] : metadata)  // "format" is a habit of readers, not ours
                     if (key == "by") out.push_back(tensor(std::vector<int64_t>(text.begin(), text.end())));
                   return out;
                 }});
  all.push_back({"pt", [=](const std::string& path) { io::save_pt(path, state); },
                 [](const std::string& path) { return listed(io::to_state_dict(io::load_pt(path))); }});
  for (const bool compress : {false, true})
    all.push_back({compress ? "npz, compressed" : "npz",
                   [=](const std::string& path) { io::save_npz(path, numpy, {.compress = compress}); },
                   [](const std::string& path) { return listed(io::load_npz(path)); }});
  all.push_back({"idx.gz", [=](const std::string& path) { io::write_idx(path, state.at("layer.weight")); },
                 [](const std::string& path) { return std::vector{io::read_idx(path)}; }});
  if (data::has_png())
    all.push_back({"png",
                   [](const std::string& path) {
                     io::save_png(path, arange(3 * 7 * 9).reshape({3, 7, 9}).to(kUInt8));
                   },
                   [](const std::string& path) { return std::vector{data::read_image(path)}; }});
  return all;
}

/// The whole of a checkpoint: every part, the step, the random state.
Format checkpoint_format(const std::string& folder) {
  const auto parts = [](Run& run, int64_t step) {
    auto out = run.state();
    for (Tensor& t : out) t = t.clone();
    out.push_back(
        tensor(std::vector<int64_t>{step, int64_t(default_generator().seed()), int64_t(default_generator().offset())}));
    return out;
  };
  return {"checkpoint",
          [=](const std::string& path) {
            Run run(folder);
            run.become(3), run.checkpoint.save(3, 0.5);
            rename((folder + "/checkpoint-3.safetensors").c_str(), path.c_str());
          },
          [=](const std::string& path) {
            manual_seed(77);
            Run run(folder);
            const int64_t step = run.checkpoint.load(path);
            return parts(run, step);
          }};
}

struct Flips {
  int64_t refused = 0, harmless = 0, unnoticed = 0, untyped = 0;
  void add(const Flips& o) {
    refused += o.refused, harmless += o.harmless, unnoticed += o.unnoticed, untyped += o.untyped;
  }
};
Flips flipped(const Format& format, const TemporaryFolder& folder, int n, uint64_t seed) {
  const std::string ending = format.name == "idx.gz" ? ".gz" : format.name == "png" ? ".png" : "";
  const std::string whole = folder / ("whole" + ending), path = folder / ("damaged" + ending);
  format.save(whole);
  const std::vector<Tensor> want = format.load(whole);
  Flips flips;
  for (const std::string& bytes : tapir_tests::bit_flips(slurp(whole), n, seed)) {
    spit(path, bytes);
    try {
      ++(same(format.load(path), want) ? flips.harmless : flips.unnoticed);
    } catch (const RuntimeError&) {
      ++flips.refused;
    } catch (const std::exception&) {
      ++flips.untyped;
    }
  }
  return flips;
}

}  // namespace

Figure bit_flips(const Settings& settings) {
  const TemporaryFolder folder;
  std::vector<Format> all = formats();
  all.push_back(checkpoint_format(folder / "c"));
  const int n = settings.rounds(8000, 800), each = (n + int(all.size()) - 1) / int(all.size());
  Flips sum;
  std::string bad;
  for (const Format& format : all) {
    const Flips flips = flipped(format, folder, each, settings.seed);
    sum.add(flips);
    if (flips.unnoticed + flips.untyped) bad += (bad.empty() ? ": " : ", ") + format.name;
  }
  const int64_t of = sum.refused + sum.harmless + sum.unnoticed + sum.untyped;
  return {count(sum.unnoticed) + " unnoticed, " + count(sum.untyped) + " untyped of " + count(of) + bad + "; " +
              count(sum.refused) + " refused, " + count(sum.harmless) + " change nothing that is read",
          sum.unnoticed + sum.untyped == 0 && sum.refused > of / 2};
}

namespace {

/// A file that is saved again over an older one, and read.
struct Saved {
  std::string name;
  std::function<void(const std::string& path, int which)> save;  // content 0 or 1
  std::function<std::vector<Tensor>(const std::string& path)> load;
};

std::vector<Saved> saved_files() {
  const auto state = [](int which) {
    return StateDict{{"x", full({4000}, double(which))}, {"y", full({3}, double(which))}};
  };
  std::vector<Saved> all;
  all.push_back({"x.safetensors", [=](const std::string& path, int w) { io::save_safetensors(path, state(w)); },
                 [](const std::string& path) { return listed(io::load_safetensors(path)); }});
  all.push_back({"x.pt", [=](const std::string& path, int w) { io::save_pt(path, state(w)); },
                 [](const std::string& path) { return listed(io::to_state_dict(io::load_pt(path))); }});
  all.push_back({"x.npz", [=](const std::string& path, int w) { io::save_npz(path, state(w), {.compress = true}); },
                 [](const std::string& path) { return listed(io::load_npz(path)); }});
  all.push_back({"x.npy", [=](const std::string& path, int w) { io::save_npy(path, state(w).at("x")); },
                 [](const std::string& path) { return std::vector{io::load_npy(path)}; }});
  all.push_back({"x.idx.gz", [=](const std::string& path, int w) { io::write_idx(path, state(w).at("x")); },
                 [](const std::string& path) { return std::vector{io::read_idx(path)}; }});
  return all;
}

struct Faults {
  int64_t injected = 0, lost = 0, untyped = 0;
  std::string first;
  void wrong(int64_t& counter, const std::string& what) {
    if (first.empty()) first = what;
    ++counter;
  }
};

/// f() with the fault: what it threw, "" for nothing. An error that is not typed, or does not name the file, is counted.
template <class F> bool failed(const Injected& fault, const Saved& file, Faults& faults, const F& f) {
  const std::string what = file.name + ", " + fault.text();
  ++faults.injected;
  try {
    f();
    return false;
  } catch (const RuntimeError& e) {
    if (!mentions(e.what(), {"[", "]", file.name.c_str()})) faults.wrong(faults.untyped, what + ": " + e.what());
  } catch (const std::exception& e) {
    faults.wrong(faults.untyped, what + ": " + e.what());
  }
  return true;
}

/// The old content or the new one stands there afterwards, and the new one where the call said so; nothing else lies in the folder.
bool save_under(const Injected& fault, const Saved& file, Faults& faults) {
  const TemporaryFolder folder;
  const std::string path = folder / file.name, what = file.name + ", " + fault.text();
  file.save(path, 0);
  const std::vector<Tensor> old = file.load(path);
  bool reached = false, bad = false;
  {
    Injection injection(fault);
    bad = failed(fault, file, faults, [&] { file.save(path, 1); });
    reached = injection.reached();
  }
  if (!reached) return --faults.injected, false;
  std::vector<Tensor> now;
  try {
    now = file.load(path);
  } catch (const std::exception& e) {
    faults.wrong(faults.lost, what + ": " + e.what());
  }
  file.save(folder / ("new-" + file.name), 1);
  const bool is_new = same(now, file.load(folder / ("new-" + file.name)));
  if (!(is_new || (bad && same(now, old)))) faults.wrong(faults.lost, what + ": neither the old file nor the new one");
  if (names_in(folder.path).size() != 2) faults.wrong(faults.lost, what + ": something was left in the folder");
  return true;
}

bool load_under(const Injected& fault, const Saved& file, Faults& faults) {
  const TemporaryFolder folder;
  const std::string path = folder / file.name;
  file.save(path, 0);
  const std::vector<Tensor> want = file.load(path);
  Injection injection(fault);
  std::vector<Tensor> got;
  const bool bad = failed(fault, file, faults, [&] { got = file.load(path); });
  const bool reached = injection.reached();
  if (!reached) return --faults.injected, false;
  if (!bad && !same(got, want)) faults.wrong(faults.lost, file.name + ", " + fault.text() + ": other tensors");
  return true;
}

/// Checkpoint::save: what was there can still be resumed.
bool checkpoint_under(const Injected& fault, Faults& faults) {
  const TemporaryFolder folder;
  const Saved file{"checkpoint-2.safetensors", {}, {}};
  Run run(folder / "c");
  run.become(1), run.checkpoint.save(1, 1), run.become(2);
  bool reached = false, bad = false;
  {
    Injection injection(fault);
    bad = failed(fault, file, faults, [&] { run.checkpoint.save(2, 2); });
    reached = injection.reached();
  }
  if (!reached) return --faults.injected, false;
  Run next(folder / "c");
  const std::optional<int64_t> step = next.checkpoint.resume();
  if (!step || (!bad && *step != 2) || !next.checkpoint.refused().empty() || !next.is(*step))
    faults.wrong(faults.lost, "checkpoint, " + fault.text());
  return true;
}

}  // namespace

Figure io_faults(const Settings& settings) {
  Faults faults;
  int reached_of_kind[int(Call::Last) + 1] = {};
  std::vector<Saved> files = saved_files();
  if (settings.brief) files.resize(2);
  for (const Injected& first : every_fault()) {
    if (settings.brief && first.for_ever) continue;
    int& kind = reached_of_kind[int(first.call)];
    const auto each = [&](auto&& under) {  // the first call of the kind fails, the second one, ...
      Injected fault = first;
      for (fault.number = 1; fault.number < 40 && under(fault); ++fault.number) ++kind;
    };
    for (const Saved& file : files) {
      each([&](const Injected& fault) { return save_under(fault, file, faults); });
      each([&](const Injected& fault) { return load_under(fault, file, faults); });
    }
    each([&](const Injected& fault) { return checkpoint_under(fault, faults); });
  }
  bool every_kind = true;
  for (const int reached : reached_of_kind) every_kind &= reached > 0;
  return {count(faults.lost) + " lost, " + count(faults.untyped) + " untyped of " + count(faults.injected) +
              (every_kind ? "" : ": a kind was never reached") + (faults.first.empty() ? "" : ": " + faults.first),
          faults.lost + faults.untyped == 0 && faults.injected >= 184 && every_kind};
}

}  // namespace reliability
