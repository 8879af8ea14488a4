#pragma once
// What module.cpp, hooks.cpp and parametrizations.cpp know of a module's extras.
#include <atomic>
#include <memory>

#include "parametrizations.h"

namespace tapir::inline v0::nn::detail {

struct ModuleExtras {
  struct Hook {
    int64_t id;
    HookKind kind;
    std::shared_ptr<ModuleHook> hook;
  };
  struct Computed {
    std::string name;  // of the field
    std::unique_ptr<ParametrizationList> list;
  };
  Module* owner = nullptr;
  std::vector<Hook> hooks;
  std::vector<Computed> computed;
  std::unique_ptr<Replacement> replacement;
  std::atomic<int> refs = 1;  // also of calls that run and of nodes on the tape

  bool has(HookKind kind) const {
    for (const Hook& h : hooks)
      if (h.kind == kind) return true;
    return false;
  }
  /// Every hook of that kind, of those that stood there at the beginning.
  void run(HookKind kind, std::vector<Tensor>& a, std::vector<Tensor>& b) {
    const std::vector<Hook> now = hooks;  // a hook may add and remove hooks
    for (const Hook& h : now)
      if (h.kind == kind && owner) h.hook->call(*owner, a, b);
  }
};

}  // namespace tapir::inline v0::nn::detail
