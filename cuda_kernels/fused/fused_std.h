// For NVRTC alone, which has no standard library: the little of it that core/'s headers for kernels use. Its functions are constexpr or
// the compiler's own; -default-device makes all of them device code.
#define INFINITY __int_as_float(0x7f800000)
#define __builtin_fmaf(a, b, c) fmaf(a, b, c)
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long;
using uint64_t = unsigned long;
using uintptr_t = unsigned long;
using size_t = decltype(sizeof 0);

namespace std {
template <class T, T V> struct integral_constant { static constexpr T value = V; };
template <bool B, class T, class F> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;
template <class A, class B> inline constexpr bool is_same_v = false;
template <class T> inline constexpr bool is_same_v<T, T> = true;
template <class T> struct remove_cvref { using type = T; };
template <class T> struct remove_cvref<const T> { using type = T; };
template <class T> struct remove_cvref<T&> { using type = T; };
template <class T> struct remove_cvref<const T&> { using type = T; };
template <class T> using remove_cvref_t = typename remove_cvref<T>::type;
template <class T> inline constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, double>;
template <class T> inline constexpr bool is_integral_v =
    is_same_v<T, bool> || is_same_v<T, char> || is_same_v<T, int8_t> || is_same_v<T, uint8_t> ||
    is_same_v<T, int16_t> || is_same_v<T, uint16_t> || is_same_v<T, int32_t> || is_same_v<T, uint32_t> ||
    is_same_v<T, int64_t> || is_same_v<T, uint64_t> || is_same_v<T, long long> || is_same_v<T, unsigned long long>;
template <class T> inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class T> constexpr bool below_zero() {
  if constexpr (is_arithmetic_v<T>) return T(-1) < T(0);
  else return false;
}
template <class T> inline constexpr bool is_signed_v = below_zero<T>();
template <class T> inline constexpr bool is_trivially_copyable_v = __is_trivially_copyable(T);
template <class A, class B>
concept same_as = is_same_v<A, B> && is_same_v<B, A>;
template <class T>
concept integral = is_integral_v<T>;
template <class T>
concept floating_point = is_floating_point_v<T>;

template <class To, class From> constexpr To bit_cast(const From& v) { return __builtin_bit_cast(To, v); }

template <class T> struct numeric_limits {
  static constexpr bool has_infinity = false;
  static constexpr int digits = 8 * int(sizeof(T)) - (is_signed_v<T> ? 1 : 0);
  static constexpr T max() { return T((((uint64_t(1) << (digits - 1)) - 1) << 1) + 1); }
  static constexpr T min() { return is_signed_v<T> ? T(-max() - 1) : T(0); }
  static constexpr T infinity() { return T(0); }
};
template <> struct numeric_limits<bool> {
  static constexpr bool has_infinity = false;
  static constexpr int digits = 1;
  static constexpr bool max() { return true; }
  static constexpr bool min() { return false; }
  static constexpr bool infinity() { return false; }
};
template <> struct numeric_limits<float> {
  static constexpr bool has_infinity = true;
  static constexpr float infinity() { return bit_cast<float>(0x7f800000u); }
  static constexpr float quiet_NaN() { return bit_cast<float>(0x7fc00000u); }
};
template <> struct numeric_limits<double> {
  static constexpr bool has_infinity = true;
  static constexpr double infinity() { return bit_cast<double>(uint64_t(0x7ff) << 52); }
  static constexpr double quiet_NaN() { return bit_cast<double>(uint64_t(0x7ff8) << 48); }
};

template <size_t... I> struct index_sequence {};
template <size_t N, size_t... I> struct index_list : index_list<N - 1, N - 1, I...> {};
template <size_t... I> struct index_list<0, I...> { using type = index_sequence<I...>; };
template <size_t N> using make_index_sequence = typename index_list<N>::type;
template <class T, size_t N> struct array {
  T items[N ? N : 1];
  constexpr T& operator[](size_t i) { return items[i]; }
  constexpr const T& operator[](size_t i) const { return items[i]; }
  static constexpr size_t size() { return N; }
};
template <class A, class B> struct pair {
  A first;
  B second;
};
struct string_view {};
template <class T> constexpr T&& forward(remove_cvref_t<T>& v) { return static_cast<T&&>(v); }

using ::acos, ::acosh, ::asin, ::asinh, ::atan, ::atan2, ::atanh, ::ceil, ::copysign, ::cos, ::cosh, ::erf, ::erfc,
    ::exp, ::exp2, ::expm1, ::floor, ::fma, ::fmod, ::hypot, ::log, ::log10, ::log1p, ::log2, ::nearbyint, ::pow,
    ::signbit, ::sin, ::sinh, ::sqrt, ::tan, ::tanh, ::tgamma, ::trunc;
constexpr float abs(float v) { return bit_cast<float>(bit_cast<uint32_t>(v) & 0x7fffffffu); }
constexpr double abs(double v) { return bit_cast<double>(bit_cast<uint64_t>(v) & ~(uint64_t(1) << 63)); }
}  // namespace std
