// REFUSED(call, facts...): the call throws ValueError, and its text holds every one of the facts.
#pragma once
#include "../ops/helpers.h"

/// What is wrong with f's refusal; empty when nothing is.
template <class F> std::string missing(const F& f, std::initializer_list<const char*> facts) {
  const std::string text = error_of(f);
  if (text.empty()) return "no ValueError";
  if (has(text, "false")) return "a bare condition: " + text;
  for (const char* fact : facts)
    if (!has(text, fact)) return std::string("no \"") + fact + "\" in: " + text;
  return "";
}
#define REFUSED(call, ...) CHECK(missing([&] { call; }, {__VA_ARGS__}) == "")
