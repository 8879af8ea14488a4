// Weights and optimizer states of sharded parameters in files. A rank's file holds its part of each parameter as a row under
// "model.NAME@BEGIN", and of each optimizer state under "optimizer.STATE.NAME@BEGIN": whoever reads puts together what it needs of them, on
// any number of ranks and for any choice of blocks. The metadata say which save a file is of, rank 0's the shapes: older files have neither.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <filesystem>
#include <optional>
#include <set>

#include "../core/modes.h"
#include "../io/safetensors.h"
#include "../ops/create.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"
#include "fsdp_state.h"
#include "once.h"
#include "socket.h"

namespace tapir::inline v0::distributed {

namespace {

/// f(parameter, first element in it, place in this rank's chunk, elements) for what of each parameter lies in the chunk.
template <class F> void each_part(const ShardedUnit& u, int64_t rank, F&& f) {
  const int64_t begin = u.chunk * rank, end = begin + u.chunk;
  for (const ShardedParam& p : u.params) {
    const int64_t low = std::max(begin, p.offset), high = std::min(end, p.offset + p.numel);
    if (low < high) f(p, low - p.offset, low - begin, high - low);
  }
}

std::string shard_path(const std::string& folder, int64_t rank, int64_t ranks) {
  return tapir::format("{}/shard-{}-of-{}.safetensors", folder, rank, ranks);
}

/// N of a name shard-R-of-N.safetensors, 0 of other names.
int64_t ranks_in(const std::string& name) {
  const size_t of = name.find("-of-");
  int64_t n = 0;
  if (name.starts_with("shard-") && of != std::string::npos && name.ends_with(".safetensors"))
    std::from_chars(name.data() + of + 4, name.data() + name.size(), n);
  return n;
}

/// What other numbers of ranks have saved in the folder: now that there is a newer checkpoint, nobody could load either.
void remove_others(const std::string& folder, int64_t ranks) {
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code))
    if (const std::filesystem::path& path = entry.path(); path.extension() == ".new") {  // of a job that was killed
      if (ranks_in(path.stem().string()) != 0) std::filesystem::remove(path, code);
    } else if (const int64_t n = ranks_in(path.filename().string()); n != 0 && n != ranks)
      std::filesystem::remove(path, code);
}

/// All files of a folder, opened.
class Shards {
 public:
  explicit Shards(const std::string& folder) {
    std::error_code code;
    int64_t ranks = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
      const int64_t n = ranks_in(entry.path().filename().string());
      if (n == 0) continue;
      check_runtime(ranks == 0 || n == ranks,
                    "[{}] expected the shards of one checkpoint in {}, got some of {} and of {}", kFsdpName, folder,
                    ranks, n);
      ranks = n;
    }
    check_runtime(ranks > 0, "[{}] expected files shard-R-of-N.safetensors in {}, got none{}", kFsdpName, folder,
                  code ? ": " + code.message() : "");
    for (int64_t r = 0; r < ranks; ++r) {
      files_.emplace_back(shard_path(folder, r, ranks));
      check_runtime(text_of("save", r) == text_of("save", 0),
                    "[{}] expected files of one save in {}, got shard 0 of one and shard {} of another", kFsdpName,
                    folder, r);
      for (int64_t i = 0; i < files_.back().size(); ++i) add(std::string(files_.back().name(i)), size_t(r), i);
    }
  }
  /// RuntimeError where the parameter had another shape; nothing is known of older files'.
  void check_shape(const ShardedParam& p) const {
    const std::string wanted = tapir::format("{}", p.shape), had = text_of("shape " + p.name, 0);
    check_runtime(had.empty() || had == wanted, "[{}] expected \"{}\" of shape {} in the files, got {}", kFsdpName,
                  p.name, wanted, had);
  }
  /// The row `name`, of so many elements, from `low` on, into `to`. RuntimeError where files have not all of it, or a longer one.
  void read(const std::string& name, int64_t elements, int64_t low, const Tensor& to) {
    int64_t found = 0;
    for (const Part& p : parts_[name]) {
      const bool apart = p.begin >= low + to.numel();
      const Tensor from = apart ? Tensor() : files_[p.file].read(p.index);
      check_runtime(p.begin + (apart ? 1 : from.numel()) <= elements,
                    "[{}] expected {} elements of \"{}\" in the files, got more", kFsdpName, elements, name);
      if (apart) continue;
      const int64_t first = std::max(low, p.begin), last = std::min(low + to.numel(), p.begin + from.numel());
      if (first >= last) continue;
      to.narrow(0, first - low, last - first).copy_(from.flatten().narrow(0, first - p.begin, last - first));
      found += last - first;
    }
    check_runtime(found == to.numel(), "[{}] expected {} elements of \"{}\" from {} on in the files, found {}",
                  kFsdpName, to.numel(), name, low, found);
  }
  /// A tensor that stands whole in some file; undefined where there is none.
  Tensor read_whole(const std::string& name) {
    for (io::SafetensorsFile& f : files_)
      if (const int64_t i = f.find(name); i >= 0) return f.read(i);
    return {};
  }
  std::vector<std::string> names() {
    std::vector<std::string> out;
    for (io::SafetensorsFile& f : files_)
      for (int64_t i = 0; i < f.size(); ++i) out.emplace_back(f.name(i));
    return out;
  }
  /// Of the row `name`; undefined where there is none.
  std::optional<DType> dtype_of(const std::string& name) {
    const auto at = parts_.find(name);
    if (at == parts_.end()) return {};
    const Part& p = at->second[0];
    return files_[p.file].read(p.index).dtype();
  }

 private:
  struct Part {
    int64_t begin;
    size_t file;
    int64_t index;
  };
  std::string text_of(const std::string& key, int64_t file) const {
    for (const auto& [k, text] : files_[size_t(file)].metadata())
      if (k == key) return text;
    return {};
  }
  void add(const std::string& name, size_t file, int64_t index) {
    const size_t at = name.rfind('@');
    int64_t begin = 0;
    if (at == std::string::npos) return;
    std::from_chars(name.data() + at + 1, name.data() + name.size(), begin);
    parts_[name.substr(0, at)].push_back({begin, file, index});
  }
  std::deque<io::SafetensorsFile> files_;
  std::map<std::string, std::vector<Part>> parts_;
};

