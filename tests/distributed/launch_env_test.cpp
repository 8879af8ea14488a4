#include <tapir/distributed/launch_env.h>

#include <cstdlib>

#include "../catch.h"
#include "../errors.h"
#include "../io/temporary.h"

using namespace tapir::distributed;

namespace {
/// Sets variables for a scope, and hides all others that a launcher may have set.
struct Environment {
  std::vector<const char*> names{"RANK",
                                 "WORLD_SIZE",
                                 "LOCAL_RANK",
                                 "LOCAL_WORLD_SIZE",
                                 "MASTER_ADDR",
                                 "MASTER_PORT",
                                 "SLURM_PROCID",
                                 "SLURM_NTASKS",
                                 "SLURM_LOCALID",
                                 "SLURM_NTASKS_PER_NODE",
                                 "SLURM_JOB_ID",
                                 "SLURM_JOB_NODELIST",
                                 "OMPI_COMM_WORLD_RANK",
                                 "OMPI_COMM_WORLD_SIZE",
                                 "OMPI_COMM_WORLD_LOCAL_RANK",
                                 "OMPI_COMM_WORLD_LOCAL_SIZE",
                                 "PMI_RANK",
                                 "PMI_SIZE",
                                 "MPI_LOCALRANKID",
                                 "MPI_LOCALNRANKS",
                                 "TORCHELASTIC_RESTART_COUNT",
                                 "TORCHELASTIC_USE_AGENT_STORE",
                                 "TAPIR_STORE_SECRET",
                                 "TAPIR_STORE_SECRET_FILE"};
  explicit Environment(std::initializer_list<std::pair<const char*, const char*>> list) {
    for (const char* n : names) unsetenv(n);
    for (const auto& [n, v] : list) setenv(n, v, 1);
  }
  ~Environment() {
    for (const char* n : names) unsetenv(n);
  }
};
std::string refused(std::initializer_list<std::pair<const char*, const char*>> list) {
  const Environment environment(list);
  return error_of([] { launch_info(); });
}
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }
}  // namespace

TEST_CASE("the environments of four launchers, and of none") {
  {
    const Environment none({});
    CHECK((launch_info().world_size == 1 && launch_info().launcher == "none"));
  }
  {
    const Environment e({{"RANK", "3"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "h"},
                         {"MASTER_PORT", "29400"},
                         {"TORCHELASTIC_RESTART_COUNT", "2"},
                         {"PMI_RANK", "9"}});
    const LaunchInfo i = launch_info();
    CHECK(
        (i.launcher == "torchrun" && i.rank == 3 && i.world_size == 4 && i.local_rank == 1 && i.local_world_size == 2));
    CHECK((i.address == "h" && i.port == 29400 && i.restart_count == 2));
    const LaunchInfo o = launch_info({.rank = 0, .world_size = 2, .address = "a", .port = 5});
    CHECK((o.launcher == "options" && o.rank == 0 && o.world_size == 2 && o.address == "a" && o.port == 5));
  }
  {
    const Environment e({{"SLURM_PROCID", "5"},
                         {"SLURM_NTASKS", "8"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_NTASKS_PER_NODE", "4"},
                         {"SLURM_JOB_ID", "123456"},
                         {"SLURM_JOB_NODELIST", "gpu[07-09,12],x3"}});
    const LaunchInfo i = launch_info();
    CHECK((i.launcher == "slurm" && i.rank == 5 && i.local_rank == 1 && i.local_world_size == 4 &&
           i.address == "gpu07" && i.port == 23456));
  }
  {
    const Environment e({{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
    CHECK((launch_info().launcher == "openmpi" && launch_info().rank == 1 && launch_info().address == "127.0.0.1"));
  }
  const Environment e({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  CHECK((launch_info().launcher == "mpich" && launch_info().local_rank == 1));
  CHECK(first_host("a,b") == "a");
  CHECK(first_host("n[3]") == "n3");
}

TEST_CASE("BI-332 environments that make no sense") {
  CHECK(has(refused({{"RANK", "1"}}), "expected WORLD_SIZE"));
  CHECK(has(refused({{"WORLD_SIZE", "2"}}), "expected RANK"));
  CHECK(has(refused({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "expected RANK below WORLD_SIZE = 2, got 2"));
  CHECK(has(refused({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), "RANK"));
  CHECK(has(refused({{"RANK", "two"}, {"WORLD_SIZE", "2"}}), "got \"two\""));
  CHECK(has(refused({{"RANK", "2\033[2J\n"}, {"WORLD_SIZE", "2"}}), "got \"2\\x1b[2J\\x0a\""));
  CHECK(has(refused({{"RANK", ""}, {"WORLD_SIZE", "2"}}), "got \"\""));
  CHECK(has(refused({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), "WORLD_SIZE"));
  CHECK(has(refused({{"RANK", "0"}, {"WORLD_SIZE", "2147483648"}}), "WORLD_SIZE"));
  CHECK(has(refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}), "MASTER_PORT"));
  CHECK(
      has(refused({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
          "MASTER_ADDR"));
  const Environment none({});
  CHECK(has(error_of([] { launch_info({.rank = 1}); }), "together"));
  CHECK(has(error_of([] { launch_info({.rank = 2, .world_size = 2}); }), "got 2"));
  CHECK(has(error_of([] { launch_info({.rank = 0, .world_size = int64_t(1) << 31}); }), "got 2147483648"));
}

TEST_CASE("a secret comes from a variable, or from a file that nobody else reads; never from a job's number") {
  const tapir_tests::TemporaryFolder folder;
  const std::string file = folder / "secret";
  tapir_tests::spit(file, "of the file \n");
  chmod(file.c_str(), 0600);
  {
    const Environment e(
        {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "123456"}, {"SLURM_JOB_NODELIST", "gpu07"}});
    CHECK((launch_info().secret.empty() && launch_info().address == "127.0.0.1"));
  }
  {
    const Environment e({{"TAPIR_STORE_SECRET_FILE", file.c_str()}});
    CHECK(launch_info().secret == "of the file");
    setenv("TAPIR_STORE_SECRET", "of the variable", 1);
    CHECK(launch_info().secret == "of the variable");
    setenv("TAPIR_STORE_SECRET", "of the variable \r\n", 1);
    CHECK(launch_info().secret == "of the variable");
    setenv("TAPIR_STORE_SECRET", " \n", 1);
    CHECK(launch_info().secret == "of the file");
  }
  const Environment e({{"TAPIR_STORE_SECRET_FILE", file.c_str()}});
  chmod(file.c_str(), 0640);
  const std::string text = tapir_tests::message_of<tapir::RuntimeError>([] { launch_info(); });
  CHECK((has(text, file.c_str()) && has(text, "chmod 600") && !has(text, "of the file")));
  chmod(file.c_str(), 0600);
  tapir_tests::spit(file, std::string("0123456789\0abcdef", 17));  // it does not fit into the variable of the ranks
  const std::string cut = tapir_tests::message_of<tapir::RuntimeError>([] { launch_info(); });
  CHECK((has(cut, file.c_str()) && has(cut, "bytes of 0") && !has(cut, "0123")));
  tapir_tests::spit(file, "\n");
  CHECK(has(tapir_tests::message_of<tapir::RuntimeError>([] { launch_info(); }), "empty"));
}
