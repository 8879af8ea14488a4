"""What is read from the output of a section: texts for the report, numbers for results.json."""
import csv
import json
import re

NAMES = {"bf16": "eager", "compiled_bf16": "compiled"}  # of the targets


def rows_of(path):
    """bench.py's file; a program that was killed may have left it short."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return []


def fenced(lines):
    return "```\n" + "\n".join(line[:240] for line in lines) + "\n```"


def failures(ran, most):
    said = [line for line in ran.lines if line.startswith(("FAILED", "BROKE", "LOST", "the time was up", "given up")) or ("ERROR SUMMARY" in line and ": 0 errors" not in line)]
    return said[:most] + ([f"... and {len(said) - most} more in the log"] if len(said) > most else [])


def cases(context, section, rans):
    """A line for each part and its failures; the sums."""
    lines = []
    for part, ran in zip(section.parts, rans):
        lines.append(f"{part.name}: {ran.passed} passed, {ran.failed} failed, {ran.skipped} skipped, exit status {ran.status}, {ran.seconds:.0f} s")
        lines += ["  " + line for line in failures(ran, section.lines)]
        if ran.status not in (0, 1) or (ran.status == 1 and not failures(ran, 1)):
            lines += ["  " + line for line in ran.lines[-8:]]
    sums = {word: sum(getattr(ran, word) for ran in rans) for word in ("passed", "failed", "skipped")}
    broke = sum(len(ran.broke) for ran in rans)
    note = ", ".join(f"{n} {word}" for word, n in sums.items()) + (f", {broke} of them broke their program" if broke else "")
    return note, fenced(lines), {f"{section.name}/{word}": n for word, n in sums.items()}


def rate(row, ms):
    """Per second: images, tokens, GB or TFLOP."""
    unit = {"bytes": ("GB_per_s", 1e-9), "flops": ("TFLOP_per_s", 1e-12)}.get(row["unit"], (f"{row['unit']}_per_s", 1))
    return unit[0], row["count"] * 1000 / ms * unit[1]


def measured(context, section, rans):
    """bench.py's rows: ms, rates, and ratios where PyTorch ran."""
    found, notes, rows = {}, [], []
    for part in section.parts:
        rows += rows_of(context.folder / f"{part.name}.json")
    for row in rows:
        if not row["tapir_ms"]:
            continue
        name = f"{row['workload']}/{NAMES.get(row['variant'], row['variant']) if section.name.startswith('target_') else row['variant']}"
        found[name] = row["tapir_ms"]
        unit, value = rate(row, row["tapir_ms"])
        if unit != "steps_per_s":
            found[f"{name}/{unit}"] = value
            notes.append(f"{name} {row['tapir_ms']:.4g} ms, {value:.5g} {unit}")
        if row["pytorch_ms"]:
            found |= {f"{name}/pytorch": row["pytorch_ms"], f"{name}/ratio": row["ratio"]}
            notes.append(f"{name} {row['ratio']:.3f} of PyTorch's time" if unit == "steps_per_s" else f"{row['ratio']:.3f} of PyTorch's time")
        for key in ("by_best_peer", "by_own_eager"):
            if key in row:
                found[f"{name}/{key}"] = row[key]
    if not found or any("error" in row for row in rows):
        rans[0].status = rans[0].status or 1
    return "; ".join(notes[:8]), fenced([line for ran in rans for line in ran.lines[-section.lines:]]), found


def accuracy(context, section, rans):
    said = next((match for line in reversed(rans[0].lines) if (match := re.search(r"test accuracy ([\d.]+)", line))), None)
    value = float(said[1]) if said else 0
    wanted = 20 if context.emulated else 98.5
    if rans[0].status == 0 and value < wanted:
        rans[0].status = 1
    return f"{value} %, expected {wanted} % or more", fenced(rans[0].lines[-section.lines:]), {"mnist/accuracy": value, "mnist/seconds": rans[0].seconds}


