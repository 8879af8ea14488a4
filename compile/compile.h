#pragma once
// Note [Compiling a function]
//     auto step = compile([&](const Tensor& x, const Tensor& y) { opt.zero_grad(); ...; opt.step(); return loss; });
// The function runs as it is, recorded, until two calls in a row did the same; from then on its kernel calls are replayed, without its
// host code: what it reads and writes outside (parameters, optimizer state, statistics, random state) stays where it is. What must not
// be taken for constant is an argument or a tensor: see docs/compile.md. Now and then a call runs as it is, to check that it still does
// what is replayed: Note [Checks].
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/each_tensor.h"
#include "../core/handle.h"

namespace tapir::inline v0 {

namespace nn {
class Module;
}

struct CompileOptions {
  bool enabled = true;       // off: calls run as they are
  int64_t max_programs = 8;  // the signatures that were used last get one; calls of others run as they are
  /// Share of calls that run as they are and are compared with the program, at least; more of the first ones. Negative: in the long run at
  /// most 1 in 251, and fewer where they would take more than 1 % of the time. TAPIR_COMPILE_VERIFY overrides it.
  double verify = -1;
  bool dead_code = true;     // passes, by name
  bool constants = true;     // filled tensors become numbers
  bool common_calls = true;  // what was computed before is not computed again
  bool casts = true;         // copies of copies
  bool layouts = true;       // products and attention write the order that they are copied into
  bool norms = true;         // batch norm, addition and relu in one call
  bool pools = true;         // relu behind max pooling
  bool fold_norm = true;     // batch norms in evaluation go into convolutions
  bool fuse = true;          // pointwise chains
  bool rows = true;   // fuse: with sums, means, maxima of the last dimensions, on a GPU norms too; within rounding
  bool order = true;  // calls in an order that needs less memory
  double memory_budget =
      0;              // bytes, or up to 1 a part of the recorded peak, to stay below by computing again; 0: any number
  bool reuse = true;  // results take over the memory of operands that end there
  bool prepare = true;  // what is computed of weights alone is kept until somebody writes to them
  /// The first replay tries the variants of convolutions, on a GPU of products too, and keeps the fastest ones' names on disk.
  bool max_autotune = false;
  /// On a CUDA device: calls run as they are while kernels are compiled in the background. Off, and in deterministic mode: the call waits.
  bool background = true;
};

/// What a program of compile() came to. Bytes are of what is made within a call, without what lies outside.
struct CompileStats {
  int64_t recorded_calls = 0, calls = 0;  // kernel calls, before and after the passes
  int64_t recorded_peak = 0;              // bytes at most, while it was recorded
  int64_t arena = 0, results = 0;         // bytes a replay works in; results and gradients, which are handed out
  double seconds = 0;                     // that the passes took
  int64_t peak() const { return arena + results; }
};

namespace detail {

/// One call of a compiled function, without its types.
struct CompileCall {
  std::vector<Tensor> inputs;  // tensors of the arguments, in order
  std::string values;          // the other arguments

  /// The result without its tensors, kept for replays.
  struct Frame {
    virtual ~Frame() = default;
  };
  /// One address for each function and types of arguments.
  virtual const void* types() const = 0;
  /// Calls the function; `instead`: inputs to put in the place of the arguments', where not empty.
  virtual void run(const std::vector<Tensor>& instead) = 0;
  /// f(tensor) for each tensor of the result.
  virtual std::vector<Tensor> outputs() = 0;
  virtual Frame* new_frame() = 0;
  /// Makes the result of a frame and these outputs.
  virtual void build(const Frame& frame, std::vector<Tensor>& outputs) = 0;

 protected:
  ~CompileCall() = default;
};

struct CompilerState;
void release(CompilerState* state);
class Compiler {
 public:
  explicit Compiler(const CompileOptions& options);
  void call(CompileCall& call);
  std::string explain() const;
  std::string dot() const;
  std::vector<CompileStats> stats() const;
  int64_t programs() const;
  void reset();

