// Which words of a kernel's argument are pointers. The words of a struct cannot just be looked at: padding holds what lay there before,
// and that is often an old pointer. So one object of the type is made whose pointers all are a mark, and the mark is looked for.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace cuda_emulation {

constexpr uintptr_t kMark = 0x2badc0de2badc0de;
template <class T> T marked();
template <class T>
concept Markable = std::is_pointer_v<T> || std::is_default_constructible_v<T>;
/// Becomes any member that it initialises.
struct Mark {
  template <Markable T> operator T() const { return marked<T>(); }
};
template <class T, size_t... I> consteval bool takes(std::index_sequence<I...>) {
  return requires { T{(void(I), Mark{})...}; };
}
/// How many initialisers the aggregate takes, elements of arrays counted one by one: `Low` are taken, `High` are not.
template <class T, size_t Low, size_t High> consteval size_t count_between() {
  constexpr size_t kMiddle = (Low + High) / 2;
  if constexpr (Low + 1 >= High) return Low;
  else if constexpr (takes<T>(std::make_index_sequence<kMiddle>())) return count_between<T, kMiddle, High>();
  else return count_between<T, Low, kMiddle>();
}
template <class T, size_t High = 8> consteval size_t count_initialisers() {
  if constexpr (High > sizeof(T)) return count_between<T, 0, sizeof(T) + 1>();
  else if constexpr (takes<T>(std::make_index_sequence<High>())) return count_initialisers<T, 2 * High>();
  else return count_between<T, 0, High>();
}
template <class T, size_t... I> T marked_members(std::index_sequence<I...>) { return T{(void(I), Mark{})...}; }
template <class T> T marked() {
  if constexpr (std::is_pointer_v<T>) return reinterpret_cast<T>(kMark);
  else if constexpr (std::is_aggregate_v<T>)
    return marked_members<T>(std::make_index_sequence<count_initialisers<T>()>());
  else return T();  // a number, or a class with constructors: what it points to is its own affair
}
/// The offsets of the pointers in a T.
template <class T> const std::vector<size_t>& pointers_in() {
  static const std::vector<size_t> offsets = [] {
    std::vector<size_t> found;
    if constexpr (sizeof(T) >= sizeof(void*) && Markable<T>) {
      const T object = marked<T>();
      for (size_t at = 0; at + sizeof(void*) <= sizeof(T); at += sizeof(void*)) {
        uintptr_t word;
        std::memcpy(&word, reinterpret_cast<const char*>(&object) + at, sizeof word);
        if (word == kMark) found.push_back(at);
      }
    }
    return found;
  }();
  return offsets;
}

}  // namespace cuda_emulation
