#!/bin/bash
# usage: run.sh BUILD_FOLDER static|shared [COMPILER]
# Four ways to use Tapir: find_package and pkg-config on an installation that was moved and whose build folder is out of reach,
# FetchContent and add_subdirectory on the source tree. Each is configured, built and run as a project of its own.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$1/consumers_$2 kind=$2 compiler=${3:-c++}
test "$(dirname "$1")" = "$root/build" && work=$root/build/consumers_$2  # as deep as build/release: ccache knows the library from there
test $kind = shared && shared=ON || shared=OFF
passed=0 failed=0 skipped=0
good() { passed=$((passed + 1)) && echo "ok      $kind $1"; }
bad() { failed=$((failed + 1)) && echo "FAILED  $kind $1" && tail -n 40 "$work.log"; }
quiet() { "$@" > "$work.log" 2>&1; }
try() { local name=$1; shift; if quiet "$@"; then good "$name"; else bad "$name"; fi; }

# The same flags in every build, so that ccache compiles the library once.
export CMAKE_GENERATOR=Ninja CMAKE_BUILD_TYPE=Release
export CCACHE_DEPEND=1 CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$root
test -n "${CMAKE_CXX_COMPILER_LAUNCHER:-}" || ! command -v ccache > /dev/null || export CMAKE_CXX_COMPILER_LAUNCHER=ccache
options=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler" -DBUILD_SHARED_LIBS=$shared -DTAPIR_ROOT="$root")

consume() {  # way, more options: a build from nothing, so that a stale folder hides nothing
  local way=$1
  shift
  rm -rf "${work}_$way"
  cmake -S "$here/$way" -B "${work}_$way" "${options[@]}" "$@" && cmake --build "${work}_$way" && "${work}_$way/consumer"
}
install_moved() {
  local build=${work}_library
  rm -rf "$build" "${work}_prefix" "${work}_moved"
  cmake -S "$root" -B "$build" "${options[@]}" -DTAPIR_TESTS=OFF -DTAPIR_SAMPLES=OFF -DTAPIR_BENCHMARKS=OFF &&
    cmake --build "$build" && cmake --install "$build" --prefix "${work}_prefix" && mv "${work}_prefix" "${work}_moved" && rm -rf "$build" &&
    ! grep -rnE "$root|$work" "${work}_moved" --include='*.cmake' --include='*.pc'
}
by_pkgconfig() {
  export PKG_CONFIG_PATH=$(dirname "$(find "${work}_moved" -name tapir.pc)")
  "$here/pkgconfig/build.sh" "$compiler" "${work}_by_pkgconfig" && LD_LIBRARY_PATH=$(dirname "$(find "${work}_moved" -name 'libtapir.*' | head -n 1)") "${work}_by_pkgconfig"
}
exports_only_tapir() {  # no symbol of Eigen, zlib or the standard library leaves the shared library, but for templates over our types
  local symbols
  symbols=$(nm -DC --defined-only "$(find "${work}_moved" -name libtapir.so)" | cut -d' ' -f3-)
  grep -q '^tapir::' <<< "$symbols" && ! grep -vE '\<tapir(::|_)' <<< "$symbols"
}

try "installation, moved" install_moved
try "find_package(Tapir)" consume find_package -DCMAKE_PREFIX_PATH="${work}_moved"
if command -v pkg-config > /dev/null; then try "pkg-config" by_pkgconfig; else skipped=1; fi
try "FetchContent" consume fetchcontent
try "add_subdirectory" consume add_subdirectory
test $kind = static || try "exports tapir:: alone" exports_only_tapir
echo "$passed passed, $failed failed, $skipped skipped"
test $failed = 0
