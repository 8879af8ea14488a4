#include "campaign.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tapir/core/cuda.h>
#include <tapir/core/parallel.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "draw.h"
#include "shrink.h"

namespace ops_fuzz {

static double now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

/// Exit status.
constexpr int kNoDevice = 4;
/// With more there is something wrong with all calls.
constexpr size_t kMostFindings = 100;

/// What the process has computed, in seconds: time while it is stopped, or others have the processor, does not count.
static double computed(clockid_t clock) {
  timespec t{};
  return clock_gettime(clock, &t) == 0 ? double(t.tv_sec) + double(t.tv_nsec) * 1e-9 : 0;
}
static double computed_by(int pid) {
  clockid_t clock{};
  return clock_getcpuclockid(pid, &clock) == 0 ? computed(clock) : 0;
}

struct Campaign::Shared {
  std::atomic<int64_t> begun = 0;         // calls, and smaller forms of them
  std::atomic<double> computed_then = 0;  // when the last one began
  std::atomic<int64_t> next = 0;          // the number of the call behind it
  double end = 0;                         // of all calls
  Counts counts;
  int64_t known = 0;
  char call[16384] = "";

  void begin(const std::string& text) {
    std::strncpy(call, text.c_str(), sizeof call - 1);
    computed_then = computed(CLOCK_PROCESS_CPUTIME_ID);
    ++begun;
  }
};

/// What a call asks for beyond it, it does not get.
static void limit_memory([[maybe_unused]] int64_t megabytes) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  FILE* file = std::fopen("/proc/self/statm", "r");
  long pages = 0;
  if (!file || std::fscanf(file, "%ld", &pages) != 1) pages = 0;
  if (file) std::fclose(file);
  const rlim_t bytes = rlim_t(pages) * rlim_t(sysconf(_SC_PAGESIZE)) + (rlim_t(megabytes) << 20);
  const rlimit limit{bytes, bytes};
  if (pages) setrlimit(RLIMIT_AS, &limit);
#endif
}

Plan Campaign::plan_of(int64_t n, bool whole) const {
  if (whole) return {.device = settings_.device};
  Random random(settings_.seed * 7919 + uint64_t(n));
  Plan plan;
  plan.contiguous = random.chance(0.5), plan.backward = random.chance(0.5), plan.reference = random.chance(0.5);
  plan.compiled = random.below(settings_.compiled) == 0, plan.gradient = random.below(settings_.gradient) == 0;
  if (settings_.device && random.below(settings_.on_device) == 0) plan.device = settings_.device;
  return plan;
}

std::string key_of(const std::string& check, const std::string& call) {
  const size_t first = call.find('/') + 1, form = call.find(" ; ");
  if (form == std::string::npos) return check;
  return check + " " + call.substr(first, call.find(':') - first) + " " +
         call.substr(form + 3, call.find(" ; ", form + 3) - form - 3);
}
bool Campaign::is_new(const std::string& key) {
  for (const std::regex& known : settings_.known)
    if (std::regex_match(key, known)) return ++known_, false;
  return keys_.insert(key).second;
}

static std::optional<Finding> looked_at(const Call& call, const Plan& plan, Counts& counts) {
  try {
    return examine(call, plan, counts);
  } catch (const std::exception& e) {
    return Finding{"comparison", e.what()};
  }
}

/// Makes it smaller, and writes it to the process that watches.
void Campaign::report(Shared& shared, int pipe, const Call& call, const Plan& plan, const Finding& finding) {
  Finding last = finding;
  Counts uncounted;
  const auto bad = [&](const Call& c) {
    shared.begin(lines_.text(c));
    const std::optional<Finding> f = looked_at(c, plan, uncounted);
    if (f && f->check == finding.check) last = *f;
    return f && f->check == finding.check;
  };
  const std::string text = lines_.text(shrink(call, bad, 600));
  std::string record = last.check + "\t" + last.message + "\t" + text;
  for (char& c : record)
    if (c == '\n') c = ' ';
  record += '\n';
  for (size_t at = 0; at < record.size();) {
    const ssize_t n = write(pipe, record.data() + at, record.size() - at);
    if (n <= 0) _exit(2);
    at += size_t(n);
  }
}

void Campaign::work(Shared& shared, int pipe, const std::vector<std::string>& corpus, int64_t from) {
  set_num_threads(1);
  if (settings_.device && settings_.device->is_cuda() && !cuda::is_available()) {
    std::fprintf(stderr, "ops_fuzz: no CUDA device: %s\n", cuda::why_not().c_str());
    _exit(kNoDevice);
  }
  limit_memory(settings_.megabytes);
  const int64_t kept = int64_t(corpus.size()), last = settings_.calls ? kept + settings_.calls : INT64_MAX;
  for (int64_t n = from; n < last; ++n) {
    shared.next = n + 1;
    if (n >= kept && settings_.seconds > 0 && now() > shared.end) break;
    shared.begin("call " + std::to_string(n - kept));
    Random random(settings_.seed + uint64_t(n - kept) * 0x9e3779b97f4a7c15);
    const Call call = n < kept ? lines_.parse(corpus[size_t(n)]) : draw(lines_, random);
    const std::string text = lines_.text(call);
    shared.begin(text);
    const Plan plan = plan_of(n - kept, n < kept);
    const std::optional<Finding> finding = looked_at(call, plan, shared.counts);
    if (finding && is_new(key_of(finding->check, text))) report(shared, pipe, call, plan, *finding);
    shared.known = known_;
  }
}

