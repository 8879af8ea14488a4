#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "../autograd/node.h"
#include "../core/cuda.h"
#include "../ops/autocast.h"
#include "explain.h"
#include "record/aliases.h"
#include "replay/checks.h"
#include "replay/replay.h"

namespace tapir::inline v0::detail {

using ir::Fit, ir::Outside, ir::Recorded, ir::Recording, ir::Replay;

/// A signature, and what came of it.
struct CompileEntry {
  std::vector<int64_t> key;
  std::unique_ptr<Recorded> last;  // what the next recording must equal
  std::unique_ptr<Replay> replay;
  std::unique_ptr<ir::Checks> checks;  // of the replays
  int64_t proof = 0;                   // recordings of the same that it still lacks, after a check found something else
  bool varied = false;                 // a check did
  std::string why;                     // it is not replayed
  bool eager = false;                  // its calls run as they are, until `outside` changes
  std::unique_ptr<Outside> outside = {};
  int attempts = 0;   // recordings since it was last replayed
  int fruitless = 0;  // recordings that few replays followed
  int64_t recordings = 0, replays = 0;
  int64_t last_used = 0;  // in which call
};

struct CompilerState {
  CompileOptions options;
  std::recursive_mutex mutex;  // a function that runs as it is may call itself
  std::vector<std::unique_ptr<CompileEntry>> entries;
  int warnings = 0;
  bool recording = false;
  bool crowded = false;  // the user was told that there are more signatures than programs
  int64_t calls = 0;
  ir::Held held;  // while a program runs
};

namespace {

constexpr int kMaxAttempts = 6;     // in a row, until two are equal
constexpr int kMaxRecordings = 64;  // of one signature, each replayed less often than kFewReplays
constexpr int kFewReplays = 8;
constexpr int kMaxWarnings = 4;  // of one function
constexpr int kDisused = 8;  // of max_programs calls: a signature that did not come for so long gives way to a new one

bool logging() {
  static const bool on = [] {
    const char* text = std::getenv("TAPIR_LOG");
    return text && std::strstr(text, "compile");
  }();
  return on;
}
void log(const CompilerState& state, const std::string& text) {
  if (logging()) std::fprintf(stderr, "[tapir] compile %p: %s\n", static_cast<const void*>(&state), text.c_str());
}
void warn(CompilerState& state, const std::string& text) {
  log(state, text);
  if (logging() || state.warnings == kMaxWarnings) return;
  std::fprintf(stderr, "tapir: warning: [compile] %s%s\n", text.c_str(),
               ++state.warnings == kMaxWarnings ? " (the last warning of this function)" : "");
}
void warn_eager(CompilerState& state, const std::string& why) {
  warn(state,
       "calls of a signature run as they are: " + why + " (when the cause is fixed, reset() has it recorded again)");
}

/// What selects a program. The same object twice among the arguments is another signature than two.
void write_key(std::vector<int64_t>& key, const CompileCall& call) {
  key.assign(1, int64_t(uintptr_t(call.types())));
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor& x = call.inputs[i];
    if (!x.defined()) {
      key.push_back(-1);
      continue;
    }
    size_t same = 0;
    while (!call.inputs[same].is_same(x)) ++same;
    const TensorImpl& p = x.impl();
    key.push_back(int64_t(p.dtype) | int64_t(p.device.type) << 8 | int64_t(p.device.index) << 16 |
                  int64_t(x.requires_grad()) << 32 | int64_t(p.inference) << 33 |
                  int64_t(p.autograd.load() && x.grad().defined()) << 34 |
                  int64_t(p.storage && p.storage->read_only) << 35 | p.sizes.size() << 40);
    key.push_back(int64_t(same));
    key.insert(key.end(), p.sizes.begin(), p.sizes.end());
    key.insert(key.end(), p.strides.begin(), p.strides.end());
  }
  int64_t bits = int64_t(modes.grad) | int64_t(modes.inference) << 1 | int64_t(modes.deterministic) << 2 |
                 int64_t(backends::cuda::matmul_allow_tf32()) << 3 | int64_t(backends::cuda::cudnn_allow_tf32()) << 4 |
                 int64_t(backends::cuda::cudnn_benchmark()) << 5;
  if (const AutocastRegion* region = modes.autocast)
    for (int i = 0; i < kNumDeviceTypes; ++i)
      bits |= (int64_t(region->on[i]) << 7 | int64_t(region->dtype[i])) << (8 + 8 * i);
  key.push_back(bits);
  key.push_back(int64_t(call.values.size()));
  const size_t words = (call.values.size() + 7) / 8, at = key.size();
  key.resize(at + words);
  if (words) std::memcpy(key.data() + at, call.values.data(), call.values.size());
}

/// Could somebody differentiate y again?
bool has_live_graph(const Tensor& y) {
  if (!y.defined() || !y.requires_grad() || y.is_leaf()) return false;
  std::vector<const Node*> stack;
  std::unordered_set<const Node*> seen;
  const Edge root = edge_of(y);
  const auto visit = [&](const Node* n) {
    if (n && seen.insert(n).second) stack.push_back(n);
  };
  for (visit(root.node()); !stack.empty();) {
    const Node* n = stack.back();
    stack.pop_back();
    if (n->freed) return false;
    for (uint32_t i = 0; i < n->num_edges; ++i) visit(n->edges[i].node());
  }
  return true;
}

/// What has been differentiated is returned without its history, as replays return it: its nodes would hold leaves that were made inside.
void drop_history(std::vector<Tensor>& outputs, std::span<const Tensor> inputs) {
  for (Tensor& y : outputs) {
    const bool given = std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& x) { return x.is_same(y); });
    if (y.defined() && y.requires_grad() && !y.is_leaf() && !given && !has_live_graph(y)) y = y.detach();
  }
}

