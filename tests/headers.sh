#!/bin/bash
# usage: headers.sh COMPILER INCLUDE_DIR
# Every public header compiles alone, as its user includes it; then a program whose own names are some of Tapir's (headers/names.cpp),
# with all standard headers before, behind and without, in C++20 and C++23 (as GNU's dialect, CMake's default), by each compiler here.
export compiler=$1 include=$2
export names=$(readlink -f "$(dirname "$0")")/headers/names.cpp
verdict() {  # name command...
  log=$("${@:2}" -fsyntax-only -Wall -Wextra -Werror -I "$include" 2>&1) && echo "ok $1" && return
  printf 'FAILED %s\n%s\n' "$1" "$(head -n 15 <<< "$log")"
}
check() {  # header, or compiler standard macro
  if test $# = 1; then verdict "$1" "$compiler" -std=c++20 -x c++ -include "tapir/$1" /dev/null
  else verdict "names.cpp: $*" "$1" "-std=$2" "-D$3" "$names"; fi
}
export -f check verdict
headers=$(cd "$include/tapir" && find -L . -name '*.h' -printf '%P\n' | sort) || exit 1
skipped=0
if ! "$compiler" -x c++ -fsyntax-only - <<< '#include <cuda_runtime.h>' 2> /dev/null; then
  echo "skipped: core/cuda_launch.h needs a CUDA toolkit (cuda_runtime.h), and there is none"
  headers=$(grep -vx core/cuda_launch.h <<< "$headers") skipped=1
fi
compilers=$(for c in "$compiler" g++ clang++; do readlink -f "$(command -v $c)"; done | sort -u)
out=$({
  printf '%s\n' "$headers"
  for c in $compilers; do for standard in c++20 gnu++2b; do for order in ALONE FIRST LAST; do echo "$c $standard $order"; done; done; done
} | xargs -P "$(nproc)" -I {} bash -c 'check {}')
grep -v '^ok ' <<< "$out"
failed=$(grep -c '^FAILED ' <<< "$out")
echo "$(grep -c '^ok ' <<< "$out") passed, $failed failed, $skipped skipped"
test "$failed" = 0
