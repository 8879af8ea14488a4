#!/bin/sh
# usage: build.sh COMPILER PROGRAM. A project without any build system.
set -e
$1 -I"$(dirname "$0")/.." "$(dirname "$0")/../main.cpp" -o "$2" $(pkg-config --cflags --libs tapir)