void Campaign::add(Found found) {
  keys_.insert(key_of(found.finding.check, found.call));
  std::printf("FINDING %s: %s\n  --replay '%s'\n", found.finding.check.c_str(), found.finding.message.c_str(),
              found.call.c_str());
  found_.push_back(std::move(found));
}

void Campaign::read_reports(int pipe) {
  char bytes[4096];
  for (pollfd p{pipe, POLLIN, 0}; poll(&p, 1, 0) > 0;) {
    const ssize_t n = read(pipe, bytes, sizeof bytes);
    if (n <= 0) break;
    unread_.append(bytes, size_t(n));
  }
  for (size_t end; (end = unread_.find('\n')) != std::string::npos; unread_.erase(0, end + 1)) {
    const std::string record = unread_.substr(0, end);
    const size_t first = record.find('\t'), last = record.rfind('\t');
    add({{record.substr(0, first), record.substr(first + 1, last - first - 1)}, record.substr(last + 1)});
  }
}

/// A call hangs where it computes for so long, or where so many looks, each a twentieth of a second apart, find it and nothing computed.
Campaign::Ended Campaign::watch(Shared& shared, int pid, int pipe, int* status) {
  constexpr int kLooks = 20 * 60;
  int64_t call = -1;
  for (int looks = 0;; ++looks) {
    pollfd p{pipe, POLLIN, 0};
    poll(&p, 1, 50);
    const bool gone = waitpid(pid, status, WNOHANG) == pid;
    read_reports(pipe);
    if (gone) return WIFEXITED(*status) && WEXITSTATUS(*status) == 0 ? Ended::Done : Ended::Crashed;
    if (found_.size() >= kMostFindings) kill(pid, SIGKILL);
    if (const int64_t now = shared.begun; now != call) call = now, looks = 0;
    const double seconds = computed_by(pid) - shared.computed_then;
    if (shared.begun != call || (seconds < settings_.hang && (looks < kLooks || seconds > 0.01))) continue;
    kill(pid, SIGKILL);
    waitpid(pid, status, 0);
    return Ended::Hung;
  }
}

/// In a process of its own: whether it dies, or computes longer than that.
bool Campaign::ends_badly(const Call& call, double seconds) const {
  const int pid = fork();
  if (pid == 0) {
    std::freopen("/dev/null", "w", stderr);
    set_num_threads(1);
    limit_memory(settings_.megabytes);
    Counts counts;
    outcome_of([&] { return examine(call, plan_of(0, true), counts), List(); });
    _exit(0);
  }
  int status = 0;
  for (int looks = 0; computed_by(pid) < seconds && looks < 60000; ++looks, usleep(1000))
    if (waitpid(pid, &status, WNOHANG) == pid) return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return true;
}

void Campaign::add_ended(Shared& shared, const std::string& check, const std::string& message) {
  std::string text = shared.call;
  if (!is_new(key_of(check, text))) return;
  if (text.find(" ; ") != std::string::npos) {
    const double seconds = check == "hang" ? settings_.hang : 5;
    const Call call = lines_.parse(text);
    if (ends_badly(call, seconds))
      text = lines_.text(shrink(
          call, [&](const Call& c) { return ends_badly(c, seconds); }, check == "hang" ? 12 : 300));
    else if (check == "hang") return;  // the machine was busy
    else
      text +=
          "   (not alone: seed " + std::to_string(settings_.seed) + ", call " + std::to_string(shared.next - 1) + ")";
  }
  add({{check, message}, text});
}

void Campaign::run(const std::vector<std::string>& corpus) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw RuntimeError("no memory to share with the process that runs the calls");
  Shared& shared = *new (memory) Shared;
  shared.end = now() + settings_.seconds;
  for (bool more = true; more;) {
    int ends[2], status = 0;
    if (pipe(ends) != 0) throw RuntimeError("no pipe");
    std::fflush(stdout);
    const int64_t from = shared.next;
    const int pid = fork();
    if (pid < 0) throw RuntimeError("no process");
    if (pid == 0) {
      const Outcome end = outcome_of([&] { return work(shared, ends[1], corpus, from), List(); });
      if (end.end != End::Result) std::fprintf(stderr, "ops_fuzz: %s\n", end.message.c_str());
      _exit(end.end == End::Result ? 0 : 3);
    }
    close(ends[1]);
    const Ended ended = watch(shared, pid, ends[0], &status);
    close(ends[0]);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoDevice) throw RuntimeError("no device to compare with");
    more = ended != Ended::Done && found_.size() < kMostFindings;
    known_ = shared.known;
    if (ended == Ended::Hung)
      add_ended(shared, "hang", "it takes more than " + std::to_string(int(settings_.hang)) + " s");
    if (ended == Ended::Crashed)
      add_ended(shared, "crash",
                WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exit " + std::to_string(WEXITSTATUS(status)));
  }
  counts_ = shared.counts;
  munmap(memory, sizeof(Shared));
}

}  // namespace ops_fuzz
