"""What must be there before anything runs: the plugin's libraries, and a device that answers. Then what the machine is."""
import os
import re
import shutil
import subprocess

from runner import Part, run_program

SECONDS = 65  # CUDA's libraries come from a cold disk


def linked(context):
    """What the plugin is linked with. CUDA's libraries it opens itself: tapir_bench device says where it found them, or looked for them."""
    plugin = context.env["TAPIR_CUDA_PLUGIN"]
    if not os.path.exists(plugin):
        return [f"plugin: {plugin} is not there"]
    said = subprocess.run(["ldd", plugin], capture_output=True, text=True, env={**context.env, "LC_ALL": "C"}) if shutil.which("ldd") else None
    return [f"plugin: {plugin}"] + ["  " + re.sub(r" \(0x.*", "", line.strip()) for line in (said.stdout.splitlines() if said else []) if "=>" in line]


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
    lines = linked(context)
    for line in lines:
        log.write("preflight", line)
    absent = context.missing("tapir_bench")
    status, said = 1, [absent]
    if not absent:
        part = Part("device", [context.program("tapir_bench"), "device", "--device", context.device])
        status, _, said = run_program(part, SECONDS - 5, context.env, log)
    lines += said
    lost = [line.split()[0] for line in lines if line.endswith("not found") and "=>" in line]
    if status:
        what = f"stopped: {absent}" if absent else "stopped: the device is not available"
        lines += [f"{what}{' (no answer in time)' if status == 124 else ''}" + (f"; not found: {', '.join(lost)}" if lost else "")]
        return False, "```\n" + "\n".join(lines) + "\n```"
    return True, "```\n" + "\n".join(lines + machine(context, log)) + "\n```"
