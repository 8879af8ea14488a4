#!/usr/bin/env python3
"""usage: headers.py COMPILER BUILD_FOLDER

Every public header, and every source of the library but the kernels, compiles alone (a unity build would hide that a source misses a header).
Then a program whose own names are some of Tapir's (headers/names.cpp), with all standard headers before, behind and without, in C++20 and
C++23 (as GNU's dialect, CMake's default), by each compiler here.

Nearly all of these files include core/tensor.h, directly or through others. For them that header comes precompiled: it is checked alone
itself, and brings in nothing that they do not name."""
import concurrent.futures
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

compiler, build = sys.argv[1], Path(sys.argv[2])
root = Path(__file__).resolve().parent.parent
include = build / "tapir-generated" / "include"
bases = ["core/entries.h", "core/tensor.h"]  # each includes those behind it. (GCC forgets pragmas of precompiled headers: not nn/fields.h)


def commands():
    """What the sources of the library are compiled with, by file: -I, -isystem and -D alone. Neither optimization nor code is asked for."""
    taken = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if "/tapir.dir/" not in entry["command"].split(" -o ", 1)[-1]: continue
        flags = re.findall(r"(?<= )(?:-isystem |-I|-D)(?:\\.|[^ \\])+", entry["command"])
        files = [entry["file"]]
        if "/unity/" in entry["file"]: files = [str(root / name) for name in re.findall(r'#include "(.*)"', Path(entry["file"]).read_text())]
        for file in files: taken[file] = [part.replace("\\", "") for flag in flags for part in flag.split(" ")]
    return taken


def needs(path):
    """Every header of Tapir that a file includes, directly or not, with the file itself."""
    found, ahead = {path}, [path]
    while ahead:
        new = included(ahead.pop()) - found
        found |= new
        ahead += new
    return found


@functools.lru_cache(None)
def included(path):
    names = re.findall(r'^ *# *include *["<](?:tapir/)?([^">]+)[">]', path.read_text(), re.M)
    places = [next((folder / name for folder in (path.parent, root) if (folder / name).is_file()), None) for name in names]
    return {place.resolve() for place in places if place}


def run(name, command):
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode == 0: return True
    print(f"FAILED {name}\n" + "\n".join((result.stderr + result.stdout).splitlines()[:15]), flush=True)
    return False


def main():
    sources = commands()
    headers = []
    for folder, _, files in os.walk(include / "tapir", followlinks=True):
        headers += [os.path.relpath(os.path.join(folder, file), include / "tapir") for file in files if file.endswith(".h")]
    skipped = 0
    probe = subprocess.run([compiler, "-x", "c++", "-fsyntax-only", "-"], input="#include <cuda_runtime.h>", capture_output=True, text=True)
    if probe.returncode != 0:
        print("skipped: core/cuda_launch.h needs a CUDA toolkit (cuda_runtime.h), and there is none")
        headers.remove("core/cuda_launch.h")
        skipped = 1
    kinds = {"header": ["-I", str(include)],  # what its user gives it: nothing of Eigen or OpenMP
             "source": ["-fopenmp", *min(sources.values(), key=len)]}  # a few sources have a definition more
    plain = [compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-Winvalid-pch"]
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        place = lambda kind, base: str(Path(work, kind + "_" + base.replace("/", "_")))

        def precompile(kind, base):
            Path(place(kind, base)).write_text(f"#include <tapir/{base}>\n")
            return run(f"{base}, precompiled", plain + kinds[kind] + ["-x", "c++-header", place(kind, base), "-o", place(kind, base) + ".gch"])

        def alone(kind, path, what, more=()):
            base = next((base for base in bases if root / base in needs(path) and root / base != path), None)
            given = ["-include", place(kind, base)] if base else []
            return run(path.relative_to(root), plain + kinds[kind] + [*more, *given, "-fsyntax-only", *what])

        results = [precompile(kind, base) for kind in kinds for base in bases]
        jobs = [pool.submit(alone, "header", (include / "tapir" / header).resolve(), ["-x", "c++", "-include", f"tapir/{header}", "/dev/null"])
                for header in sorted(headers)]
        jobs += [pool.submit(alone, "source", Path(file).resolve(), [file], flags) for file, flags in sorted(sources.items())]
        names = str(root / "tests/headers/names.cpp")
        compilers = {os.path.realpath(path) for path in map(shutil.which, (compiler, "g++", "clang++")) if path}
        for other in sorted(compilers):
            for standard in ("c++20", "gnu++2b"):
                for order in ("ALONE", "FIRST", "LAST"):
                    command = [other, f"-std={standard}", f"-D{order}", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", str(include), names]
                    jobs.append(pool.submit(run, f"names.cpp: {other} {standard} {order}", command))
        results += [job.result() for job in jobs]
    print(f"{results.count(True)} passed, {results.count(False)} failed, {skipped} skipped")
    return results.count(False) != 0 or not sources or not headers


sys.exit(main())
