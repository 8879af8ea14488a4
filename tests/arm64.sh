#!/bin/bash
# usage: tests/arm64.sh     (as root or with sudo, where the compiler or qemu is missing)
# The library for ARM64, cross compiled, and what says most about it in a few minutes of qemu: tests/core, tests/ops and values of op_cases.
# Those of the family `function`, which take more than all others, are left to ./run test arm64.
set -u
cd "$(dirname "$0")/.." || exit 1
begun=$SECONDS
./run build arm64-quick tapir_tests op_cases || exit 1
echo "built in $((SECONDS - begun)) s"
tests=build/arm64-quick/tests
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
export TAPIR_CACHE=$PWD/$tests/cache OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive
program() {  # name program arguments...
  local begun=$SECONDS
  qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=/usr/aarch64-linux-gnu/lib "$tests/$2" "${@:3}" > "$log/$1" 2>&1 && passed=yes || passed=no
  test $passed = yes || tail -n 60 "$log/$1"
  echo "$1: $(tail -n 1 "$log/$1") ($((SECONDS - begun)) s)"
  test $passed = yes
}
program pointwise op_cases --mode value --only '^pointwise/' &
program others op_cases --mode value --only '^(?!pointwise/|function/)' && program core tapir_tests --folder core && program ops tapir_tests --folder ops
others=$?
wait $! && test $others = 0