/// Set for a scope.
struct Flag {
  bool& flag;
  explicit Flag(bool& f) : flag(f) { flag = true; }
  ~Flag() { flag = false; }
};

/// Releases what a run held, also where it threw.
struct Released {
  ir::Held& held;
  ~Released() { held.release(); }
};

/// Casts of weights that a surrounding region keeps are not the program's to read.
struct OwnRegion {
  AutocastRegion region = modes.autocast ? *modes.autocast : AutocastRegion();
  ScopedMode<AutocastRegion*> mode{modes.autocast, modes.autocast ? &region : nullptr};
  OwnRegion() { region.cache = nullptr; }
};

/// Nothing is known of it any more but how often that was so.
void forget(CompileEntry& e) {
  if (e.replay && e.replay->replays() >= kFewReplays) e.fruitless = 0;
  e.replay.reset(), e.last.reset(), e.outside.reset(), e.checks.reset(), e.proof = 0, e.varied = false;
  if (e.eager) e.attempts = 0, e.eager = false;
}

/// The entry of a call: one that is replayed, else one that runs as it is, else one that has still to be confirmed.
CompileEntry* find(CompilerState& state, const std::vector<int64_t>& key) {
  CompileEntry *warming = nullptr, *eager = nullptr;
  for (auto& e : state.entries) {
    if (e->key != key) continue;
    const char* why = "";
    state.held.release();
    const Fit fit = e->replay    ? e->replay->fit(why, state.held)
                    : e->outside ? e->outside->fit(why, state.held)
                                 : Fit::Same;
    if (fit == Fit::OtherStart) continue;  // another variant of the signature: other flags, gradients there or not
    if (fit == Fit::Changed && (e->replay || e->fruitless < kMaxRecordings)) {
      log(state, std::string("recorded anew, because ") + why);
      forget(*e);
    }
    if (e->replay) return e.get();
    (e->eager ? eager : warming) = e.get();
  }
  return eager ? eager : warming;
}

