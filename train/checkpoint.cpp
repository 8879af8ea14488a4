#include "checkpoint.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "../core/generator.h"
#include "../core/modes.h"
#include "../io/file.h"
#include "../io/safetensors.h"

namespace tapir::inline v0::train {

namespace {

constexpr std::string_view kBegin = "checkpoint-", kEnd = ".safetensors", kRandom = "random", kStep = "step",
                           kMetric = "metric", kTemporary = ".tmp";

template <class N> bool parse(std::string_view text, N& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

/// The step of a checkpoint's file name, -1 for other names.
int64_t step_of(std::string_view name) {
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd) || name.size() <= kBegin.size() + kEnd.size()) return -1;
  int64_t step = -1;
  return parse(name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size()), step) ? step : -1;
}

const std::string* find(const io::Metadata& metadata, std::string_view key) {
  for (const auto& [name, text] : metadata)
    if (name == key) return &text;
  return nullptr;
}

/// f(name) for every file of the folder. What went wrong, as errno says it, or 0.
template <class F> int each_name(const std::string& path, const F& f) {
  DIR* const folder = ::opendir(path.c_str());
  if (!folder) return errno;
  while (const dirent* entry = (errno = 0, ::readdir(folder))) f(std::string_view(entry->d_name));
  const int error = errno;
  ::closedir(folder);
  return error;
}

/// A folder that cannot be read is not an empty one. One that is not there yet is.
void check_read(const std::string& folder, int error) {
  check_runtime(error == 0 || error == ENOENT, "[Checkpoint] cannot read the folder {}: {}", folder,
                std::error_code(error, std::generic_category()).message());
}

/// A state of its own: what state_dict() gives shares memory with its object.
StateDict copy_of(const StateDict& state) {
  StateDict out;
  for (const auto& [name, t] : state) out.append(name, t.defined() ? t.detach().clone() : t);
  return out;
}

}  // namespace

Checkpoint::Checkpoint(std::string folder, const CheckpointOptions& options)
    : folder_(std::move(folder)), options_(options) {
  check(!folder_.empty(), "[Checkpoint] expected a folder, got an empty name");
  check_runtime(folder_.find('\0') == folder_.npos, "[Checkpoint] expected a folder without NUL in its name, got {}",
                folder_);
  check(options.keep_last >= 0, "[Checkpoint] expected keep_last from 0 on, got {}", options.keep_last);
  check_read(folder_, each_name(folder_, [&](std::string_view name) {  // what dead runs were writing
               if (!name.ends_with(kTemporary)) return;
               name.remove_suffix(kTemporary.size());
               if (step_of(name) >= 0) io::remove_abandoned(folder_ + "/" + std::string(name));
             }));
}

Checkpoint& Checkpoint::add_part(Part part) {
  check(!part.name.empty() && part.name.find('.') == std::string::npos && part.name != kRandom,
        "[Checkpoint] expected a name without a dot, other than \"random\", got \"{}\"", part.name);
  for (const Part& p : parts_) check(p.name != part.name, "[Checkpoint] expected parts once, got \"{}\" twice", p.name);
  parts_.push_back(std::move(part));
  return *this;
}

std::vector<Checkpoint::File> Checkpoint::list() const {
  std::vector<File> out;
  const int error = each_name(folder_, [&](std::string_view name) {
    if (const int64_t step = step_of(name); step >= 0) out.push_back({folder_ + "/" + std::string(name), step});
  });
  check_read(folder_, error);
  std::sort(out.begin(), out.end(), [](const File& a, const File& b) { return a.step < b.step; });
  return out;
}

std::vector<Checkpoint::File> Checkpoint::list_with_metrics() {
  std::vector<File> files = list();
  for (File& f : files) {
    try {
      const io::SafetensorsFile file(f.path);
      double metric = 0;
      if (const std::string* text = find(file.metadata(), kMetric); text && parse(*text, metric)) f.metric = metric;
    } catch (const RuntimeError& e) {
      refused_.push_back(e.what());
    }
  }
  return files;
}

/// Of two with the same metric the later one is better.
bool Checkpoint::better(const File& a, const File& b) const {
  if (!a.metric || std::isnan(*a.metric)) return false;
  if (!b.metric || std::isnan(*b.metric)) return true;
  return options_.higher_is_better ? *a.metric >= *b.metric : *a.metric <= *b.metric;
}