/// "exp_avg" of "optimizer.exp_avg.fc.weight@0"
std::set<std::string> states_in(Shards& shards) {
  std::set<std::string> out;
  constexpr std::string_view kPrefix = "optimizer.";
  for (const std::string& name : shards.names())
    if (name.starts_with(kPrefix))
      out.insert(name.substr(kPrefix.size(), name.find('.', kPrefix.size()) - kPrefix.size()));
  return out;
}

}  // namespace

void ShardedParameters::save(const std::string& folder, const optim::Optimizer* optimizer) const {
  NoGrad guard;
  const State& s = *state_;
  const int64_t rank = s.group.rank();
  const std::string path = shard_path(folder, rank, s.group.size()), fresh = path + ".new";
  io::Metadata metadata{{"save", s.group.all_gather_text(rank == 0 ? random_token() : "")[0]}};
  std::error_code code;
  const auto write = [&] {
    StateDict out;
    const StateDict states = optimizer ? optimizer->state_dict() : StateDict();
    int64_t number = 0;
    for (const ShardedUnit& u : s.units) {
      if (!u.mine.defined()) continue;
      if (rank == 0)
        for (const ShardedParam& p : u.params) metadata.emplace_back("shape " + p.name, tapir::format("{}", p.shape));
      const StateDict mine = states.strip(tapir::format("state.{}.", number++));
      each_part(u, rank, [&](const ShardedParam& p, int64_t first, int64_t at, int64_t n) {
        out.append(tapir::format("model.{}@{}", p.name, first), u.mine.detach().narrow(0, at, n));
        for (const auto& [key, t] : mine)
          if (t.dim() == 1 && t.numel() == u.chunk)
            out.append(tapir::format("optimizer.{}.{}@{}", key, p.name, first), t.narrow(0, at, n));
          else out.append(tapir::format("optimizer.{}.{}", key, p.name), t);
      });
    }
    for (const auto& [name, t] : states.strip("param_groups."))
      if (!name.ends_with(".params")) out.append("groups." + name, t);
    if (rank == 0)
      for (const auto& [name, t] : s.buffers) out.append("buffer." + name, t);
    std::filesystem::create_directories(folder, code);
    check_runtime(!code, "[{}] expected a folder at {}, got: {}", kFsdpName, folder, code.message());
    io::save_safetensors(fresh, out, metadata);
  };
  try {
    together(s.group, write);
  } catch (...) {  // what was there before stays
    std::filesystem::remove(fresh, code);
    throw;
  }
  together(s.group, [&] {
    std::filesystem::rename(fresh, path, code);
    const Socket place(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));  // owns any descriptor
    const bool synced = !place || fsync(place.fd()) == 0 || errno == EINVAL;       // as io's OutputFile
    check_runtime(!code && synced, "[{}] expected to rename {}, got: {}", kFsdpName, fresh,
                  code ? code.message() : std::strerror(errno));
  });
  together(s.group, [&] {
    if (rank == 0) remove_others(folder, s.group.size());
  });
}