/// A new entry, where there are as many as the options allow in the place of the one that was not used for longest (never `but`). Null:
/// that was used lately; if signatures come in turn, some are replayed and the others run as they are.
CompileEntry* add_entry(CompilerState& state, const std::vector<int64_t>& key, const CompileEntry* but = nullptr) {
  const int64_t most = state.options.max_programs;
  if (int64_t(state.entries.size()) >= most) {
    if (!std::exchange(state.crowded, true))
      warn(state,
           tapir::format("more than max_programs = {} signatures or states: calls of others run as they are, until one "
                         "was not used in {} calls (raise max_programs, or pad arguments to fewer shapes)",
                         most, kDisused * most));
    const auto older = [&](const auto& a, const auto& b) {
      return std::pair(a.get() == but, a->last_used) < std::pair(b.get() == but, b->last_used);
    };
    const auto oldest = std::min_element(state.entries.begin(), state.entries.end(), older);
    if (oldest == state.entries.end() || oldest->get() == but || state.calls - (*oldest)->last_used <= kDisused * most)
      return nullptr;
    state.entries.erase(oldest);
  }
  CompileEntry& e = *state.entries.emplace_back(std::make_unique<CompileEntry>());
  e.key = key, e.last_used = state.calls;
  return &e;
}

/// The entry that a recording belongs to: `e`, or one of the same signature that began otherwise.
CompileEntry& entry_of(CompilerState& state, CompileEntry& e, const Recorded& r) {
  if (!e.last || e.last->same_start(r)) return e;
  for (auto& other : state.entries)
    if (other.get() != &e && other->key == e.key && !other->replay && !other->eager &&
        (!other->last || other->last->same_start(r)))
      return *other;
  CompileEntry* const made = add_entry(state, e.key, &e);
  return made ? *made : e;
}

/// From now on its calls run as they are.
void give_up(CompileEntry& e, const std::string& why) {
  e.why = why, e.eager = true, e.outside = std::make_unique<Outside>(std::move(*e.last));
  e.last.reset(), e.replay.reset();
}

std::string lacking(const CompileEntry& e) {
  return tapir::format("it varied: before it is replayed again, {} recordings must do the same", e.proof);
}

/// A call did something else than the program, or than the recordings after such a call: Note [Checks].
void vary(CompilerState& state, CompileEntry& e, std::unique_ptr<Recorded> r, const std::string& why, bool permanent) {
  e.last = std::move(r);
  const bool again = std::exchange(e.varied, true);
  if (!again) {
    e.proof = e.checks->proof();
    warn(state, tapir::format("a call that was checked did not do what is replayed: {}. The {} replays since the last "
                              "check may be wrong. It is recorded anew; if it varies again, calls run as they are (see "
                              "\"What is checked\" in docs/compile.md)",
                              why, e.checks->unseen() - 1));
  }
  if (again || permanent)
    return log(state, "runs as it is, because it varies: " + why), give_up(e, "it varies: " + why);
  e.replay.reset();
  e.why = lacking(e) + "; " + why;
}

void decide(CompilerState& state, CompileEntry& e, std::unique_ptr<Recorded> r, std::string why, bool permanent,
            CompileCall& call, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  if (why.empty() && e.replay) return e.replay->refresh(std::move(*r));
  if (why.empty() && --e.proof > 0) return void((e.last = std::move(r), e.why = lacking(e)));
  if (!why.empty() && e.last && (e.replay || e.varied)) return vary(state, e, std::move(r), why, permanent);
  e.why = why;
  if (why.empty()) try {
      e.checks = std::make_unique<ir::Checks>(state.options.verify, r->program);
      e.replay = std::make_unique<Replay>(std::move(*r), inputs, outputs,
                                          std::unique_ptr<CompileCall::Frame>(call.new_frame()), state.options);
      e.attempts = 0;
      return log(state, tapir::format("a program of {} calls", int64_t(e.replay->schedule().size())));
    } catch (const std::exception& error) {  // the call itself has been made
      permanent = true, why = std::string("no program could be made: ") + error.what(), r = std::move(e.last);
    }
  e.last = std::move(r);
  if (permanent || e.attempts >= kMaxAttempts || e.fruitless >= kMaxRecordings) {
    give_up(e, why);
    warn_eager(state, why);
  } else log(state, "not replayed yet: " + why);
}

