#!/bin/bash
# What tools/check_layers must find, planted in a small tree, and what it must not.
set -u
root=$(readlink -f "$(dirname "$0")/..")
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{tools,core,nn,ops/misc,compile/program,compile/plan,quant,tests/op_cases}
cp "$root/tools/check_layers" "$tree/tools"
passed=0 failed=0
verdict() { if "${@:2}"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $1"; cat "$tree/said"; fi; }
look() { cat > "$tree/$1"; "$tree/tools/check_layers" --quiet > "$tree/said" 2>&1; }
finds() {  # file, what is said of it; the text on the standard input
  look "$1"
  verdict "$1: found" grep -q "^      $1:1: $2" "$tree/said"
  rm "$tree/$1"
}
passes() { look "$1"; verdict "$1: nothing to find" test $? = 0; rm "$tree/$1"; }

finds nn/planted.h 'std::string f' <<< 'std::string f(const std::string& s) { return format("{}", s); }'
finds nn/planted.cpp 'auto n' <<< 'auto n = size(list) + 1;'
finds tests/planted.cpp 'swap' <<< 'swap(a, b);'
finds core/planted.cpp 'f' <<< 'f(std::string(), move(x));'
finds core/planted.cpp 'if' <<< 'if (x) return exchange(x, 1);'
passes nn/planted.cpp <<< 'std::string f() { return tapir::format("{}", 1) + std::format("") + a.format(1); }'
passes nn/planted.cpp <<< 'void swap(Tensor& a, Tensor& b); void f() { swap(a, b); }  // format(x)'
passes nn/planted.cpp <<< 'void f() { const auto size = [](int n) { return n; }; size(3); }'
finds core/planted.h '#include "../nn' <<< '#include "../nn/module.h"'
finds compile/program/planted.h '#include "../plan' <<< '#include "../plan/plan.h"'
passes compile/plan/planted.h <<< '#include "../program/program.h"'
finds nn/planted.h '#include <tapir' <<< '#include <tapir/core/tensor.h>'
finds compile/program/planted.h '#include "../explain' <<< '#include "../explain.h"'
passes compile/program/planted.h <<< '#include "../compile.h"'
lost() {  # file, what is said of it
  mkdir -p "$tree/$(dirname "$1")"
  look "$1" <<< '// A line.'
  verdict "$1: found" grep -q "^      $1: $2" "$tree/said"
  rm "$tree/$1"
}
lost ops/misc/planted.h 'ops/misc/ is no room'
lost ops/norm/deep/planted.cpp 'ops/norm/deep/ is no room'
lost nn/sub/planted.cpp 'nn/sub/ is no room'
mkdir -p "$tree"/{cpu_kernels/norm,ops/norm,ops/reduce}
look cpu_kernels/norm/planted.cpp <<< '// A line.'
verdict "a room with a name" test $? = 0
passes ops/norm/planted.cpp <<< '// A line.'
lost ops/reduce/planted.cpp 'planted has rooms of 2 names: norm, reduce'
rm "$tree/cpu_kernels/norm/planted.cpp"
touch "$tree/tapir.h"
look nn/light.h <<< '#include <vector>'
printf '#include "nn/heavy.h"\n' > "$tree/tapir.h"
finds nn/heavy.h '#include <iostream>' <<< '#include <iostream>'
rm "$tree/tapir.h"
breaks() {  # file, what is said of it; the text on the standard input
  look "$1"
  verdict "$1: over a budget" grep -q "^      $2: simplify, or raise the number" "$tree/said"
  rm "$tree/$1"
}
breaks nn/planted.h 'nn/planted.h: 601 lines of 600' < <(yes '// A line.' | head -601)
passes nn/planted.h < <(yes '// A line.' | head -600)
breaks nn/planted.cpp 'nn/planted.cpp:1: f has 61 lines of 60' < <(echo 'void f() {'; yes '  g();' | head -59; echo '}')
sed -i 's/"quant": [0-9]*/"quant": 3/' "$tree/tools/check_layers"
breaks quant/planted.h 'quant: 4 lines of 3' < <(yes '// A line.' | head -4)
passes quant/planted.h < <(yes '// A line.' | head -3)
printf 'CASE(relu, relu(x[0]))\n' > "$tree/tests/op_cases/cases.cpp"
printf '#include "planted.h"\n' > "$tree/ops/ops.h"
look ops/planted.h <<< $'Tensor relu(const Tensor& x);\nTensor gelu(const Tensor& x);'
verdict "an op without a case" grep -q "ops/planted.h: gelu has no line" "$tree/said"
echo "$passed passed, $failed failed, 0 skipped"
test $failed = 0
