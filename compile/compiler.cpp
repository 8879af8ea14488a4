#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "../core/generator.h"
#include "../core/recorder.h"
#include "../ops/autocast.h"
#include "explain.h"
#include "record/aliases.h"
#include "replay/backward.h"
#include "replay/checks.h"
#include "signature.h"

namespace tapir::inline v0::detail {

using ir::Fit, ir::Outside, ir::Reason, ir::Recorded, ir::Recording, ir::Replay, ir::Sample;

/// A signature, and what came of it.
struct CompileEntry {
  std::vector<int64_t> key;
  std::shared_ptr<const std::vector<ir::WeakTensor>> leaves = {};  // of the key
  std::unique_ptr<Sample> last;                                    // what the next recording must equal
  std::unique_ptr<Replay> replay;
  std::shared_ptr<ir::Backward> backward = {};  // of differentiable calls
  std::shared_ptr<ir::Samples> samples = {};    // of such, recorded, since they were differentiated
  std::unique_ptr<ir::Checks> checks;           // of the replays
  int64_t proof = 0;                            // so many more recordings must do the same; 0: one
  bool varied = false;                          // a check found that calls do not do what was replayed
  Reason why;                                   // it is not replayed
  bool only_read = false;                       // arguments that share memory, in a call that was not recorded
  bool eager = false;                           // its calls run as they are, until `outside` changes
  std::unique_ptr<Outside> outside = {};
  const char* changed = "";  // why it was recorded anew
  int attempts = 0;          // recordings unlike the one before, since it was last replayed
  int fruitless = 0;         // such, and programs that were replayed few times
  int64_t recordings = 0, replays = 0;
  int64_t skipped = 0;    // calls that ran as they are, because nobody differentiated such
  int64_t last_used = 0;  // in which call
};

struct CompilerState {
  CompileOptions options;
  std::recursive_mutex mutex;  // a function that runs as it is may call itself
  std::vector<std::unique_ptr<CompileEntry>> entries;
  std::vector<std::string> warned = {};
  bool recording = false;
  bool crowded = false;  // the user was told that there are more signatures than programs
  int64_t calls = 0;
  int64_t proof = 0;  // recordings of the same before there is a program, once one was found to be wrong
  ir::Held held;      // while a program runs
};

namespace {

constexpr int kMaxAttempts = 6;     // in a row, until two are equal
constexpr int kMaxRecordings = 64;  // of one signature, each replayed less often than kFewReplays
constexpr int kFewReplays = 8;
constexpr size_t kMaxWarnings = 4;  // of one function
constexpr int kDisused = 8;  // of max_programs calls: a signature that did not come for so long gives way to a new one

bool logging() {
  static const bool on = [] {
    const char* text = std::getenv("TAPIR_LOG");
    return text && std::strstr(text, "compile");
  }();
  return on;
}
void log(const CompilerState& state, const Reason& what) {
  if (logging())
    std::fprintf(stderr, "[tapir] compile %p: %s\n", static_cast<const void*>(&state), what.text().c_str());
}
void warn(CompilerState& state, const Reason& what) {
  const std::string text = what.text();
  log(state, text);
  const bool known = std::find(state.warned.begin(), state.warned.end(), text) != state.warned.end();
  if (logging() || known || state.warned.size() == kMaxWarnings) return;
  state.warned.push_back(text);
  std::fprintf(stderr, "tapir: warning: [compile] %s%s\n", text.c_str(),
               state.warned.size() == kMaxWarnings ? " (the last warning of this function)" : "");
}
void warn_eager(CompilerState& state, const Reason& why) {
  warn(state,
       "calls of a signature run as they are: " + why + " (when the cause is fixed, reset() has it recorded again)");
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

/// Nothing is known of it any more but how often that was so.
void forget(CompileEntry& e) {
  if (e.replay && e.replay->replays() >= kFewReplays) e.fruitless = 0;
  e.replay.reset(), e.backward.reset(), e.samples.reset(), e.last.reset(), e.outside.reset(), e.checks.reset();
  if (e.eager) e.attempts = 0, e.eager = false;
}

/// The entry of a call: one that is replayed, else one that runs as it is, else one that has still to be confirmed.
CompileEntry* find(CompilerState& state, const std::vector<int64_t>& key) {
  CompileEntry *warming = nullptr, *eager = nullptr;
  for (auto& e : state.entries) {
    const char* why = "";
    if (!e->varied || !e->eager || e->key != key) continue;  // else no variant of the signature can be trusted
    if (!e->outside || e->outside->fit(why, state.held) != Fit::Changed) return e.get();
  }
  for (auto& e : state.entries) {
    if (e->key != key) continue;
    const char* why = "";
    state.held.release();
    const Outside* known = e->outside ? e->outside.get() : e->last && e->proof > 0 ? &e->last->forward : nullptr;
    Fit fit = e->replay ? e->replay->fit(why, state.held) : known ? known->fit(why, state.held) : Fit::Same;
    if (fit == Fit::Same && e->backward) fit = e->backward->fit(why, state.held);
    if (fit == Fit::OtherStart) continue;  // another variant of the signature: other flags, gradients there or not
    if (fit == Fit::Changed && (e->replay || e->fruitless < kMaxRecordings)) {
      log(state, std::string("recorded anew, because ") + why);
      e->changed = why;
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
    const auto older = [&](const auto& a, const auto& b) {
      return std::pair(a.get() == but, a->last_used) < std::pair(b.get() == but, b->last_used);
    };
    const auto oldest = std::min_element(state.entries.begin(), state.entries.end(), older);
    if (oldest == state.entries.end() || oldest->get() == but ||
        state.calls - (*oldest)->last_used <= kDisused * most) {
      if (!std::exchange(state.crowded, true))
        warn(state,
             tapir::format("more than max_programs = {} signatures or states: calls of others run as they are, until "
                           "one was not used in {} calls ({})",
                           most, kDisused * most, advice(key, most > 0 ? state.entries.back()->key : key)));
      return nullptr;
    }
    state.entries.erase(oldest);
  }
  CompileEntry& e = *state.entries.emplace_back(std::make_unique<CompileEntry>());
  e.key = key, e.last_used = state.calls;
  return &e;
}

/// The entry that a recording belongs to: `e`, or one of the same signature that began otherwise.
CompileEntry& entry_of(CompilerState& state, CompileEntry& e, const Recorded& r) {
  if (!e.last || e.last->forward.same_start(r)) return e;
  for (auto& other : state.entries)
    if (other.get() != &e && other->key == e.key && !other->replay && !other->eager &&
        (!other->last || other->last->forward.same_start(r)))
      return *other;
  CompileEntry* const made = add_entry(state, e.key, &e);
  if (made) made->leaves = e.leaves;
  return made ? *made : e;
}

/// From now on its calls run as they are.
void give_up(CompileEntry& e, const Reason& why) {
  e.why = why, e.eager = true, e.outside = std::make_unique<Outside>(std::move(e.last->forward));
  e.last.reset(), e.replay.reset(), e.backward.reset(), e.samples.reset();
}

/// A check found that a call does something else than what is replayed: Note [Checks].
void vary(CompilerState& state, CompileEntry& e, std::unique_ptr<Sample> sample) {
  const Reason why = sample->why;
  const bool eager = std::exchange(e.varied, true) || sample->permanent;
  state.proof = std::max(state.proof, e.checks->proof());
  log(state, "varies: " + why);
  if (!logging())
    std::fprintf(stderr,
                 "tapir: warning: [compile] a call that was checked did not do what is replayed: %s. Some of the "
                 "%lld replays so far may be wrong. %s (see \"What is checked\" in docs/compile.md)\n",
                 why.text().c_str(), static_cast<long long>(e.replays),
                 eager ? "Calls of this signature run as they are from now on"
                       : "It is recorded anew; if it varies again, calls run as they are");
  e.last = std::move(sample);
  if (eager) return give_up(e, "it varies: " + why);
  for (auto& other : state.entries)  // variants of the signature share the host code
    if (other->key == e.key) {
      other->replay.reset(), other->backward.reset();
      other->attempts = 0, other->proof = state.proof, other->why = "it varied: " + why;
    }
}

/// Are the kernels of its programs there?
bool is_ready(CompileEntry& e) {
  const bool there = e.replay->ready() && (!e.backward || e.backward->replay().ready());
  if (there != e.why.empty()) e.why = there ? "" : "its kernels are being compiled";
  return there;
}

/// A program of a recording that confirms the one before. `inputs`, `outputs`: of the recorded call.
void make_program(CompilerState& state, CompileEntry& e, Sample& s, const std::vector<Tensor>& inputs,
                  const std::vector<Tensor>& outputs) {
  ++e.fruitless;
  try {
    CompileOptions options = state.options;
    options.background &= !modes.deterministic && !ir::calls_host(s.forward.program) &&
                          !(s.backward && ir::calls_host(s.backward->program.program));
    e.checks = std::make_unique<ir::Checks>(state.options.verify, s.forward.program);
    if (s.backward) hand_out_kept(s);
    e.replay = std::make_unique<Replay>(std::move(s.forward), inputs, outputs, std::move(s.frame), options,
                                        Replay::Callers{.results = s.returned.size()});
    if (s.backward) e.backward = std::make_shared<ir::Backward>(std::move(*s.backward), *e.replay, options);
    e.attempts = 0, e.why = {};
    log(state, tapir::format("a program of {} calls", int64_t(e.replay->schedule().size())));
    is_ready(e);
  } catch (const std::exception& error) {  // the call itself has been made
    give_up(e, std::string("no program could be made: ") + error.what());
    warn_eager(state, e.why);
  }
}

/// What a recording leads to. `inputs`, `outputs`: of the recorded call.
void decide(CompilerState& state, CompileEntry& e, std::unique_ptr<Sample> sample, const std::vector<Tensor>& inputs,
            const std::vector<Tensor>& outputs) {
  if (sample->why.empty() && e.replay) {
    if (e.backward && sample->backward) e.backward->refresh(std::move(*sample->backward));
    return e.replay->refresh(std::move(sample->forward));
  }
  if (e.replay) return vary(state, e, std::move(sample));
  if (sample->why.empty() && e.proof <= 1) return make_program(state, e, *sample, inputs, outputs);
  e.why = sample->why;
  const bool permanent = sample->permanent;
  e.last = std::move(sample);
  if (e.why.empty()) {
    e.why = tapir::format("it varied: before it is replayed again, {} calls must do the same", --e.proof);
    return;
  }
  e.proof = state.proof;
  ++e.fruitless;
  if (e.fruitless >= kMaxRecordings && *e.changed)
    e.why = std::string("what it uses changes so often that hardly a call is replayed; the last time ") + e.changed;
  if (permanent || ++e.attempts >= kMaxAttempts || e.fruitless >= kMaxRecordings) {
    e.varied |= state.proof > 0;
    give_up(e, (state.proof > 0 ? "it varies: " : "") + e.why);
    if (state.proof > 0) return log(state, "runs as it is: " + e.why);  // the user was told
    warn_eager(state, e.why);
  } else log(state, "not replayed yet: " + e.why);
}

/// Is a result a leaf that was made inside, and requires a gradient?
bool has_made_leaf(const Recorded& r, const std::vector<Tensor>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& y = outputs[i];
    const int block = ir::block_of(r.program.outputs[i]);
    if (y.defined() && y.requires_grad() && y.is_leaf() &&
        (block < 0 || r.moves[size_t(block)] || r.program.blocks[size_t(block)].kind != ir::Block::Kind::Outside))
      return true;
  }
  return false;
}

/// Why what was recorded cannot be replayed; empty: it can. Of a call that is checked, what would be wrong to replay, not what is in doubt.
Reason fault(Sample& s, ir::Held& held) {
  if (!s.why.empty()) return s.why;
  if (s.checked) s.forward.shared_gradient = false;
  const auto of = [&](const Recorded& r, bool graph) -> Reason {
    if (Reason why = ir::obstacle(r, s.notes, graph, s.permanent); !why.empty()) return why;
    return s.checked || r.hold(held) ? "" : "a tensor from outside went during the call";
  };
  Reason why = of(s.forward, s.differentiable);
  if (why.empty() && s.backward) why = of(s.backward->program, false);
  if (why.empty() && s.backward && !s.backward->program.grads.empty()) why = "backward changes gradients by itself";
  return why;
}

/// A recorded call is complete.
void arrive(CompilerState& state, CompileEntry& e, std::unique_ptr<Sample> s, const std::vector<Tensor>& inputs,
            const std::vector<Tensor>& outputs) {
  ir::Held held;  // until it is a program
  s->why = fault(*s, held);
  s->checked &= bool(e.replay);
  CompileEntry& place = s->checked ? e : entry_of(state, e, s->forward);
  if (place.replay && !s->checked) {  // from before there was a program
    if (!s->why.empty() || !misses_gradients(*s, *place.last)) return;
    forget(place);
  }
  if (!s->checked && s->why.empty() && place.last && misses_gradients(*place.last, *s) &&
      place.last->passed++ < kMaxAttempts)
    return;  // of calls whose results are used in turns, what is replayed is the one with most gradients
  Reason differs = "it was recorded once: the next call confirms that it does the same each time";
  if (s->checked && misses_gradients(*place.last, *s)) differs = {}, s->backward.reset();
  else if (place.last) differs = difference(*place.last, *s);
  const bool varies = !differs.empty();
  if (!s->notes.refused.empty()) s->why = s->notes.refused;
  else if (s->why.empty() || (s->checked && varies)) s->why = std::move(differs);
  place.last_used = state.calls;
  if (s->checked && s->permanent && !varies) {  // it does the same, but somebody makes something else of it
    give_up(place, s->why);
    place.last = std::move(s);
    return warn_eager(state, place.why);
  }
  if (&place != &e) --e.recordings, ++place.recordings;
  decide(state, place, std::move(s), inputs, outputs);
}

/// Differentiable calls whose backward came since the last call.
void harvest(CompilerState& state) {
  for (size_t i = 0; i < state.entries.size(); ++i) {
    CompileEntry& e = *state.entries[i];
    if (!e.samples) continue;
    std::vector<std::unique_ptr<Sample>> done;
    {
      const std::lock_guard lock(e.samples->mutex);
      done.swap(e.samples->done);
    }
    for (auto& s : done) {
      if (e.eager) break;
      const ir::Program& p = s->forward.program;
      const auto inputs = ir::placeholders(std::span(p.inputs).first(s->arguments));
      auto outputs = ir::placeholders(std::span(p.outputs).first(s->returned.size()));
      for (size_t k = 0; k < outputs.size(); ++k)
        if (s->returned[k] != ir::kMade) outputs[k] = inputs[s->returned[k]];
      for (size_t k = 0; s->backward && k < s->backward->kept_blocks.size(); ++k) outputs.emplace_back(new TensorImpl);
      arrive(state, e, std::move(s), inputs, outputs);
    }
  }
}

constexpr const char* kNotDifferentiated = "its results have a history, and no backward went through all of it yet";
constexpr int64_t kUndifferentiated = 64;  // of so many further calls one is recorded

/// What keep() does not take.
ir::Notes rest_of(ir::Notes& notes) {
  ir::Notes rest;
  rest.reseeded = notes.reseeded, rest.outer_graph = notes.outer_graph, rest.unseen = std::move(notes.unseen);
  rest.taken = std::move(notes.taken), rest.refused = std::move(notes.refused);
  return rest;
}

/// What a program cannot do to arguments, or hand out.
void refuse_own_shapes(Sample& s, Aliases& aliases, const std::vector<Tensor>& outputs) {
  if (aliases.hand_over()) s.why = "an argument's own shape, history, hooks or requires_grad is changed";
  else if (has_made_leaf(s.forward, outputs)) s.why = "a result is a leaf that is made inside and requires a gradient";
  s.permanent = !s.why.empty();
}

/// Has a call that is checked done something else already, before its backward?
bool is_other_forward(const CompileEntry& e, const Sample& s) {
  return e.replay && (!s.notes.refused.empty() || !difference(*e.last, s).empty());
}

/// The sample comes back where it cannot wait.
std::unique_ptr<Sample> wait_for_backward(CompileEntry& e, ir::Waiting&& waiting, std::unique_ptr<Sample> s,
                                          std::vector<Tensor>& outputs) {
  if (!e.samples) e.samples = std::make_shared<ir::Samples>();
  waiting.to = e.samples, waiting.sample = std::move(s);
  std::string why;
  if (tie_waiting(std::move(waiting), outputs, why)) {
    if (!e.replay && !e.last) e.why = kNotDifferentiated;
    return nullptr;
  }
  waiting.sample->why = why, waiting.sample->permanent = true;
  return std::move(waiting.sample);
}

/// An alias has no part in the tape, so it cannot stand for such an argument.
bool has_idle_gradient(const Tensor& x) { return x.defined() && !x.requires_grad() && x.grad().defined(); }

/// Aliases of arguments that share memory would hide that from the function. So its first call is not recorded, and shows whether it writes to
/// one of them; then all of its calls run as they are.
void try_shared(CompilerState& state, CompileEntry& e, CompileCall& call) {
  const auto versions = [&] {  // they only rise
    uint64_t sum = 0;
    for (const Tensor& x : call.inputs) sum += x.defined() ? x.version() : 0;
    return sum;
  };
  const uint64_t before = versions();
  call.run({});
  e.only_read = versions() == before;
  if (e.only_read) return;
  e.eager = true, e.why = "arguments share memory, and one of them is written";
  warn_eager(state, e.why);
}

/// Where nothing can be learned, the call runs as it is.
bool run_unrecorded(CompilerState& state, CompileEntry& e, CompileCall& call) {
  if (std::any_of(call.inputs.begin(), call.inputs.end(), has_idle_gradient)) {
    e.eager = true, e.why = "an argument has a gradient, and requires none";
    warn_eager(state, e.why);
  } else if (!e.only_read && !e.replay && share_memory(call.inputs)) {
    try_shared(state, e, call);
    return true;
  } else if (!e.last && e.why == kNotDifferentiated && e.recordings >= kMaxAttempts) {
    if (++e.skipped == kUndifferentiated)
      warn(state, tapir::format("no backward came to the results of {} calls, so they run as they are: put a NoGrad "
                                "around calls that nobody differentiates",
                                e.recordings + e.skipped));
    if (e.skipped % kUndifferentiated == 0) return false;
  } else {
    return false;
  }
  call.run({});
  return true;
}

/// Runs the call and writes it down.
void record(CompilerState& state, CompileEntry& e, CompileCall& call) {
  if (run_unrecorded(state, e, call)) return;
  if (!e.replay) ++e.recordings;
  Aliases aliases(call.inputs);
  const std::vector<Tensor>& inputs = aliases.tensors;
  const auto movable = [&] {
    std::vector<Tensor> all = inputs;
    for (Tensor& x : all)
      if (is_known_leaf(x)) x = Tensor();
    return all;
  };
  ir::Waiting waiting{.first = Node::next_sequence()};
  Recording recording(movable(), e.replay || state.proof > 0, e.last ? &e.last->forward.program : nullptr);
  modes.recorder->first_node = waiting.first;
  std::vector<Tensor> outputs;
  auto s = std::make_unique<Sample>();
  ir::Program program;
  ir::Notes notes;
  try {
    const Flag in_progress(state.recording);
    ir::in_own_region([&] { call.run(inputs); });
    outputs = call.outputs();
    s->frame.reset(call.new_frame());
    ir::drop_history(outputs, inputs, waiting.first);
    std::vector<Tensor> kept = outputs;
    call.build(*s->frame, kept);  // the history ends here
    program = recording.finish(outputs, &notes);
  } catch (...) {
    if (!e.replay) e.last.reset();
    throw;
  }
  waiting.made = ir::memory_left_by(program);
  s->notes = rest_of(notes);
  s->arguments = inputs.size(), s->checked = bool(e.replay);
  s->forward = ir::keep(std::move(program), std::move(notes));
  ir::describe_results(*s, inputs, outputs, waiting.first);
  refuse_own_shapes(*s, aliases, outputs);
  const CompileCall::Frame& frame = *s->frame;
  s->differentiable = s->why.empty() && !s->with_history.empty();
  if (s->differentiable && !is_other_forward(e, *s)) {
    waiting.arguments = movable(), waiting.versions = aliases.versions();
    s = wait_for_backward(e, std::move(waiting), std::move(s), outputs);
  }
  std::vector<Tensor> results;
  for (Tensor& y : outputs) results.push_back(aliases.unaliased(y));
  call.build(frame, results);
  if (!s) return;
  const bool ends = s->why.empty() && !s->differentiable;  // else a graph has handles too
  if (ends && aliases.are_kept(outputs))
    s->why = "an argument is kept outside: copy_() it into a tensor that exists before";
  else if (ends && ir::is_kept(s->forward, outputs))
    s->why = "a result is kept outside too, where a replay would not renew it: keep what the call returns";
  arrive(state, e, std::move(s), inputs, outputs);
}

/// Runs a call that could be replayed, and sees whether it still does the same.
void check_call(CompilerState& state, CompileEntry& e, CompileCall& call) {
  using Clock = std::chrono::steady_clock;
  e.replay->release_memory();
  if (e.backward) e.backward->release_memory();
  const auto start = Clock::now();
  record(state, e, call);
  if (e.replay) e.replay->keep_gradients();
  if (e.replay) e.checks->made(std::chrono::duration<double>(Clock::now() - start).count());
}

enum class Way : uint8_t { AsItIs, Check, Replay };  // how a call goes that has a program
/// AsItIs where the arguments are not such as the program takes, or its kernels or its memory are not there.
Way way_of(CompilerState& state, CompileEntry& e, const CompileCall& call) {
  if (!e.replay || !e.replay->apart(call.inputs)) return Way::AsItIs;
  try {
    if (!is_ready(e)) return Way::AsItIs;
    if (e.checks->due()) return Way::Check;  // before gradients of the last call make room: this one may look at them
    e.replay->make_room();
    return Way::Replay;
  } catch (const std::exception& error) {  // no memory, or no kernel
    give_up(e, error.what());
    warn_eager(state, e.why);
    return Way::AsItIs;
  }
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
  harvest(state);
  static thread_local std::vector<int64_t> key;
  write_key(key, call);
  CompileEntry* e = find(state, key);
  if (e && e->backward && !e->backward->refused().empty()) {
    give_up(*e, e->backward->refused());
    warn_eager(state, e->why);
  }
  if (!e && (e = add_entry(state, key))) e->leaves = leaves_of(call.inputs);
  if (!e || !e->replay) state.held.release();
  if (!e) return call.run({});
  e->last_used = state.calls;
  if (!e->eager && !e->replay) return record(state, *e, call);
  const Released after{state.held};
  const Way way = way_of(state, *e, call);
  if (way != Way::Replay) state.held.release();
  if (way == Way::Check) return check_call(state, *e, call);
  if (way == Way::AsItIs) return call.run({});
  std::vector<Tensor> outputs;
  const ir::RandomState random{default_generator().seed(), default_generator().offset()};
  e->replay->run(call.inputs, outputs);
  if (e->backward) ir::Backward::tie(e->backward, call.inputs, e->replay->hand_over(), random, outputs);
  ++e->replays, call.build(e->replay->frame(), outputs);
}

std::vector<CompileStats> Compiler::stats() const {
  std::lock_guard lock(state().mutex);
  std::vector<CompileStats> out;
  for (const auto& e : state_->entries) {
    if (e->replay) out.push_back(e->replay->stats());
    if (e->backward) out.push_back(e->backward->replay().stats());
  }
  return out;
}

int64_t Compiler::programs() const {
  std::lock_guard lock(state().mutex);
  return std::ranges::count_if(state_->entries, [](const auto& e) { return e->replay && e->why.empty(); });
}

void Compiler::reset() {
  std::lock_guard lock(state().mutex);
  check(!state_->recording, "[compile] expected reset() after the call, got it inside of the function");
  state_->entries.clear(), state_->warned.clear(), state_->crowded = false, state_->proof = 0;
}

std::string Compiler::explain() const {
  std::lock_guard lock(state().mutex);
  const int64_t count = int64_t(state_->entries.size());
  std::string out = tapir::format("{} signature{}, {} calls{}\n", count, count == 1 ? "" : "s", state_->calls,
                                  state_->options.enabled ? "" : ", which run as they are: enabled = false");
  for (const auto& e : state_->entries) {
    out += tapir::format("signature: recorded {} times, replayed {} times: {}\n", e->recordings, e->replays,
                         text_of_key(e->key));
    if (!e->why.empty()) out += (e->eager ? "  runs as it is: " : "  not replayed yet: ") + e->why.text() + "\n";
    if (e->replay) out += "  " + e->checks->text() + "\n" + ir::explain(*e->replay);
    if (e->backward) out += "  backward:\n" + ir::explain(e->backward->replay());
  }
  return out;
}

std::string Compiler::dot() const {
  std::lock_guard lock(state().mutex);
  std::string out;
  for (const auto& e : state_->entries) {
    if (e->replay) out += ir::to_dot(e->replay->recorded().program);
    if (e->backward) out += ir::to_dot(e->backward->replay().recorded().program);
  }
  return out;
}

}  // namespace tapir::inline v0::detail
