"""Run the conformance kit on every installed backend, and keep what came out for the documentation.

python tools/capabilities.py            write docs/reference/capabilities.json anew
python tools/capabilities.py --check    fail if it says something else than the kit

The file is plain data, without timings and without a machine's name; docs/_extensions makes the page of it. A backend
whose checks all pass takes one line; of the others, the checks that came out alike stand together::

    {"torch": "2.13", "device": "cpu", "seed": 0,
     "checks": {"autograd": ["training", …], …},
     "backends": {"aot_core_eager": {"runs": [
         {"options": {}, "exceptions": [{"status": "failed", "reason": "…", "checks": ["double_backward"]}]}]},
       "torchxla_trivial": {"unusable": "…"}}}
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

import aot_registry
from aot_core.testing import Capability, all_checks, capability_table

FILE = Path(__file__).parents[1] / "docs" / "reference" / "capabilities.json"
DEVICE = "cpu"
SEED = 0

# Without a GPU these leave everything to eager, which says little of them. With these options they don't.
MORE_RUNS: dict[str, dict[str, Any]] = {
    "aot_cudagraphs": {"capture": "simulated", "warmup": 0},
    "aot_ts_nvfuser": {"executor": "aten"},
    "aot_ts_nvfuser_nodecomps": {"executor": "aten"},
}


def main(argv: list[str] | None = None) -> int:
    """Write the file, or compare it; return 1 if it is not current."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    checking = parser.parse_args(argv).check
    found = measure_all()
    if not checking:
        FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return 0
    differences = differing(load(), found)
    print("\n".join(differences) or f"{FILE.name} says what the kit says")
    return 1 if differences else 0


def load() -> dict[str, Any]:
    """Return what the file holds."""
    loaded: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return loaded


def torch_line() -> str:
    """Return the torch in use without its patch and build: ``"2.13"``."""
    return ".".join(torch.__version__.split(".")[:2])


def checks_by_theme() -> dict[str, list[str]]:
    """Return the names of the checks, in their order, under their themes."""
    themes = itertools.groupby(all_checks(), key=lambda check: check.theme)
    return {theme: [check.name for check in checks] for theme, checks in themes}


def measure_all() -> dict[str, Any]:
    """Probe every installed backend and run the usable ones."""
    backends = {}
    for name in aot_registry.list_backends(exclude_tags=()):
        reason = unusable(name)
        runs = [{}, MORE_RUNS[name]] if name in MORE_RUNS else [{}]
        backends[name] = {"unusable": reason} if reason else {"runs": [run(name, each) for each in runs]}
    return {
        "torch": torch_line(),
        "device": DEVICE,
        "seed": SEED,
        "checks": checks_by_theme(),
        "backends": backends,
    }


def unusable(name: str) -> str | None:
    """Return why a backend can't be used here, and what would help; None if it can."""
    found = aot_registry.probe(name)
    if found.usable:
        return None
    told = [found.reason.rstrip("."), found.remedy.rstrip(".")]
    # Some reasons, an error's message say, name the remedy already.
    return without_build(". ".join(told[:1] if told[1] in told[0] else told) + ".")


def run(name: str, options: dict[str, Any], only: Iterable[str] | None = None) -> dict[str, Any]:
    """Run checks on a backend, all by default; return its options, and the checks that did not just pass."""
    with contextlib.redirect_stdout(io.StringIO()):
        table = capability_table(
            name, options=options, device=DEVICE, seed=SEED, only=only, progress=lambda row: _tell(name, row)
        )
    alike: dict[tuple[str, str], list[str]] = {}
    for row in table.rows:
        if row.status != "passed":
            alike.setdefault((row.status, without_build(row.reason)), []).append(row.name)
    exceptions = [
        {"status": status, "reason": reason, "checks": checks} for (status, reason), checks in alike.items()
    ]
    return {"options": options, "exceptions": exceptions}


def outcomes(run: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return status and comparable reason by check, those that passed left out."""
    return {
        check: (exception["status"], comparable(exception["reason"]))
        for exception in run["exceptions"]
        for check in exception["checks"]
    }


def comparable(reason: str) -> str:
    """Return what should be the same everywhere: no figures, and nothing at all under a torch that is built for CUDA.

    There other things are missing than under one that is built for CPUs, with which the file is made.
    """
    return "some reason" if torch.version.cuda else re.sub(r"\d+(\.\d+)*(e[+-]?\d+)?", "0", reason)


def alike(was: str | None, now: str | None) -> bool:
    """Tell whether two answers of `unusable` come to the same."""
    return (was is None) == (now is None) and comparable(was or "") == comparable(now or "")


def without_build(text: str) -> str:
    """Return a text without the build of torch: ``2.13.0+cpu`` is ``2.13.0``."""
    return re.sub(r"(\d\.\d+\.\d+)\+\w+", r"\1", text)


def differing(written: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return in words where the file differs from what was found."""
    differences = [f"{key} differs" for key in ("torch", "device", "checks") if written[key] != found[key]]
    for name in sorted(written["backends"].keys() | found["backends"].keys()):
        old, new = written["backends"].get(name), found["backends"].get(name)
        if old is None or new is None:
            differences.append(f"{name} is {'not written down' if old is None else 'not installed'}")
        elif "unusable" in old or "unusable" in new:
            if not alike(old.get("unusable"), new.get("unusable")):
                differences.append(f"{name}: is it usable? written is {old}, found is {new}")
        else:
            differences += differing_runs(name, old["runs"], new["runs"])
    return differences


def differing_runs(name: str, written: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[str]:
    """Return in words where the runs of one backend differ."""
    if [run["options"] for run in written] != [run["options"] for run in found]:
        return [f"{name}: other options"]
    differences = []
    for old_run, new_run in zip(written, found, strict=True):
        old, new = outcomes(old_run), outcomes(new_run)
        for check in sorted(old.keys() | new.keys()):
            was, now = old.get(check, ("passed", "")), new.get(check, ("passed", ""))
            if was != now:
                differences.append(f"{name} {old_run['options']} {check}: written is {was}, found is {now}")
    return differences


def _tell(name: str, row: Capability) -> None:
    if row.status != "passed":
        print(f"{name}: {row.name} {row.status}: {row.reason}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
