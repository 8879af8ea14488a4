// The consumer's own, with the name of one of Tapir's.
#pragma once
inline constexpr int my_answer = 42;
