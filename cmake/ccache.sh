#!/bin/sh
# usage: cmake/ccache.sh CCACHE COMPILER ARGUMENT...     (CMAKE_CXX_COMPILER_LAUNCHER)
# ccache takes a precompiled header that is there already for an input, also where the command is about to write it anew. The first build of a
# checkout would then have another one than later builds, and with it other objects of all tests. It is removed first.
output=
for argument; do
  test "$output" != -o || output=$argument
  test "$argument" != -o || output=-o
done
case $output in *.gch | *.pch) rm -f -- "$output" ;; esac
exec "$@"