StateDict Checkpoint::state_dict() const {
  NoGrad guard;
  StateDict all;
  for (const Part& part : parts_) {
    StateDict state = part.save(part.object), defined;
    for (const auto& [name, t] : state)
      if (t.defined()) defined.append(name, t);
    all.merge(part.name + ".", defined);
  }
  const int64_t random[] = {int64_t(default_generator().seed()), int64_t(default_generator().offset())};
  all.append(std::string(kRandom), tensor_from_host(random, kInt64, {2}, {}));
  return all;
}

void Checkpoint::save(int64_t step, std::optional<double> metric) {
  check(step >= 0, "[Checkpoint] expected a step from 0 on, got {}", step);
  const StateDict all = state_dict();
  io::Metadata metadata = {{std::string(kStep), std::to_string(step)}};
  if (metric) {
    char text[40];
    metadata.emplace_back(kMetric, std::string(text, std::to_chars(text, text + sizeof text, *metric).ptr));
  }
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  check_runtime(!error, "[Checkpoint] cannot make the folder {}: {}", folder_, error.message());
  io::save_safetensors(folder_ + "/" + std::string(kBegin) + std::to_string(step) + std::string(kEnd), all, metadata);
  remove_old(step);
}

void Checkpoint::remove_old(int64_t saved) {
  refused_.clear();
  if (options_.keep_last == 0) return;
  std::vector<File> files;
  try {
    files = options_.keep_best ? list_with_metrics() : list();
  } catch (const RuntimeError& e) {  // what was saved is saved
    return refused_.push_back(e.what());
  }
  const File* best = nullptr;
  for (const File& f : files)
    if (options_.keep_best && f.metric && (!best || better(f, *best))) best = &f;
  // The one just saved stays too: the newer files that there are may be damaged.
  for (size_t i = 0; i + size_t(options_.keep_last) < files.size(); ++i)
    if (&files[i] != best && files[i].step != saved) ::unlink(files[i].path.c_str());
}

int64_t Checkpoint::load(const std::string& path) {
  io::Metadata metadata;
  const StateDict all = io::load_safetensors(path, &metadata);
  const std::string* text = find(metadata, kStep);
  int64_t step = 0;
  check_runtime(text && parse(*text, step), "[Checkpoint] {}: expected a step in the metadata, found none", path);
  const Tensor* random = all.find(kRandom);
  check_runtime(random && random->dtype() == kInt64 && random->numel() == 2,
                "[Checkpoint] {}: expected a tensor \"random\" of 2 integers, found none", path);
  load_state_dict(all);
  return step;
}

void Checkpoint::load_state_dict(const StateDict& state) {
  NoGrad guard;
  const auto random = state.at(kRandom).to_vector<int64_t>();
  check(random.size() == 2, "[Checkpoint] expected 2 integers in \"random\", got {}", random.size());
  std::vector<StateDict> before;
  const auto undo = [&] {  // the parts that were loaded get back what they had
    for (size_t i = 0; i < before.size(); ++i) parts_[i].load(parts_[i].object, before[i]);
  };
  for (const Part& part : parts_) try {
      before.push_back(copy_of(part.save(part.object)));
      part.load(part.object, state.strip(part.name + "."));
    } catch (const ValueError& e) {
      undo();
      fail(ErrorKind::Value, "[Checkpoint] \"{}\": {}", part.name, e.what());
    } catch (...) {
      undo();
      throw;
    }
  default_generator().set_state(uint64_t(random[0]), uint64_t(random[1]));
}

std::optional<int64_t> Checkpoint::resume() {
  refused_.clear();
  return load_last(list());
}

/// The last of the files that is whole. Where all are damaged that is an error: a run that began anew would remove them.
std::optional<int64_t> Checkpoint::load_last(std::vector<File> files) {
  for (; !files.empty(); files.pop_back()) {
    try {
      return load(files.back().path);
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const RuntimeError& e) {
      refused_.push_back(e.what());
    }
  }
  if (!refused_.empty()) throw RuntimeError(refused_.front());
  return {};
}

std::optional<int64_t> Checkpoint::load_best() {
  refused_.clear();
  std::vector<File> files = list_with_metrics();
  std::stable_sort(files.begin(), files.end(),
                   [&](const File& a, const File& b) { return better(b, a) && !better(a, b); });
  files.erase(files.begin(),
              std::find_if(files.begin(), files.end(), [](const File& f) { return f.metric.has_value(); }));
  return load_last(std::move(files));
}

std::vector<std::string> Checkpoint::files() const {
  std::vector<std::string> out;
  for (auto& f : list()) out.push_back(std::move(f.path));
  return out;
}

}  // namespace tapir::inline v0::train