/// Is a result a leaf that was made inside, and requires a gradient?
bool has_made_leaf(const Recorded& r, const std::vector<Tensor>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& y = outputs[i];
    const int block = ir::block_of(r.program.outputs[i]);
    if (y.defined() && y.requires_grad() && y.is_leaf() &&
        (block < 0 || r.program.blocks[size_t(block)].kind != ir::Block::Kind::Outside))
      return true;
  }
  return false;
}

/// Why what was recorded cannot be replayed; empty: it can.
std::string fault(const Recorded& r, const ir::Notes& notes, Aliases& aliases, const std::vector<Tensor>& outputs,
                  ir::Held& held, bool& permanent) {
  permanent = true;
  if (aliases.hand_over()) return "an argument's own shape or requires_grad is changed";
  for (const Tensor& y : outputs)
    if (has_live_graph(y))
      return "a result can still be differentiated: call backward() inside, return y.detach(), or compile under NoGrad";
  if (std::string why = ir::obstacle(r, notes, permanent); !why.empty()) return why;
  if (!r.hold(held)) return "a tensor from outside went during the call";
  permanent = has_made_leaf(r, outputs);
  if (permanent) return "a result is a leaf that is made inside and requires a gradient";
  return aliases.are_kept(outputs) ? "an argument is kept outside: copy_() it into a tensor that exists before" : "";
}

/// Runs the call and writes it down.
void record(CompilerState& state, CompileEntry& e, CompileCall& call) {
  for (const Tensor& x : call.inputs)
    if (x.defined() && (x.requires_grad() || x.grad().defined())) {  // an alias has no part in the tape
      e.eager = true, e.why = x.requires_grad() ? "an argument requires a gradient" : "an argument has a gradient";
      warn_eager(state, e.why);
      return call.run({});
    }
  const bool tried = e.replay || e.varied;
  if (!tried) ++e.attempts, ++e.fruitless;
  if (!e.replay) ++e.recordings;
  Aliases aliases(call.inputs);
  const std::vector<Tensor>& inputs = aliases.tensors;
  const OwnRegion region;
  Recording recording(inputs, tried);
  std::vector<Tensor> outputs;
  std::unique_ptr<CompileCall::Frame> frame;
  ir::Program program;
  ir::Notes notes;
  try {
    const Flag in_progress(state.recording);
    call.run(inputs);
    outputs = call.outputs();
    frame.reset(call.new_frame());
    drop_history(outputs, inputs);
    std::vector<Tensor> kept = outputs;
    call.build(*frame, kept);  // the history ends here
    program = recording.finish(outputs, &notes);
  } catch (...) {
    if (!tried) e.last.reset();
    throw;
  }
  std::vector<Tensor> results;
  for (Tensor& y : outputs) results.push_back(aliases.unaliased(y));
  call.build(*frame, results);
  ir::Notes rest;
  rest.reseeded = notes.reseeded, rest.unseen = std::move(notes.unseen), rest.taken = std::move(notes.taken);
  const std::string refused = std::move(notes.refused);
  auto r = std::make_unique<Recorded>(ir::keep(std::move(program), std::move(notes)));
  bool permanent = false;
  ir::Held held;  // until it is a program
  std::string why = fault(*r, rest, aliases, outputs, held, permanent);
  CompileEntry& place = tried ? e : entry_of(state, e, *r);
  std::string differs = "it was recorded once: the next call confirms that it does the same each time";
  if (place.last) differs = difference(*place.last, *r);
  if (!refused.empty()) why = refused;
  else if (why.empty() || (tried && !differs.empty())) why = std::move(differs);
  place.last_used = state.calls;
  if (&place != &e)
    for (CompileEntry* x : {&e, &place}) {
      const int by = x == &e ? -1 : 1;
      x->attempts += by, x->recordings += by, x->fruitless += by;
    }
  decide(state, place, std::move(r), why, permanent, call, inputs, outputs);
}

