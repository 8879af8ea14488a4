#!/bin/bash
# usage: new_entry.sh COMPILER
# Adds an entry to the kernel table of a copy of the sources as CONTRIBUTING.md says ("A kernel"), in those files alone; then what knows
# the table is compiled and must have it: tables of both devices, tracing, profiler, recording, replay. What the recipe names and is left
# out is an error of the compiler or of the linker.
compiler=$1 source=$(realpath "$(dirname "$0")/..")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0 log=$scratch/log
good() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAILED: $1"; head -20 "$log"; }
mkdir -p "$scratch/tapir"
for folder in core autograd ops functional nn compile cpu_kernels cuda_kernels; do cp -r "$source/$folder" "$scratch/tapir/"; done
cd "$scratch/tapir" || exit 1

# insert FILE LINE TEXT: the text before the first line that is LINE; replace FILE OLD NEW.
insert() { awk -v line="$2" -v text="$3" '$0 == line && !done {print text; done = 1} {print} END {exit !done}' "$1" > "$log" && cp "$log" "$1" || bad "$1 has no line $2"; }
replace() { grep -qF -- "$2" "$1" && sed -i "s/$2/$3/" "$1" || bad "$1 does not have $2"; }

# The recipe.
insert core/entries.h '// Every entry, by the name of its kernels and its declaration above.' 'struct Midpoint {  // out = a + weight (b - a)
  Out out;
  In a, b, scale = {};
  InOut count = {};
  MidpointParams params;
};
'
replace core/entries.h 'X(norm_matmul, NormMatmul)' 'X(norm_matmul, NormMatmul) X(midpoint, Midpoint)'
insert core/params.h 'struct FusedParams;  // core/fused.h' 'struct MidpointParams {
  double weight = 0.5;
};'
insert compile/program/params_fields.h 'TAPIR_PARAMS_FIELDS(UnaryParams, op, a, b, c)' 'TAPIR_PARAMS_FIELDS(MidpointParams, weight)'
for kernels in cpu cuda; do
  test $kernels = cpu && space=cpu || space=cuda_kernels
  cat > ${kernels}_kernels/pointwise/midpoint.cpp << END
#include "../kernels.h"
namespace tapir::inline v0::$space {
void midpoint(Context& ctx, const entry::Midpoint& c) {
  ctx.table->ternary(ctx, {c.out, c.a, c.b, TensorView(c.params.weight, c.out.dtype), {TernaryOp::Lerp}});
}
}  // namespace tapir::inline v0::$space
END
done
cat > ops/midpoint.h << END
#pragma once
#include "../core/tensor.h"
namespace tapir::inline v0 {
/// a + weight (b - a) of tensors of one shape and floating dtype.
Tensor midpoint(const Tensor& a, const Tensor& b, double weight = 0.5);
}  // namespace tapir::inline v0
END
cat > ops/pointwise/midpoint.cpp << END
#include "../midpoint.h"
#include "../arithmetic.h"
#include "../front.h"
namespace tapir::inline v0 {
Tensor midpoint(const Tensor& a, const Tensor& b, double weight) {
  const Tensor y = empty(a.shape(), {.dtype = a.dtype(), .device = a.device()});
  backend(a).midpoint(context(a), {.out = y, .a = a, .b = b, .params = {weight}});
  return record("midpoint", y, {a, b}, save(), [weight](const Tensor& g) { return Grads{mul(g, 1 - weight), mul(g, weight)}; });
}
}  // namespace tapir::inline v0
END

# compile FILE [options]: an object beside it.
compile() { "$compiler" -std=c++20 -O0 -Wall -Wextra -Werror -Wno-unknown-pragmas -I "$scratch" "${@:2}" -c "$1" -o "$scratch/$(basename "$1" .cpp).o" > "$log" 2>&1; }
# has OBJECT SYMBOL: what it must name.
has() { nm -C "$scratch/$1.o" > "$log" && grep -qE -- "$2" "$log" && good || { : > "$log"; bad "$1.cpp does not know $2"; }; }
both() { compile "$@" && good || bad "$1 does not compile with an entry more"; }
both core/trace.cpp; both core/profiler.cpp; both compile/record/record.cpp; both compile/replay/schedule.cpp; both compile/record/difference.cpp
both cpu_kernels/table.cpp; both cpu_kernels/pointwise/midpoint.cpp; both cuda_kernels/pointwise/midpoint.cpp; both ops/pointwise/midpoint.cpp
mv "$scratch/midpoint.o" "$scratch/ops_midpoint.o"
both cuda_kernels/plugin.cpp -I "$source/tests/cuda_emulation/include" -DTAPIR_CUDA_ARCHITECTURES='"90"' -I "$(dirname "$source")"
has table "U tapir::v0::cpu::midpoint\(tapir"; has plugin "U tapir::v0::cuda_kernels::midpoint\(tapir"
has trace "around<.*entry::Midpoint>"; has profiler "observed_call<.*entry::Midpoint>"
has record "around<.*RecordsCalls, .*entry::Midpoint>"; has schedule "KernelThunk<.*entry::Midpoint>"

# What is left out is found: the fields of the parameters; a field that is neither an operand nor plain parameters; a device without a kernel.
cp compile/program/params_fields.h "$scratch/kept"
sed -i /MidpointParams/d compile/program/params_fields.h
compile compile/record/difference.cpp && bad "parameters without names of their fields compile" || good
cp "$scratch/kept" compile/program/params_fields.h
cp core/entries.h "$scratch/kept"
replace core/entries.h '  In a, b, scale = {};' '  In a, b;\n  std::vector<Tensor> scale = {};'
compile core/trace.cpp && bad "an entry that holds tensors compiles" || good
cp "$scratch/kept" core/entries.h
replace cuda_kernels/kernels.h 'is_lacking = false;' 'is_lacking = std::is_same_v<E, entry::Midpoint>;'
compile cuda_kernels/plugin.cpp -I "$source/tests/cuda_emulation/include" -DTAPIR_CUDA_ARCHITECTURES='"90"' || bad "a device may lack an entry"
nm -C "$scratch/plugin.o" | grep -q "U tapir::v0::cuda_kernels::midpoint" && bad "a device that lacks an entry asks for its kernel" || good
echo "$passed passed, $failed failed, 0 skipped"
test $failed = 0