def operations(context, section, rans):
    path = context.out / "ops.json"
    rows = rows_of(path)
    ratios = sorted(row["ratio"] for row in rows if row["ratio"])
    broken = [f"{row['op']} {row['size']} {row['layout']} {row['pass']}: {row['error']}" for row in rows if "error" in row]
    found = {"ops/measured": len(rows), "ops/broken": len(broken)}
    if ratios:
        found |= {"ops/median_ratio": ratios[len(ratios) // 2], "ops/above_1.5": sum(r > 1.5 for r in ratios)}
    if broken or not rows:
        rans[0].status = rans[0].status or 1
    note = f"{len(rows)} measured, {len(broken)} broken" + (f", median ratio {found['ops/median_ratio']:.3f}, {found['ops/above_1.5']} above 1.5" if ratios else "")
    table = path.with_suffix(".md")
    return note, (table.read_text() if table.exists() else "") + fenced(broken + rans[0].lines[-10:]), found


def read_ncu(lines):
    """{metric: value} of the first kernel in ncu's CSV: a row of names, one of units, one for each kernel."""
    rows = list(csv.reader(line for line in lines if line.startswith('"')))
    if len(rows) < 3:
        return {}
    found = {}
    for name, text in zip(rows[0], rows[2]):
        try:
            found[name] = float(text.replace(",", ""))
        except ValueError:
            found[name] = text
    return found


def kernels(context, section, rans):
    """A row for each kernel: time, bytes of memory, and how near they come to the machine's limits."""
    lines, found, missing = ["| | us | MB | GB/s | memory % | SM % | warps % | registers |", "|---|---|---|---|---|---|---|---|"], {}, 0
    for part, ran in zip(section.parts, rans):
        v = read_ncu(ran.lines)
        number = lambda key: float(v.get(key) or 0)
        time, bytes_ = number("gpu__time_duration.sum"), number("dram__bytes.sum")
        name = part.name[len("ncu."):]
        if not time:
            missing += ran.status != 0 or not context.emulated
            lines.append(f"| {name} | exit status {ran.status}: {' '.join(ran.lines[-2:])[:160].replace('|', '/')} |")
            continue
        found[f"ncu/{name}"] = time / 1e6
        found[f"ncu/{name}/GB_per_s"] = bytes_ / time
        lines.append(f"| {name} | {time / 1e3:.1f} | {bytes_ / 1e6:.1f} | {bytes_ / time:.0f} | {number('dram__throughput.avg.pct_of_peak_sustained_elapsed'):.0f} | "
                     f"{number('sm__throughput.avg.pct_of_peak_sustained_elapsed'):.0f} | {number('sm__warps_active.avg.pct_of_peak_sustained_active'):.0f} | "
                     f"{number('launch__registers_per_thread'):.0f} |")
    if missing and all(ran.status == 0 for ran in rans):
        rans[0].status = 1
    return f"{len(rans) - missing} of {len(rans)} kernels", "\n".join(lines), found


def differences(context, section, rans):
    """The whole table goes into a file of its own; what is above 16 ulp or an error, and what broke, into the report."""
    table, large, totals = [], [], [0, 0, 0]
    for ran in rans:
        for line in ran.lines:
            ends = re.match(r"(\d+) combinations of op and dtype compared, (\d+) bitwise equal, (\d+) above", line)
            if ends:
                totals = [a + int(b) for a, b in zip(totals, ends.groups())]
            elif line.startswith(("op  ", "LOST", "BROKE", "the time was up")):
                large += [line] if not line.startswith("op  ") else []
                table += [line] if line not in table else []
            else:
                table.append(line)
                numbers = [float(word) for word in line[28:].split() if re.fullmatch(r"[\d.]+(e[+-]?\d+)?|inf", word)]
                large += [line] if " error" in line or max(numbers, default=0) > 16 else []
    (context.out / "difference.txt").write_text("\n".join(table) + "\n")
    note = f"{totals[0]} compared, {totals[1]} bitwise equal, {totals[2]} above 16 or with an error"
    return note, fenced(table[:1] + large[:80]), dict(zip(("difference/compared", "difference/equal", "difference/large"), totals))
