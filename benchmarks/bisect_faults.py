"""Does `aot_registry.bisect` find faults, and only faults? Backends that are wrong on purpose, and right ones.

    python benchmarks/bisect_faults.py --faults 200 --clean 50
    python benchmarks/bisect_faults.py --only fault_17_0      # one fault, and all that bisect says of it

The faults are those of packages/aot-registry/tests/bisect/faulty_backends.py: eleven kinds, over ten small models. A
draw that changes nothing that can be seen is no fault, and is drawn again: there, eager and compiled are compared by
``torch.allclose``, not by the rule of `bisect`. Each reproducer is run as a program, by this process, and must end
with status 1, and with 0 when its backend is replaced by a right one.

The exit status is 1 if a figure is missed: 98 % at the right stage, 90 % at the right node, at most 1 % false alarms,
every reproducer shows its fault.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import runpy
import sys
import tempfile
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1] / "packages" / "aot-registry" / "tests" / "bisect")
)

from faulty_backends import KINDS, draw, manifest_fault
from small_models import MODELS, build

import aot_registry

CLEAN_BACKENDS = ("aot_eager", "aot_core_eager", "aot_inductor_debug", "aot_mem_efficient", "inductor")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=200, metavar="N")
    parser.add_argument("--start", type=int, default=0, metavar="I", help="number of the first fault")
    parser.add_argument("--clean", type=int, default=50, metavar="N", help="right model × backend pairs")
    parser.add_argument("--only", metavar="NAME", help="one fault, such as fault_17_0")
    parser.add_argument("--json", metavar="FILE", help="also write each outcome there")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if args.only:
        return show(args.only)

    outcomes = []
    started = time.time()
    for number in range(args.start, args.start + args.faults):
        outcomes.append(outcome := judge(number))
        print(json.dumps(outcome), flush=True)
    pairs = [(model, backend) for backend in CLEAN_BACKENDS for model in MODELS][: args.clean]
    alarms = []
    for model, backend in pairs:
        result = bisect_model(model, backend, None)
        if result.stage is not None:
            alarms.append((model, backend, result.stage, str(result.failures[0])))
        print(json.dumps({"model": model, "backend": backend, "stage": result.stage}), flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps({"faults": outcomes, "alarms": alarms}, indent=1))
    print(f"{time.time() - started:.0f} s")
    return report(outcomes, alarms, len(pairs))


def bisect_model(model_name: str, backend: str, path: Path | None):
    model, inputs = build(model_name)
    return aot_registry.bisect(model, inputs, backend, reproducer_path=path)


def judge(number: int) -> dict:
    """Bisect one fault, and tell what was right."""
    fault = manifest_fault(number)
    if fault is None:
        return {"number": number, "kind": KINDS[number % len(KINDS)], "drawn": False}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repro.py"
        started = time.time()
        result = bisect_model(fault.model, f"faulty_backends:{fault.name}", path)
        seconds = time.time() - started
        shows = path.exists() and run(path) == 1
        silent = path.exists() and run(_with_right_backend(path)) == 0
    culprit = result.culprit
    found = (culprit.node, culprit.operator, culprit.source) if culprit else (None, None, None)
    right_node = culprit is not None and (
        culprit.operator == fault.operator and culprit.source == fault.source
        if fault.kind == "wrong decomposition"
        else culprit.node in fault.nodes and culprit.role == fault.role
    )
    return {
        "number": number,
        "name": fault.name,
        "kind": fault.kind,
        "model": fault.model,
        "drawn": True,
        "expected": [fault.stage, fault.role, *fault.nodes],
        "found": [result.stage, None if culprit is None else culprit.role, *found],
        "stage": result.stage == fault.stage,
        "node": bool(result.stage == fault.stage and right_node),
        "reproducer": shows,
        "control": silent,
        "runs": result.runs,
        "seconds": round(seconds, 1),
    }


def run(path: Path) -> int | None:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            return end.code
    return None


def _with_right_backend(path: Path) -> Path:
    """Write the reproducer once more, for a backend without a fault: then it must show none."""
    lines = path.read_text().splitlines()
    lines = ['BACKEND = "aot_eager"' if "as BACKEND" in line else line for line in lines]
    control = path.with_name("control.py")
    control.write_text("\n".join(lines))
    return control


def show(name: str) -> int:
    _, number, attempt = name.split("_")
    fault = draw(int(number), int(attempt))
    if fault is None:
        print(f"{name}: the draw fell on a model without such a fault")
        return 2
    print(f"{fault.kind} in {fault.model}: {fault.stage}, {fault.role}, {fault.nodes}, {fault.operator}")
    with tempfile.TemporaryDirectory() as folder:
        print(bisect_model(fault.model, f"faulty_backends:{name}", Path(folder) / "repro.py"))
    return 0


def report(outcomes: list[dict], alarms: list[tuple], clean: int) -> int:
    drawn = [outcome for outcome in outcomes if outcome["drawn"]]
    by_kind = collections.defaultdict(list)
    for outcome in drawn:
        by_kind[outcome["kind"]].append(outcome)
    print(f"{'kind':<22}{'faults':>7}{'stage':>7}{'node':>7}{'repro':>7}{'control':>9}")
    columns = ("stage", "node", "reproducer", "control")
    for kind, group in by_kind.items():
        sums = [sum(outcome[column] for outcome in group) for column in columns]
        print(f"{kind:<22}{len(group):>7}{sums[0]:>7}{sums[1]:>7}{sums[2]:>7}{sums[3]:>9}")
    rates = {
        column: sum(outcome[column] for outcome in drawn) / len(drawn) if drawn else 1.0 for column in columns
    }
    alarm_rate = len(alarms) / clean if clean else 0.0
    print(f"faults: {len(drawn)} ({len(outcomes) - len(drawn)} numbers gave none)")
    for column, rate in rates.items():
        print(f"right {column}: {rate:.1%}")
    print(f"false alarms: {len(alarms)} of {clean} ({alarm_rate:.1%})")
    for alarm in alarms:
        print("  ", *alarm)
    reached = (
        rates["stage"] >= 0.98 and rates["node"] >= 0.9 and rates["reproducer"] == 1 and alarm_rate <= 0.01
    )
    return 0 if reached and len(drawn) == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
