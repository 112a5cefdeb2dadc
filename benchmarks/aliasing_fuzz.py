"""Random programs over aliased and mutated inputs: does a `torch.compile` backend do what eager does?

    python benchmarks/aliasing_fuzz.py --programs 500 --seed 0 --torch-stock --jobs 2
    python benchmarks/aliasing_fuzz.py --programs 500 --torch-stock --install     # torch's with our analyses
    python benchmarks/aliasing_fuzz.py --seed 0 --only 137        # one program: its code and what differs

Each program is run eagerly and compiled, on inputs made afresh with the same aliasing, and compared in output
values, gradients, mutated inputs, alias relations and strides. What is wrong with Dynamo's own backend
``"eager"`` too counts as Dynamo's fault. The exit status is 1 if the backend under test was wrong anywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from aliasing.plan import plan_for
from aliasing.pool import run_in_chunks
from aliasing.report import kinds_table, one_object_for_two, rejections, reproducer, verdict_table
from aliasing.run import find_case, judge, resolve
from aliasing.shrink import shrink

from aot_core import analysis

OURS = "aot_core.debug:aot_core_eager"
STOCK = ("aot_eager", "inductor")


def main() -> int:
    options = _parse()
    backends = {name.rpartition(":")[2]: name for name in (options.backend, *options.stock)}
    if options.chunk:
        first, stop, path = options.chunk
        return _work(options, backends, range(int(first), int(stop)), path)
    if options.only is not None:
        return _show(options, backends, options.only)

    for spec in backends.values():
        resolve(spec)  # A name that doesn't exist should fail here, and not once per program.
    started = time.monotonic()
    records = _run_all(options, backends)
    seconds = time.monotonic() - started
    front = "no Dynamo in front" if options.no_dynamo else "torch.compile"
    if options.install:
        front += f", aot_core.analysis under {' and '.join(options.stock)}"
    print(
        f"torch {torch.__version__}, {front}, seed {options.seed}: {len(records)} programs in {seconds:.0f} s"
    )
    print(rejections(records), end="\n\n")
    print(kinds_table(records, list(backends)), end="\n\n")
    print(verdict_table(records, list(backends)))
    print(one_object_for_two(records, list(backends)))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"torch": torch.__version__, "seed": options.seed, "records": records}, file, indent=1)
    wrong = {name: [r for r in records if _is_wrong(r, name)] for name in backends}
    for name, spec in backends.items():
        for record in wrong[name][: options.show_failures]:
            _print_failure(options, record, name, spec)
    return bool(wrong[next(iter(backends))])


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=500, help="how many (default 500)")
    parser.add_argument("--first", type=int, default=0, help="index of the first one (default 0)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--backend", default=OURS, help="a registered name or module:attribute (default %(default)s)"
    )
    parser.add_argument(
        "--torch-stock", action="store_true", help=f"the same programs on {' and '.join(STOCK)} too"
    )
    parser.add_argument(
        "--stock", nargs="*", default=[], metavar="NAME", help="the same programs on these backends too"
    )
    parser.add_argument(
        "--install",
        action="store_true",
        help="put aot_core.analysis under the backends of --torch-stock and --stock",
    )
    parser.add_argument("--no-dynamo", action="store_true", help="hand the backend a graph; no torch.compile")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--json", metavar="FILE", help="write a record of each program")
    parser.add_argument(
        "--show-failures", type=int, default=3, metavar="K", help="of each backend (default 3)"
    )
    parser.add_argument("--only", type=int, metavar="INDEX", help="run one program and show its code")
    parser.add_argument("--shrink", action="store_true", help="make the programs shown as small as they go")
    parser.add_argument("--chunk", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch_stock:
        options.stock = [*STOCK, *options.stock]
    return options


def _run_all(options: argparse.Namespace, backends: dict[str, str]) -> list[dict[str, Any]]:
    def lost(index: int, how: str) -> dict[str, Any]:
        verdict = {"verdict": "loudly wrong", "differences": [], "error": how}
        plan = dataclasses.asdict(plan_for(index))
        return {"index": index, "plan": plan, "rejected": {}, "results": dict.fromkeys(backends, verdict)}

    indices = range(options.first, options.first + options.programs)
    command = [sys.executable, __file__, *sys.argv[1:]]
    records = []
    for record in run_in_chunks(command, indices, jobs=options.jobs, lost=lost, chunk=_chunk_size(options)):
        records.append(record)
        if sys.stderr.isatty():
            print(f"\r{len(records)} of {len(indices)}", end="", file=sys.stderr)
    return sorted(records, key=lambda record: record["index"])


def _chunk_size(options: argparse.Namespace) -> int:
    return max(1, min(250, -(-options.programs // options.jobs)))


def _work(options: argparse.Namespace, backends: dict[str, str], indices: range, path: str) -> int:
    """Be a worker: one line of JSON per program."""
    torch.set_num_threads(1)
    resolved = {name: resolve(spec) for name, spec in backends.items()}
    with open(path, "a", buffering=1) as file:
        for index in indices:
            case = find_case(options.seed, index)
            results = {}
            for name, backend in resolved.items():
                with _analyses(options, name):
                    judgement = judge(case, backend, dynamo=not options.no_dynamo)
                results[name] = {
                    "verdict": judgement.verdict,
                    "differences": [str(difference) for difference in judgement.differences],
                    "error": judgement.error,
                }
            plan = dataclasses.asdict(case.plan)
            record = {"index": index, "plan": plan, "rejected": case.rejected, "results": results}
            file.write(json.dumps(record) + "\n")
    return 0


def _analyses(options: argparse.Namespace, backend: str) -> contextlib.AbstractContextManager[Any]:
    return analysis.install() if options.install and backend in options.stock else contextlib.nullcontext()


def _show(options: argparse.Namespace, backends: dict[str, str], index: int) -> int:
    case = find_case(options.seed, index)
    wrong = []
    for name, spec in backends.items():
        with _analyses(options, name):
            judgement = judge(case, resolve(spec), dynamo=not options.no_dynamo)
        wrong.append(judgement.verdict in ("loudly wrong", "silently wrong"))
        record = {
            "index": index,
            "plan": dataclasses.asdict(case.plan),
            "results": {name: {**vars(judgement), "differences": [str(d) for d in judgement.differences]}},
        }
        _print_failure(options, record, name, spec)
    return wrong[0]


def _print_failure(options: argparse.Namespace, record: dict[str, Any], name: str, spec: str) -> None:
    result, plan = record["results"][name], record["plan"]
    print(f"\n# ---- program {record['index']} of seed {options.seed}, {name}: {result['verdict']}")
    print("# " + ", ".join(f"{part}: {kind}" for part, kind in plan.items()))
    for line in [*result["differences"][:8], *([result["error"]] if result["error"] else [])]:
        print(f"# {line}")
    case = find_case(options.seed, record["index"])
    if options.shrink and _is_wrong(record, name):
        backend = resolve(spec)
        case = shrink(case, lambda smaller: judge(smaller, backend, dynamo=not options.no_dynamo))
    print(reproducer(case, spec, dynamo=not options.no_dynamo))


def _is_wrong(record: dict[str, Any], name: str) -> bool:
    return record["results"][name]["verdict"] in ("loudly wrong", "silently wrong")


if __name__ == "__main__":
    sys.exit(main())
