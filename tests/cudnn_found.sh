#!/bin/bash
# tests/cudnn_found.sh SOURCE_DIR: the configure step finds cudnn-frontend as NVIDIA's CMake package (whose target may name the toolkit's
# folder too) and in a folder that is named; without it, it says what to do, and TAPIR_CUDNN=OFF goes on.
set -u
source_dir=$(readlink -f "${1:?usage: tests/cudnn_found.sh SOURCE_DIR}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0
mkdir -p "$folder"/{cudnn,toolkit,package/include,package/lib/cmake/cudnn_frontend,named,project,empty}
printf '#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 7\n#define CUDNN_PATCHLEVEL 3\n' > "$folder/cudnn/cudnn_version.h"
touch "$folder/cudnn/cudnn_graph.h"
frontend() {  # folder minor
  printf '#define CUDNN_FRONTEND_MAJOR_VERSION 1\n#define CUDNN_FRONTEND_MINOR_VERSION %s\n#define CUDNN_FRONTEND_PATCH_VERSION 0\n' "$2" > "$1/cudnn_frontend_version.h"
  touch "$1/cudnn_frontend.h"
}
frontend "$folder/package/include" 18
frontend "$folder/named" 20
cat > "$folder/package/lib/cmake/cudnn_frontend/cudnn_frontend-config.cmake" <<END
add_library(cudnn_frontend INTERFACE IMPORTED)
set_target_properties(cudnn_frontend PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "\${CMAKE_CURRENT_LIST_DIR}/../../../include;$folder/toolkit")
END
cat > "$folder/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(found NONE)
set(CUDAToolkit_INCLUDE_DIRS $folder/toolkit)
set(TAPIR_PYTHON OFF CACHE BOOL "no Python: nothing is fetched")
option(TAPIR_CUDNN "" ON)
include($source_dir/cmake/TapirCudnn.cmake)
message(STATUS "cuDNN \${TAPIR_CUDNN_TEXT}")
END
expect() {  # what text options: the text is in what CMake prints
  local what=$1 text=$2 said
  said=$(cmake -G Ninja -S "$folder/project" -B "$folder/build$((passed + failed))" -DTAPIR_CUDNN_INCLUDE="$folder/cudnn" "${@:3}" 2>&1 | tr -s ' \n' ' ')
  case $said in
    *"$text"*) passed=$((passed + 1)) ;;
    *) failed=$((failed + 1)); printf 'FAILED: %s: expected "%s" in\n%s\n' "$what" "$text" "$said" ;;
  esac
}
expect "a package" "cuDNN 9.7.3, by cudnn-frontend 1.18.0" -DCMAKE_PREFIX_PATH="$folder/package"
expect "a folder before a package" "cudnn-frontend 1.20.0" -DCMAKE_PREFIX_PATH="$folder/package" -DTAPIR_CUDNN_FRONTEND_INCLUDE="$folder/named"
frontend "$folder/named" 13
expect "one that is too old" "cudnn-frontend 1.14 or newer" -DTAPIR_CUDNN_FRONTEND_INCLUDE="$folder/named"
expect "none" "TAPIR_CUDNN=OFF" -DCMAKE_FIND_ROOT_PATH="$folder/empty" -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY
expect "switched off" "cuDNN off" -DTAPIR_CUDNN=OFF
echo "$passed passed, $failed failed, 0 skipped"
test $failed = 0