 private:
  CompilerState& state() const;  // ValueError where it was moved from
  Owner<CompilerState> state_;
};

template <class T> inline constexpr bool is_plain_value =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_convertible_v<const T&, std::string_view>;

template <class T> void add_tensors(CompileCall& call, const T& x) {
  if constexpr (std::is_same_v<T, Tensor>) call.inputs.push_back(x);
  else if constexpr (std::is_same_v<T, std::vector<Tensor>>) {
    call.values += "v" + std::to_string(x.size()) + ",";
    call.inputs.insert(call.inputs.end(), x.begin(), x.end());
  } else with_fields(x, [&](auto&... fields) { (add_tensors(call, fields), ...); });
}
template <class T> void add_argument(CompileCall& call, T& x) {
  if constexpr (std::is_pointer_v<T>) check(x, "[compile] expected a text as argument, got a null pointer");
  if constexpr (is_plain_value<std::remove_const_t<T>>) {
    if constexpr (std::is_convertible_v<const T&, std::string_view>)
      call.values += std::to_string(std::string_view(x).size()) + ":" + std::string(std::string_view(x));
    else call.values.append(reinterpret_cast<const char*>(&x), sizeof(x));
  } else {
    static_assert(TensorFields<std::remove_const_t<T>>,
                  "compile: an argument is a Tensor, a tuple, pair, array, vector or aggregate of at most 8 Tensors, a "
                  "number, an enum or a text");
    add_tensors(call, x);
  }
}

/// Parameter and x[i] are kept as the Tensors that they are read as, arrays of characters as texts.
template <class T>
concept ReadAsTensor = std::is_base_of_v<Tensor, T> || std::is_same_v<T, Indexed>;
template <class R> using CompiledResult =
    std::conditional_t<ReadAsTensor<std::remove_cvref_t<R>>, Tensor, std::remove_cvref_t<R>>;
template <class A> using CompiledArgument =
    std::conditional_t<ReadAsTensor<std::remove_cvref_t<A>>, Tensor,
                       std::conditional_t<std::is_array_v<std::remove_cvref_t<A>>, std::string, std::decay_t<A>>>;

template <class F, class... A> struct CompileCallOf final : CompileCall {
  using R = CompiledResult<std::invoke_result_t<F&, const A&...>>;
  struct FrameOf final : Frame {
    std::conditional_t<std::is_void_v<R>, char, R> result{};
  };
  static inline const char tag = 0;
  F& f;
  std::tuple<A...> arguments;
  std::conditional_t<std::is_void_v<R>, char, R> result{};

  explicit CompileCallOf(F& f, A... a) : f(f), arguments(std::move(a)...) {
    std::apply([&](auto&... x) { (add_argument(*this, x), ...); }, arguments);
  }
  const void* types() const override { return &tag; }
  void run(const std::vector<Tensor>& instead) override {
    size_t next = 0;
    const auto exchange = [&](auto& x) {
      if constexpr (!is_plain_value<std::remove_cvref_t<decltype(x)>>)
        each_tensor(x, [&](Tensor& t) { t = instead[next++]; });
    };
    if (!instead.empty()) std::apply([&](auto&... x) { (exchange(x), ...); }, arguments);
    const auto invoke = [&](const A&... x) -> decltype(auto) { return f(x...); };
    if constexpr (std::is_void_v<R>) std::apply(invoke, arguments);
    else result = R(std::apply(invoke, arguments));
  }
  std::vector<Tensor> outputs() override {
    std::vector<Tensor> out;
    if constexpr (!std::is_void_v<R>) {
      static_assert(TensorFields<R>,
                    "compile: a result is void, a Tensor, or a tuple, pair, array, vector or aggregate of at most 8 "
                    "Tensors; numbers are read from it outside");
      each_tensor(result, [&](Tensor& t) { out.push_back(t); });
    }
    return out;
  }
  Frame* new_frame() override {
    auto* frame = new FrameOf;
    if constexpr (!std::is_void_v<R>) {
      frame->result = result;
      each_tensor(frame->result, [](Tensor& t) { t = Tensor(); });
    }
    return frame;
  }
  void build(const Frame& frame, std::vector<Tensor>& outputs) override {
    if constexpr (!std::is_void_v<R>) {
      result = static_cast<const FrameOf&>(frame).result;
      size_t next = 0;
      each_tensor(result, [&](Tensor& t) { t = std::move(outputs[next++]); });
    }
  }
};

}  // namespace detail

/// A function and its programs: called as the function is. Threads take turns; what it calls while it is recorded is part of it.
template <class F> class Compiled {
 public:
  Compiled(F f, const CompileOptions& options) : f_(std::move(f)), compiler_(options) {}
  template <class... A> auto operator()(const A&... a) {
    using Call = detail::CompileCallOf<F, detail::CompiledArgument<A>...>;
    Call call(f_, detail::CompiledArgument<A>(a)...);
    compiler_.call(call);
    if constexpr (!std::is_void_v<typename Call::R>) return std::move(call.result);
  }
  /// The same, as modules call it.
  template <class... A> auto forward(const A&... a) { return (*this)(a...); }
  /// What was recorded, what each pass did, where memory lies, and which calls run as they are, with the reason.
  std::string explain() const { return compiler_.explain(); }
  /// The programs as graphs for Graphviz.
  std::string dot() const { return compiler_.dot(); }
  /// Of each program, in the order in which they were made.
  std::vector<CompileStats> stats() const { return compiler_.stats(); }
  /// How many programs are replayed: their kernels are there.
  int64_t programs() const { return compiler_.programs(); }
  /// Forgets all programs.
  void reset() { compiler_.reset(); }

 private:
  F f_;
  detail::Compiler compiler_;
};

namespace detail {
template <class M> struct ModuleCall {
  M* module;
  template <class... A> decltype(auto) operator()(const A&... a) const { return (*module)(a...); }
};
}  // namespace detail

/// `f`, recorded and then replayed: see Note [Compiling a function]. ValueError where the host reads a value inside.
template <class F>
requires(!std::is_base_of_v<nn::Module, F>) Compiled<F> compile(F f, const CompileOptions& options = {}) {
  return Compiled<F>(std::move(f), options);
}
/// A module's forward, for use in an ordinary training loop. The module, whose parameters they are, must live as long.
template <class M>
requires(std::is_base_of_v<nn::Module, M>) Compiled<detail::ModuleCall<M>> compile(M& module,
                                                                                   const CompileOptions& options = {}) {
  return Compiled<detail::ModuleCall<M>>({&module}, options);
}

}  // namespace tapir::inline v0
