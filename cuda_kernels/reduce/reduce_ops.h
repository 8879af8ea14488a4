#pragma once
#include "../../core/arithmetic.h"
#include "../any.h"
#include "../exponential.h"

// What a reduction does with its elements. Each operation has
//   In: what it takes; State: trivial, of 4-byte words; start(): the state of nothing
//   add(states, x, position): V elements, one to each of V states, the first of them the element `position` of its output
//   join(a, b): the state of both; result(state): of all elements
namespace tapir::inline v0::cuda_kernels {

/// What becomes of an element before it is added.
enum class Term : uint8_t { Itself, NanAsZero, NotZero, Magnitude, Square, Power };

/// Sum, Mean, NanSum, and p-norms for finite p.
template <class C> struct SumOf {
  using In = C;
  using State = C;
  Term term = Term::Itself;
  bool root = false;
  double power = 1, divisor = 1;  // result: (state / divisor) ^ (1 / power)

  __device__ C of(C x) const {
    switch (term) {
      case Term::NanAsZero: return x != x ? C(0) : x;
      case Term::NotZero: return x != C(0) ? C(1) : C(0);
      case Term::Magnitude: return x < C(0) ? C(-x) : x;
      case Term::Square: return x * x;
      case Term::Power: return C(std::pow(std::abs(double(x)), power));
      default: return x;
    }
  }
  __device__ State start() const { return C(0); }
  template <int V> __device__ void add(State (&s)[V], const C (&x)[V], int64_t) const {
    if (term == Term::Itself)
      for (int v = 0; v < V; ++v) s[v] = wrap_add(s[v], x[v]);
    else
      for (int v = 0; v < V; ++v) s[v] = wrap_add(s[v], of(x[v]));
  }
  __device__ State join(State a, State b) const { return wrap_add(a, b); }
  __device__ C result(State s) const {
    if constexpr (std::is_floating_point_v<C>) {
      if (root) return term == Term::Square ? C(std::sqrt(s)) : C(std::pow(s, C(1 / power)));
      return divisor == 1 ? s : s / C(divisor);
    }
    return s;
  }
};

template <class C> struct ProductOf {
  using In = C;
  using State = C;
  __device__ State start() const { return C(1); }
  template <int V> __device__ void add(State (&s)[V], const C (&x)[V], int64_t) const {
    for (int v = 0; v < V; ++v) s[v] = wrap_mul(s[v], x[v]);
  }
  __device__ State join(State a, State b) const { return wrap_mul(a, b); }
  __device__ C result(State s) const { return s; }
};

/// x, or what orders the other way round: then the smallest is the largest.
template <class C> __device__ C turned(C x, bool turn) {
  if constexpr (std::is_integral_v<C>) return turn ? C(~x) : x;
  else return turn ? -x : x;
}

/// Max, Min, Any, All, and norms for infinite p (of Term::Magnitude). NaN wins.
template <class C> struct ExtremeOf {
  using In = C;
  using State = C;
  bool smallest = false;
  Term term = Term::Itself;
  C nothing = 0;  // the result without elements

  __device__ State start() const { return turned(nothing, smallest); }
  template <int V> __device__ void add(State (&s)[V], const C (&x)[V], int64_t) const {
    for (int v = 0; v < V; ++v) {
      C key = x[v];
      if (term == Term::Magnitude) key = key < C(0) ? C(-key) : key;
      s[v] = Larger()(turned(key, smallest), s[v]);
    }
  }
  __device__ State join(State a, State b) const { return Larger()(a, b); }
  __device__ C result(State s) const { return turned(s, smallest); }
};

/// Var and Std: Welford 1962 by element, Chan, Golub and LeVeque 1979 for two states.
template <class C> struct MomentsOf {
  using In = C;
  struct State {
    C n, mean, squares;
  };
  bool root = false;
  double count = 0, correction = 0;

  __device__ State start() const { return {C(0), C(0), C(0)}; }
  template <int V> __device__ void add(State (&s)[V], const C (&x)[V], int64_t) const {
    const C n = s[0].n + C(1), weight = C(1) / n;  // all V have as many elements
    for (int v = 0; v < V; ++v) {
      const C distance = x[v] - s[v].mean;
      s[v].mean += distance * weight;
      s[v].squares += distance * (x[v] - s[v].mean);
      s[v].n = n;
    }
  }
  __device__ State join(State a, State b) const {
    const C n = a.n + b.n, share = n > C(0) ? b.n / n : C(0), distance = b.mean - a.mean;
    return {n, a.mean + distance * share, a.squares + b.squares + distance * distance * (a.n * share)};
  }
  __device__ C result(State s) const {
    const double divisor = count - correction;
    const C spread = count > 0 ? s.squares : std::numeric_limits<C>::quiet_NaN();
    const C variance = spread / C(divisor > 0 ? divisor : 0.0);
    return root ? C(std::sqrt(variance)) : variance;
  }
};

/// ln of a sum of e^x: the largest element m and the sum of e^(x - m); an infinite m is taken as 0 in it.
template <class C> struct LogSumExpOf {
  using In = C;
  struct State {
    C most, sum;
  };
  static __device__ C base(C m) {
    return m > -std::numeric_limits<C>::infinity() && m < std::numeric_limits<C>::infinity() ? m : C(0);
  }
  static __device__ C moved(C sum, C from, C to) {
    return sum == C(0) || from == to ? sum : sum * exponential(base(from) - base(to));
  }

  __device__ State start() const { return {-std::numeric_limits<C>::infinity(), C(0)}; }
  template <int V> __device__ void add(State (&s)[V], const C (&x)[V], int64_t) const {
    for (int v = 0; v < V; ++v) s[v] = join(s[v], {x[v], x[v] == base(x[v]) ? C(1) : exponential(x[v])});
  }
  __device__ State join(State a, State b) const {
    const C m = b.most > a.most ? b.most : a.most;
    return {m, moved(a.sum, a.most, m) + moved(b.sum, b.most, m)};
  }
  __device__ C result(State s) const { return math::log(s.sum) + base(s.most); }
};

/// ArgMax, ArgMin: the position of the first extreme element, the first NaN before all.
template <class C> struct PlaceOf {
  using In = C;
  struct State {
    C best;
    int64_t at;  // -1: none yet
  };
  bool smallest = false;
  bool along = false;  // V elements are neighbours in one output, not of V outputs

  __device__ State start() const { return {C(0), -1}; }
  template <int V> __device__ void add(State (&s)[V], const C (&x)[V], int64_t position) const {
    for (int v = 0; v < V; ++v) s[v] = join(s[v], {turned(x[v], smallest), position + (along ? v : 0)});
  }
  __device__ State join(State a, State b) const {
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    const bool same = a.best == b.best || (a.best != a.best && b.best != b.best);
    const bool takes = same ? b.at < a.at : b.best > a.best || b.best != b.best;
    // With one NaN alone `takes` is true just where it is b's: comparisons with a's are false.
    return takes ? b : a;
  }
  __device__ int64_t result(State s) const { return s.at; }
};

/// The second stage of an operation: its elements are states.
template <class Op> struct JoinOf : Op {
  using In = typename Op::State;
  using State = typename Op::State;
  template <int V> __device__ void add(State (&s)[V], const State (&x)[V], int64_t) const {
    for (int v = 0; v < V; ++v) s[v] = this->join(s[v], x[v]);
  }
};

}  // namespace tapir::inline v0::cuda_kernels
