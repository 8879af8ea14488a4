#!/bin/bash
# usage: tests/at_level.sh LEVEL COMMAND...
# Runs a test program with the kernels of that level, and oneDNN's no higher; skipped where the CPU has not that level.
case $1 in
  sse4) flag=sse4_2 library=SSE41 ;;
  avx2) flag=avx2 library=AVX2 ;;
  avx512) flag=avx512_vnni library=AVX512_CORE_VNNI ;;
  avx512_bf16) flag=avx512_bf16 library=AVX512_CORE_BF16 ;;
  neon) flag="" library="" ;;  # every ARM64 CPU
  *) echo "at_level.sh: there is no level '$1'"; exit 2 ;;
esac
if test -n "$flag" && ! grep -qw $flag /proc/cpuinfo; then
  echo "skipped: this CPU has no $flag"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
TAPIR_ISA=$1 ONEDNN_MAX_CPU_ISA=$library exec "${@:2}"
