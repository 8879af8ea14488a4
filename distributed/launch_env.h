#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace tapir::inline v0::distributed {

/// What a program says itself about its place; it wins over the environment.
struct LaunchOptions {
  std::optional<int64_t> rank = {}, world_size = {}, local_rank = {}, local_world_size = {};
  std::string address = {};  // of rank 0's machine
  std::optional<int> port = {};
};

/// A process's place in its job.
struct LaunchInfo {
  std::string launcher = "none";  // "options", "torchrun", "slurm", "openmpi", "mpich"; "none": a process alone
  int64_t rank = 0, world_size = 1;
  int64_t local_rank = 0, local_world_size = 1;  // among those of this machine: the index of its CUDA device
  std::string address = "127.0.0.1";
  int port = 29500;
  int64_t restart_count = 0;
  std::string secret;         // that of the environment; what keeps others out of the job
  bool store_hosted = false;  // the launcher keeps the store at address:port; else rank 0 does
};

/// The place from the options, then the variables of torchrun (tapir-run sets the same), Slurm, Open MPI or MPICH, the first family of
/// which one is set. ValueError names a variable that is missing, empty, not a number, or outside its range.
LaunchInfo launch_info(const LaunchOptions& options = {});

/// TAPIR_STORE_SECRET, else the content of the file that TAPIR_STORE_SECRET_FILE names; empty without both. RuntimeError for a file that
/// cannot be read, is empty or long, or that others may read too.
std::string secret_of_environment();

/// The first host of Slurm's list: "node[07-09,12],x3" is node07.
std::string first_host(const std::string& node_list);

}  // namespace tapir::inline v0::distributed
