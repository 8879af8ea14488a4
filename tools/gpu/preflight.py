"""What must be there before anything runs: the plugin's libraries, and a device that answers. Then what the machine is."""
import glob
import os
import re
import shutil
import site
import subprocess
import sys

from runner import Part, run_program

SECONDS = 25
# Opened by name while a program runs: without them something is slower or missing, and the plugin still loads.
OPTIONAL = ["libcudnn.so.9", "libcusolver.so.12", "libnvrtc.so.13", "libnccl.so.2"]


def folders_of_libraries():
    """Where CUDA's libraries may lie beside the loader's own folders: the toolkit, and Python's wheels."""
    places = [f"{root}/{end}" for root in filter(None, [os.environ.get("CUDA_HOME"), *sorted(glob.glob("/usr/local/cuda*"), reverse=True)])
              for end in ("lib64", "targets/*/lib")]
    named = os.environ.get("TAPIR_BENCH_PYTHON") or "python3"
    sites = {*site.getsitepackages(), site.getusersitepackages(), *sys.path}
    if shutil.which(named):
        said = subprocess.run([named, "-c", "import sys; print('\\n'.join(sys.path))"], capture_output=True, text=True)
        sites |= set(said.stdout.split("\n"))
    places += [f"{place}/nvidia/{part}" for place in sorted(sites) if place for part in ("cu1*/lib", "*/lib")]
    return [folder for place in places for folder in sorted(glob.glob(place))]


def find(name, folders):
    return next((folder for folder in folders if os.path.exists(f"{folder}/{name}")), None)


def libraries(context):
    """(lines, names that are nowhere): what the plugin is linked with. Folders that we had to look for are added to the environment."""
    plugin = context.env["TAPIR_CUDA_PLUGIN"]
    if not os.path.exists(plugin):
        return [f"plugin: {plugin} is not there"], [plugin]
    said = subprocess.run(["ldd", plugin], capture_output=True, text=True, env={**context.env, "LC_ALL": "C"}) if shutil.which("ldd") else None
    lines, lost, wanted, folders = [f"plugin: {plugin}"], [], [], folders_of_libraries()
    for line in said.stdout.splitlines() if said else []:
        found = re.match(r"\s*(\S+) => (\S+)", line)
        if not found:
            continue
        name, place = found.groups()
        if place == "not":
            place = find(name, folders)
            if place:
                wanted.append(place)
                place += "  (not on the loader's path: LD_LIBRARY_PATH is set)"
            else:
                lost.append(name)
                place = f"NOWHERE: neither on the loader's path nor in {', '.join(folders) or 'a toolkit or wheel, of which there is none'}"
        lines.append(f"  {name}: {place}")
    known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout if shutil.which("ldconfig") else ""
    for name in [] if context.emulated else OPTIONAL:
        place = next((line.split("=> ")[1] for line in known.splitlines() if line.strip().startswith(name + " ")), None)
        if not place and (folder := find(name, folders)):
            wanted.append(folder)
            place = f"{folder}  (LD_LIBRARY_PATH is set)"
        lines.append(f"  {name} (optional): {place or 'not found'}")
    context.add_library_path(list(dict.fromkeys(wanted)))
    return lines, lost


def machine(context, log):
    commands = [["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit", "--format=csv"], ["nvcc", "--version"]]
    lines = []
    for command in commands:
        if not shutil.which(command[0]):
            lines.append(f"{command[0]}: not here")
            continue
        lines += run_program(Part("machine", command), 10, context.env, log)[2]
    with open("/proc/cpuinfo") as file:
        model = re.search(r"(?m)^model name\s*: (.*)", file.read())
    return lines + [f"{model[1] if model else os.uname().machine}, {context.cores} CPUs, {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') >> 30} GiB"]


def check(context, log):
    """(may the rest run, text)."""
    lines, lost = libraries(context)
    for line in lines:
        log.write("preflight", line)
    absent = context.missing("tapir_bench")
    status, said = 1, [absent]
    if not absent:
        part = Part("device", [context.program("tapir_bench"), "device", "--device", context.device])
        status, _, said = run_program(part, SECONDS - 5, context.env, log)
    lines += said
    if status:
        lines += [f"stopped: the device is not available{' (no answer in time)' if status == 124 else ''}" + (f"; missing: {', '.join(lost)}" if lost else "")]
        return False, "```\n" + "\n".join(lines) + "\n```"
    return True, "```\n" + "\n".join(lines + machine(context, log)) + "\n```"
