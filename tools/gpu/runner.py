"""What ./run gpu-check does with programs: runs them under limits, logs their output as it comes, starts them again after a fault, reports."""
import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import threading
import time

COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) (?:skipped|unsupported)$")
LOST, OUT_OF_TIME, STALLED = 3, 124, 125  # exit statuses: of progress.h, of the limit, of a case that does not end
STALL = float(os.environ.get("TAPIR_GPU_CHECK_STALL", 90))
MOST_STARTS = 40
running = set()  # programs of ours, each the leader of its own group


def commit_of(folder):
    """The short hash of that checkout; empty where there is none, or no git."""
    try:
        return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def end_all(number, _frame):
    """Of a signal to us: nothing stays behind."""
    for process in list(running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    os._exit(128 + number)


@dataclasses.dataclass
class Part:
    """A program of a section. With `cases` it knows --progress and --from, and starts again behind a case that broke it."""
    name: str
    command: list
    stdin: str = ""
    env: dict = dataclasses.field(default_factory=dict)
    cases: bool = False

    def text(self):
        given = "".join(f"{key}={shlex.quote(value)} " for key, value in self.env.items())
        return given + shlex.join(map(str, self.command)) + (f" <<< {shlex.quote(self.stdin)}" if self.stdin else "")


@dataclasses.dataclass
class Ran:
    """What came of a part."""
    status: int = 0
    seconds: float = 0
    lines: list = dataclasses.field(default_factory=list)
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    broke: list = dataclasses.field(default_factory=list)  # the cases that ended the program, and how


class Log:
    """A file that is whole at any time, for several threads."""

    def __init__(self, path, begun):
        self.file, self.begun, self.lock = open(path, "a"), begun, threading.Lock()

    def write(self, name, line):
        with self.lock:
            self.file.write(f"{time.monotonic() - self.begun:7.1f} {name}| {line}\n")
            self.file.flush()


def stop(process):
    """Ends a program of ours with all that it started: its own group alone."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            process.wait(3)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    process.wait()


def run_program(part, limit, env, log, watch=None):
    """(exit status, seconds, last lines). `watch` is a file that must change every STALL seconds."""
    begun = time.monotonic()
    lines = collections.deque(maxlen=2000)
    log.write(part.name, "$ " + part.text())
    try:
        process = subprocess.Popen([str(word) for word in part.command], env={**env, **part.env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True, text=True, errors="replace")
    except OSError as error:
        return 127, 0, [str(error)]

    running.add(process)

    def read():
        for line in process.stdout:
            lines.append(line.rstrip("\n")[:65536])  # a row of ncu's has 20,000 characters
            log.write(part.name, lines[-1][:1000])
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        process.stdin.write(part.stdin + "\n" if part.stdin else "")
        process.stdin.close()
    except BrokenPipeError:
        pass
    status, seen, since = None, None, begun
    while status is None:
        try:
            status = process.wait(0.2)
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            content = watch.read_text(errors="replace") if watch and watch.exists() else None
            if content != seen:
                seen, since = content, now
            if now - begun > limit or (watch and seen and now - since > STALL):
                stop(process)
                status = OUT_OF_TIME if now - begun > limit else STALLED
    running.discard(process)
    reader.join(2)
    return status, time.monotonic() - begun, list(lines)


def how_it_ended(status):
    if status == STALLED:
        return f"did not end within {STALL:.0f} s"
    return "the device was lost" if status == LOST else f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def run_cases(part, limit, env, log, folder):
    """A part with cases: what breaks the program is one failure, and the rest still runs."""
    total, begun, first = Ran(), time.monotonic(), 0
    progress = folder / f"{part.name}.progress"
    for _ in range(MOST_STARTS):
        progress.write_text("")
        left = limit - (time.monotonic() - begun)
        again = Part(part.name, part.command + ["--progress", progress] + (["--from", str(first)] if first else []), env=part.env)
        status, _, lines = run_program(again, left, env, log, progress)
        counted = next((match for line in reversed(lines) if (match := COUNTS.match(line))), None)
        numbers, _, name = progress.read_text(errors="replace").split("\n")[0].partition("\t")
        index, passed, failed = [int(word) for word in numbers.split()] or [-1, 0, 0]
        total.lines += lines
        if counted:
            passed, failed = int(counted[1]), int(counted[2])
            total.skipped += int(counted[3])
        total.passed, total.failed, total.status = total.passed + passed, total.failed + failed, status
        if status in (0, 1, 9) or (status > 1 and status not in (LOST, STALLED, OUT_OF_TIME)) or index < 0:
            break
        if status == OUT_OF_TIME:
            total.lines.append(f"the time was up at {name}")
            break
        total.broke.append(f"{name}: {how_it_ended(status)}")
        total.failed += 0 if counted else 1
        total.lines.append(f"BROKE {total.broke[-1]}; going on behind it")
        first = index + 1
    else:
        total.lines.append(f"given up after {MOST_STARTS} starts")
    total.seconds = time.monotonic() - begun
    return total


def run_part(part, limit, env, log, folder):
    if part.cases:
        return run_cases(part, limit, env, log, folder)
    status, seconds, lines = run_program(part, limit, env, log)
    counted = next((match for line in reversed(lines) if (match := COUNTS.match(line))), None)
    return Ran(status, seconds, lines, *(int(n) for n in counted.groups()) if counted else ())


def run_parts(parts, limit, env, log, folder, at_once):
    """Several at once; what is not begun when the time is up is not begun at all. One at a time, none but the last takes more than half of
    the time that is left: what hangs leaves the others theirs."""
    end, threads = time.monotonic() + limit, max(1, len(os.sched_getaffinity(0)) // at_once)
    env = {**env, "OMP_NUM_THREADS": str(threads)} if at_once > 1 else env

    def one(part):
        left = end - time.monotonic()
        if at_once == 1 and part is not parts[-1]:
            left /= 2
        return run_part(part, left, env, log, folder) if left > 1 else Ran(OUT_OF_TIME, 0, ["not begun: the time was up"])
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, parts))


class Results:
    """results.json: one flat object. A number without a suffix is milliseconds."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        try:
            self.values = json.loads(self.path.read_text())
        except (OSError, ValueError):
            self.values = {}

    def add(self, values):
        self.values.update(values)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(self.values, indent=1) + "\n")
        fresh.replace(self.path)


class Report:
    """report.md: the part of this call, written anew after each section; another call's part stays."""

    def __init__(self, path, call, head):
        self.path, self.call, self.head, self.rows, self.details = pathlib.Path(path), call, head, [], []
        text = self.path.read_text() if self.path.exists() else ""
        found = re.split(r"(?m)^# Call ([AB])$\n", text)
        self.others = {name: body for name, body in zip(found[1::2], found[2::2]) if name != call}

    def add(self, name, title, status, seconds, note, body):
        self.rows.append(f"| {name} | {status} | {seconds:.0f} | {note} |")
        self.details.append(f"## {title}\n\n{status}, {seconds:.0f} s\n\n{body}\n")
        self.write()

    def write(self, last=""):
        own = f"{self.head}\n\n| section | | s | |\n|---|---|---|---|\n" + "\n".join(self.rows) + f"\n\n{last}\n\n" + "\n".join(self.details)
        parts = {**self.others, self.call: own}
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(f"# Call {name}\n{parts[name].strip()}\n" for name in sorted(parts)))
        fresh.replace(self.path)