/// Runs a call that could be replayed, and sees whether it still does the same.
void check_call(CompilerState& state, CompileEntry& e, CompileCall& call) {
  using Clock = std::chrono::steady_clock;
  state.held.release();
  e.replay->release_memory();
  const auto start = Clock::now();
  record(state, e, call);
  if (e.replay) e.checks->made(std::chrono::duration<double>(Clock::now() - start).count());
}

/// CompileOptions::verify, or what the environment says.
double share_of_checks(double option) {
  const char* const text = std::getenv("TAPIR_COMPILE_VERIFY");
  check(option <= 1, "[compile] expected verify to be at most 1, got {}", option);
  if (!text || !*text) return option;
  char* end = nullptr;
  const double share = std::strtod(text, &end);
  check(!*end && share >= 0 && share <= 1, "[compile] expected TAPIR_COMPILE_VERIFY to be 0 to 1, got {}", text);
  return share;
}

}  // namespace

Compiler::Compiler(const CompileOptions& options) {
  check(options.max_programs >= 0, "[compile] expected max_programs of 0 or more, got {}", options.max_programs);
  check(options.memory_budget >= 0, "[compile] expected memory_budget of 0 or more, got {}", options.memory_budget);
  state_ = Owner(new CompilerState{.options = options, .mutex = {}, .entries = {}, .held = {}});
  state_->options.verify = share_of_checks(options.verify);
  state_->options.memory_budget = std::min(options.memory_budget, 0x1p62);  // as many bytes as anybody has
}
void release(CompilerState* state) { delete state; }
CompilerState& Compiler::state() const {
  check(bool(state_), "[compile] expected a compiled function, got one that was moved from");
  return *state_;
}

void Compiler::call(CompileCall& call) {
  CompilerState& state = this->state();
  const std::lock_guard turn(state.mutex);
  ++state.calls;
  if (!state.options.enabled || modes.recorder || modes.saved_hooks || modes.anomaly) return call.run({});
  static thread_local std::vector<int64_t> key;
  write_key(key, call);
  CompileEntry* e = find(state, key);
  if (!e) e = add_entry(state, key);
  if (!e || !e->replay) state.held.release();
  if (!e) return call.run({});
  e->last_used = state.calls;
  if (!e->eager && !e->replay) return record(state, *e, call);
  const Released after{state.held};
  if (!e->replay || !e->replay->apart(call.inputs)) return call.run({});
  if (e->checks->due()) return check_call(state, *e, call);
  std::vector<Tensor> outputs;
  e->replay->run(call.inputs, outputs);
  ++e->replays;
  call.build(e->replay->frame(), outputs);
}

std::vector<CompileStats> Compiler::stats() const {
  std::lock_guard lock(state().mutex);
  std::vector<CompileStats> out;
  for (const auto& e : state_->entries)
    if (e->replay) out.push_back(e->replay->stats());
  return out;
}

int64_t Compiler::programs() const {
  std::lock_guard lock(state().mutex);
  return std::count_if(state_->entries.begin(), state_->entries.end(), [](const auto& e) { return bool(e->replay); });
}

void Compiler::reset() {
  std::lock_guard lock(state().mutex);
  check(!state_->recording, "[compile] expected reset() after the call, got it inside of the function");
  state_->entries.clear(), state_->warnings = 0, state_->crowded = false;
}

std::string Compiler::explain() const {
  std::lock_guard lock(state().mutex);
  std::string out = tapir::format("{} signatures, {} calls\n", int64_t(state_->entries.size()), state_->calls);
  for (const auto& e : state_->entries) {
    out += tapir::format("signature: recorded {} times, replayed {} times\n", e->recordings, e->replays);
    if (!e->why.empty()) out += (e->eager ? "  runs as it is: " : "  not replayed yet: ") + e->why + "\n";
    if (e->replay) out += "  " + e->checks->text() + "\n" + ir::explain(*e->replay);
  }
  return out;
}

std::string Compiler::dot() const {
  std::lock_guard lock(state().mutex);
  std::string out;
  for (const auto& e : state_->entries)
    if (e->replay) out += ir::to_dot(e->replay->recorded().program);
  return out;
}

}  // namespace tapir::inline v0::detail
