// Preloaded, it makes a program believe that it may run on eight processors, so that oneDNN takes as many threads on a smaller machine.
#include <pthread.h>
#include <sched.h>

#include <cstring>

extern "C" int sched_getaffinity(pid_t, size_t size, cpu_set_t* set) noexcept {
  std::memset(set, 0, size);
  for (int i = 0; i < 8; ++i) CPU_SET_S(i, size, set);
  return 0;
}
extern "C" int pthread_getaffinity_np(pthread_t, size_t size, cpu_set_t* set) noexcept {
  return sched_getaffinity(0, size, set);
}