void ShardedParameters::load(const std::string& folder, optim::Optimizer* optimizer) {
  NoGrad guard;
  State& s = *state_;
  std::vector<Tensor> chunks;
  StateDict states, buffers;
  together(s.group, [&] {
    Shards shards(folder);
    const std::set<std::string> keys = optimizer ? states_in(shards) : std::set<std::string>();
    int64_t number = 0;
    for (ShardedUnit& u : s.units) {
      if (!u.mine.defined()) continue;
      for (const ShardedParam& p : u.params) shards.check_shape(p);
      const auto row = [&](const std::string& prefix, DType dtype) {
        Tensor out = zeros({u.chunk}, {.dtype = dtype});
        each_part(u, s.group.rank(), [&](const ShardedParam& p, int64_t first, int64_t at, int64_t n) {
          shards.read(prefix + p.name, p.numel, first, out.narrow(0, at, n));
        });
        return out;
      };
      chunks.push_back(row("model.", u.mine.dtype()));
      for (const std::string& key : keys) {
        const std::string prefix = "optimizer." + key + ".";
        if (const Tensor whole = shards.read_whole(prefix + u.params[0].name); whole.defined())
          states.append(tapir::format("state.{}.{}", number, key), whole);
        else if (const auto dtype = shards.dtype_of(prefix + u.params[0].name))  // float32 beside bfloat16 weights
          states.append(tapir::format("state.{}.{}", number, key), row(prefix, *dtype));
      }
      ++number;
    }
    for (const std::string& name : shards.names())
      if (name.starts_with("groups.") && optimizer && !states.contains("param_" + name))
        states.append("param_" + name, shards.read_whole(name));
    for (const auto& [name, t] : s.buffers) {
      buffers.append(name, shards.read_whole("buffer." + name));
      check_runtime(buffers.at(name).defined() && buffers.at(name).shape() == t.shape(),
                    "[{}] expected \"buffer.{}\" of shape {} in the files", kFsdpName, name, t.shape());
    }
  });
  const StateDict before = optimizer ? optimizer->state_dict() : StateDict();
  bool changed = false;
  try {
    together(s.group, [&] {
      if (optimizer) optimizer->load_state_dict(states);
      changed = optimizer;
    });
  } catch (...) {
    if (changed) optimizer->load_state_dict(before);  // where one rank's does not fit, none has changed
    throw;
  }
  size_t i = 0;
  for (ShardedUnit& u : s.units)
    if (u.mine.defined()) u.mine.detach().copy_(chunks[i++]);
  for (auto& [name, t] : s.buffers) t.copy_(buffers.at(name));
}

StateDict ShardedParameters::full_state_dict() const {
  NoGrad guard;
  State& s = *state_;
  StateDict out;
  const bool mine = s.group.rank() == 0;
  for (const ShardedUnit& u : s.units) {
    if (!u.mine.defined()) continue;
    Tensor row = empty({u.chunk * s.group.size()}, {.dtype = u.mine.dtype(), .device = u.mine.device()});
    s.group.all_gather(row, u.mine.detach());
    for (const ShardedParam& p : u.params)
      if (mine) out.append(p.name, row.narrow(0, p.offset, p.numel).view(p.shape).clone());
  }
  for (const auto& [name, t] : s.buffers)
    if (mine) out.append(name, t.clone());
  return out;
}

void ShardedParameters::load_full_state_dict(const StateDict& state) {
  NoGrad guard;
  State& s = *state_;
  once(s.group, [&] {  // before anything is changed
    for (const ShardedUnit& u : s.units)
      for (const ShardedParam& p : u.params)
        check(state.at(p.name).shape() == p.shape, "[{}] expected {} of shape {}, got {}", kFsdpName, p.name, p.shape,
              state.at(p.name));
    for (const auto& [name, t] : s.buffers)
      check(state.at(name).shape() == t.shape(), "[{}] expected {} like {}, got {}", kFsdpName, name, t,
            state.at(name));
  });
  for (ShardedUnit& u : s.units) {
    if (!u.mine.defined()) continue;
    Tensor row = zeros({u.chunk * s.group.size()}, {.dtype = u.mine.dtype(), .device = u.mine.device()});
    if (s.group.rank() == 0)
      for (const ShardedParam& p : u.params)
        row.narrow(0, p.offset, p.numel).copy_(state.at(p.name).detach().contiguous().view({p.numel}));
    s.group.broadcast(row);
    u.mine.detach().copy_(row.narrow(0, u.chunk * s.group.rank(), u.chunk));
  }
  for (auto& [name, t] : s.buffers) {
    if (s.group.rank() == 0) t.copy_(state.at(name));
    s.group.broadcast(t);
  }
}

void ShardedParameters::unshard() {
  NoGrad guard;
  State& s = *state_;
  s.release_all();
  for (ShardedUnit& u : s.units) {
    for (const int64_t hook : u.hooks) u.block->remove_hook(hook);
    if (!u.mine.defined()) continue;
    Tensor row = empty({u.chunk * s.group.size()}, {.dtype = u.mine.dtype(), .device = u.mine.device()});
    s.group.all_gather(row, u.mine.detach());
    for (ShardedParam& p : u.params) {
      p.tensor.remove_hook(p.hook);
      const Tensor own = row.narrow(0, p.offset, p.numel).view(p.shape).clone();
      TensorImpl& t = p.tensor.impl();
      t.set_storage(own.impl().storage), t.numel = p.numel, t.offset = 0;
      t.sizes = p.shape, t.strides = contiguous_strides(p.shape), t.contiguous = true;
    }
  }
  s.units.clear();
}

}  // namespace tapir::inline v0::distributed
