// This program once more, as a process of a job.
#pragma once
#include <cmath>

#include <tapir/distributed/store.h>

#include "../distributed/jobs.h"

namespace reliability {
using tapir_tests::Ended, tapir_tests::Process, tapir_tests::TemporaryFolder;

/// `reliability rank words...`, with what stands in `environment` beside ours. It prints into that file.
inline Process started(std::vector<std::string> words, std::vector<std::string> environment, const std::string& file) {
  words.insert(words.begin(), {"/proc/self/exe", "rank"});
  char path[4096];
  const ssize_t n = readlink(words[0].c_str(), path, sizeof path);
  if (n > 0) words[0].assign(path, size_t(n));
  environment.push_back("OMP_NUM_THREADS=1");
  return Process(words, environment, file);
}

/// The ranks of a job on this machine, whose store is here. worlds: WORLD_SIZE as each rank hears it, and so their number.
inline std::vector<Ended> run_job(const std::vector<std::string>& words, const std::vector<int>& worlds,
                                  const std::vector<int>& ranks = {}, double limit = 60) {
  const TemporaryFolder folder;
  const tapir::distributed::StoreServer store("127.0.0.1", 0);
  std::vector<Process> processes;
  for (size_t i = 0; i < worlds.size(); ++i)
    processes.push_back(
        started(words,
                {"RANK=" + std::to_string(ranks.empty() ? int(i) : ranks[i]), "WORLD_SIZE=" + std::to_string(worlds[i]),
                 "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(store.port()), "TAPIR_STORE_HOSTED=1"},
                folder / std::to_string(i)));
  std::vector<Ended> out;
  for (Process& p : processes) out.push_back(p.end(limit));
  return out;
}

/// The number behind the word in what a process printed; NaN where it is not there.
inline double told(const Ended& ended, const std::string& word) {
  const size_t at = ended.output.find(word + " ");
  return at == std::string::npos ? std::nan("") : std::atof(ended.output.c_str() + at + word.size());
}
inline bool says(const Ended& ended, const std::string& text) { return ended.output.find(text) != std::string::npos; }

}  // namespace reliability
