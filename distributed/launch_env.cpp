#include "launch_env.h"

#include <sys/stat.h>

#include <charconv>
#include <cstdlib>

#include "../core/error.h"
#include "../io/file.h"
#include "../io/shown_path.h"

namespace tapir::inline v0::distributed {

namespace {

constexpr const char* kOp = "launch_info";
constexpr int64_t kMostRanks = 16384;  // as many as the store has clients

const char* variable(const char* name) { return name ? std::getenv(name) : nullptr; }

int64_t number(const char* name, const char* text, int64_t low, int64_t high) {
  int64_t value = 0;
  const char* end = text;
  while (*end) ++end;
  const auto [stop, error] = std::from_chars(text, end, value);
  check(error == std::errc() && stop == end && value >= low && value <= high,
        "[{}] expected {} to be a whole number in [{}, {}], got \"{}\"", kOp, name, low, high, io::shown(text));
  return value;
}

std::optional<int64_t> number_of(const char* name, int64_t low = 0, int64_t high = int64_t(1) << 31) {
  const char* text = variable(name);
  if (!text) return {};
  return number(name, text, low, high);
}

struct Family {
  const char *launcher, *rank, *world_size, *local_rank, *local_size, *restarts;
  bool rank_decides;  // a world size alone means nothing: Slurm sets it in a shell of salloc too
};
constexpr Family kFamilies[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", false},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_RESTART_COUNT", true},
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr, false},
    {"mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr, false},
};

/// The family's place; ValueError where half of it is set.
void read_family(const Family& f, LaunchInfo& info) {
  info.launcher = f.launcher;
  for (const char* name : {f.rank, f.world_size})
    check(variable(name) != nullptr, "[{}] expected {} beside {}, got nothing (half of {}'s variables are set)", kOp,
          name, name == f.rank ? f.world_size : f.rank, f.launcher);
  info.world_size = *number_of(f.world_size, 1, kMostRanks);
  info.rank = *number_of(f.rank, 0);
  check(info.rank < info.world_size, "[{}] expected {} below {} = {}, got {}", kOp, f.rank, f.world_size,
        info.world_size, info.rank);
  info.local_world_size = number_of(f.local_size, 1).value_or(info.world_size);
  info.local_rank = number_of(f.local_rank, 0).value_or(info.rank % info.local_world_size);
  info.restart_count = number_of(f.restarts).value_or(0);
}

void read_address(LaunchInfo& info) {
  const char* address = variable("MASTER_ADDR");
  const char* job = variable("SLURM_JOB_ID");
  if (info.launcher == "slurm") {
    const char* list = variable("SLURM_JOB_NODELIST");
    if (list &&
        std::string_view(list).find_first_of(",[") != std::string_view::npos)  // one node: nobody comes from elsewhere
      info.address = first_host(list);
    if (job) info.port = 20000 + int(number("SLURM_JOB_ID", job, 0, int64_t(1) << 62) % 20000);
  }
  if (address) {
    check(*address != '\0', "[{}] expected MASTER_ADDR to be an address, got \"\"", kOp);
    info.address = address;
  } else {
    const bool far = info.local_world_size < info.world_size && info.launcher != "slurm";
    check(!far, "[{}] expected MASTER_ADDR (there are ranks on other machines), got nothing", kOp);
  }
  if (const auto port = number_of("MASTER_PORT", 1, 65535)) {
    info.port = int(*port);
    // torchrun's agent keeps a store of PyTorch's own kind there: ours stands beside it.
    const char* agent = variable("TORCHELASTIC_USE_AGENT_STORE");
    if (agent && std::string(agent) == "True") info.port = info.port < 65535 ? info.port + 1 : 65534;
  }
}

void read_options(const LaunchOptions& o, LaunchInfo& info) {
  if (o.rank || o.world_size) {
    check(o.rank && o.world_size, "[{}] expected rank and world_size together, got only {}", kOp,
          o.rank ? "rank" : "world_size");
    check(*o.world_size >= 1 && *o.world_size <= kMostRanks, "[{}] expected world_size in [1, {}], got {}", kOp,
          kMostRanks, *o.world_size);
    check(*o.rank >= 0 && *o.rank < *o.world_size, "[{}] expected rank in [0, world_size = {}), got {}", kOp,
          *o.world_size, *o.rank);
    info.launcher = "options", info.rank = *o.rank, info.world_size = *o.world_size;
    info.local_rank = *o.rank, info.local_world_size = *o.world_size;
  }
  if (o.local_world_size) info.local_world_size = *o.local_world_size;
  if (o.local_rank) info.local_rank = *o.local_rank;
  check(info.local_rank >= 0 && info.local_rank < info.local_world_size,
        "[{}] expected a local rank in [0, {}), got {}", kOp, info.local_world_size, info.local_rank);
}

}  // namespace

std::string first_host(const std::string& list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    for (++i; i < list.size() && list[i] != '-' && list[i] != ',' && list[i] != ']'; ++i) host += list[i];
    while (i < list.size() && list[i] != ']') ++i;
  }
  check(!host.empty(), "[{}] expected SLURM_JOB_NODELIST to name a host, got \"{}\"", kOp, io::shown(list));
  return host;
}

std::string secret_of_environment() {
  const auto trimmed = [](std::string text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
    return text;
  };
  const char* variable_text = variable("TAPIR_STORE_SECRET");
  std::string text = trimmed(variable_text ? variable_text : "");
  const char* path = variable("TAPIR_STORE_SECRET_FILE");
  if (!text.empty() || !path) return text;
  struct stat info {};
  check_runtime(stat(path, &info) != 0 || (info.st_mode & 077) == 0,
                "[{}] expected a secret in TAPIR_STORE_SECRET_FILE that others cannot read, got {} (chmod 600)", kOp,
                io::shown_path(path));
  text = trimmed(io::read_file(kOp, path, 4096));
  check_runtime(!text.empty(), "[{}] expected a secret in {}, got an empty file", kOp, io::shown_path(path));
  check_runtime(text.find('\0') == text.npos, "[{}] expected a secret in {}, got bytes of 0 in it", kOp,
                io::shown_path(path));
  return text;
}

LaunchInfo launch_info(const LaunchOptions& options) {
  LaunchInfo info;
  if (!options.rank && !options.world_size)
    for (const Family& f : kFamilies)
      if (variable(f.rank) || (variable(f.world_size) && !f.rank_decides)) {
        read_family(f, info);
        break;
      }
  read_options(options, info);
  if (info.launcher != "none" && options.address.empty()) read_address(info);
  if (!options.address.empty()) info.address = options.address;
  if (options.port) {
    check(*options.port >= 1 && *options.port <= 65535, "[{}] expected port in [1, 65535], got {}", kOp, *options.port);
    info.port = *options.port;
  }
  info.secret = secret_of_environment();
  info.store_hosted = variable("TAPIR_STORE_HOSTED") != nullptr;
  return info;
}

}  // namespace tapir::inline v0::distributed
