"""Phase B: how fast replays are, against eager and torch's own ways of capturing.

    python benchmarks/gpu/cudagraphs.py --phase B --state b.jsonl
    python benchmarks/gpu/cudagraphs.py --phase B --dry-run     # small, simulated, on the CPU: does all of it run?

Each model is run by all ways in turn, for several rounds, in a process of its own. Every way has a copy of the model;
at the start of a round all copies have the same weights, and all draw from the same seed. What they compute is compared
in each round: with ``aot_eager`` bit for bit for ours, and with eager within rounding for the others. Printed is
eager's time over each way's, per round: median and quartiles. A ratio of 2 is twice as fast as eager.

Inductor compiles for long. Its two ways run last, if time is left; another call with the same ``--state`` goes on.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from cudagraphs_models import WORKLOADS, Workload, scale

HERE = Path(__file__).parent
QUICK = ("eager", "aot_eager", "ours", "ours-pool", "cudagraphs", "graphed")
SLOW = ("reduce-overhead", "default")
STEPS = 12
"""Steps a round: a multiple of the shapes that rotate and of the steps that accumulate."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--state", type=Path, default=Path("cudagraphs-b.jsonl"), help="results, one a line")
    parser.add_argument("--seconds", type=float, default=210, help="start no model after this (default 210)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="models, by name, separated by commas")
    parser.add_argument("--dry-run", action="store_true", help="small models, simulated on the CPU")
    parser.add_argument("--run", default="", help=argparse.SUPPRESS)
    parser.add_argument("--ways", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.run:
        print(json.dumps(measure(options.run, options.ways.split(","), options)))
        return 0
    return drive(options)


# --- the process that drives ---------------------------------------------------------------------------------


def drive(options: argparse.Namespace) -> int:
    """Run one process a model, quick ways first, and print what each found."""
    if not options.dry_run and not torch.cuda.is_available():
        print("No CUDA device here. --dry-run does everything but the CUDA calls.")
        return 2
    where = "small models, simulated" if options.dry_run else torch.cuda.get_device_name()
    print(f"torch {torch.__version__}, {where}", flush=True)
    started = time.monotonic()
    rows = _read(options.state)
    names = [name for name in options.only.split(",") if name] or list(WORKLOADS)
    ways = [QUICK] if options.dry_run else [QUICK, ("eager", *SLOW)]
    for wanted in ways:
        for name in names:
            done = {(row["model"], way) for row in rows for way in row["ways"]}
            if all((name, way) in done for way in wanted if way != "eager" or wanted is QUICK):
                continue
            left = options.seconds - (time.monotonic() - started)
            if left < 5:
                print("Out of time. The same command goes on from here.")
                break
            row = _run_apart(name, wanted, options, left)
            if row is not None:
                rows.append(row)
                with open(options.state, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(_table(row), flush=True)
    print(_summary(rows))
    return 0


def _read(state: Path) -> list[dict[str, Any]]:
    rows = []
    for line in state.read_text(encoding="utf-8").splitlines() if state.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            print("The last line of the state was cut off; its model is measured again.")
    return rows


def _run_apart(
    name: str, ways: Sequence[str], options: argparse.Namespace, left: float
) -> dict[str, Any] | None:
    command = [sys.executable, str(HERE / "cudagraphs.py"), "--phase", "B", "--run", name]
    command += ["--ways", ",".join(ways), "--rounds", str(options.rounds)]
    command += ["--dry-run"] if options.dry_run else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(left, 30), check=False)
    except subprocess.TimeoutExpired:
        print(f"{name}: no time left for {', '.join(ways)}", flush=True)
        return None
    if done.returncode != 0:
        print(f"{name}: failed\n{done.stderr[-2000:]}", flush=True)
        return None
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def _table(row: dict[str, Any]) -> str:
    lines = [f"{row['model']}: eager {row['eager_ms']:.2f} ms a step"]
    for way, found in row["ways"].items():
        if "error" in found:
            lines.append(f"  {way:16} {found['error']}")
            continue
        low, middle, high = found["quartiles"]
        captured = f", captured {found['share']:.0%}, {found['copies']} copies" if "share" in found else ""
        lines.append(
            f"  {way:16} {middle:6.2f}x eager ({low:.2f} to {high:.2f}), {found['checked']}, peak "
            f"{found['peak_mib']:.0f} MiB, first steps {found['first_seconds']:.1f} s{captured}"
        )
    return "\n".join(lines)


def _summary(rows: list[dict[str, Any]]) -> str:
    """Compare with the goals: 3x eager, never slower, as fast as torch's where that captures, twice where it skips."""
    ours: dict[str, float] = {}
    against: dict[str, float] = {}
    for row in rows:
        medians = {way: found["quartiles"][1] for way, found in row["ways"].items() if "quartiles" in found}
        if "ours" in medians:
            ours[row["model"]] = medians["ours"]
            if "cudagraphs" in medians:
                against[row["model"]] = medians["ours"] / medians["cudagraphs"]
    if not ours:
        return "nothing measured"
    mean = math.exp(statistics.fmean(map(math.log, ours.values())))
    lines = [
        f"ours over eager: geometric mean {mean:.2f} (goal 3), least {min(ours.values()):.2f} (goal 0.98)"
    ]
    for skipped, goal in ((False, 1.0), (True, 2.0)):
        ratios = {name: ratio for name, ratio in against.items() if WORKLOADS[name].skipped is skipped}
        where = "skips" if skipped else "captures"
        if ratios:
            worst = min(ratios, key=ratios.__getitem__)
            lines.append(
                f"ours over torch's cudagraphs where it {where}: least {ratios[worst]:.2f}, {worst} (goal {goal})"
            )
    return "\n".join(lines)


# --- the process that measures -------------------------------------------------------------------------------


class Way:
    """A copy of a model, and a function that runs it one way."""

    def __init__(self, workload: Workload, model: torch.nn.Module, function: Callable[..., Any]) -> None:
        self.workload, self.model, self.function = workload, model, function
        training = workload.loss is not None
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True) if training else None

    def round(self, batches: list[list[torch.Tensor]]) -> torch.Tensor:
        """Run the steps of one round, and return what is compared."""
        results = []
        for i, batch in enumerate(batches):
            if self.workload.loss is None:
                with torch.no_grad():
                    results.append(self.function(*batch).sum())
                continue
            loss = self.workload.loss(self.function(*batch), batch)
            loss.backward()
            results.append(loss.detach())
            if (i + 1) % self.workload.accumulate == 0:
                assert self.optimizer is not None
                self.optimizer.step()
                self.optimizer.zero_grad()
        return torch.stack(results)


def measure(name: str, names: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Run one model by some ways, interleaved, and return what was found as plain data."""
    scale.small = options.dry_run
    device = torch.device("cpu" if options.dry_run else "cuda")
    workload = WORKLOADS[name]
    torch.manual_seed(0)
    reference = workload.model().to(device)
    weights = copy.deepcopy(reference.state_dict())
    batches = [
        [each if each.dim() == 0 else each.to(device) for each in batch] for batch in workload.batches(STEPS)
    ]
    ways: dict[str, Way] = {}
    found: dict[str, dict[str, Any]] = {}
    for way in names:
        if way == "graphed" and not workload.graphed:
            continue
        try:
            found[way] = {}
            ways[way] = _prepare(way, workload, reference, batches, options, found[way])
        except Exception as error:
            found[way] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
            ways.pop(way, None)
    times: dict[str, list[float]] = {way: [] for way in ways}
    agreed: dict[str, list[str]] = {way: [] for way in ways}
    for _ in range(2 if options.dry_run else options.rounds):
        results = {}
        for way, one in ways.items():
            _start_over(one, weights)
            _wait(device)
            started = time.perf_counter()
            results[way] = one.round(batches)
            _wait(device)
            times[way].append(time.perf_counter() - started)
        for way in ways:
            agreed[way].append(_compare(way, results, workload))
    for way in ways:
        ratios = [eager / other for eager, other in zip(times["eager"], times[way], strict=True)]
        found[way]["quartiles"] = statistics.quantiles(ratios, n=4)
        found[way]["checked"] = min(agreed[way], key=("differs", "close", "same bits").index)
    eager_ms = statistics.median(times["eager"]) / STEPS * 1e3
    return {"model": name, "eager_ms": eager_ms, "ways": found}


def _prepare(
    way: str,
    workload: Workload,
    reference: torch.nn.Module,
    batches: list[list[torch.Tensor]],
    options: argparse.Namespace,
    found: dict[str, Any],
) -> Way:
    model = copy.deepcopy(reference)
    started = time.perf_counter()
    prepared = Way(workload, model, _function(way, model, workload, batches, options))
    weights = copy.deepcopy(model.state_dict())
    for _ in range(3):
        _start_over(prepared, weights)
        prepared.round(batches)
    device = batches[0][0].device
    _wait(device)
    found["first_seconds"] = time.perf_counter() - started
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        prepared.round(batches)
        _wait(device)
    found["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else 0.0
    if way.startswith("ours"):
        found.update(_captured(model))
    return prepared


def _captured(model: torch.nn.Module) -> dict[str, Any]:
    """Return the share of operations that are captured, and the inputs that are copied in a step."""
    import aot_cudagraphs

    known = _captured.__dict__.setdefault("seen", set())
    graphs = [graph for graph in aot_cudagraphs.captured_graphs() if id(graph) not in known]
    known.update(map(id, graphs))
    operations = sum(graph.partition.operations for graph in graphs)
    captured = sum(graph.partition.captured for graph in graphs)
    plans = [plan for graph in graphs for island in graph.islands for plan in island.input_plans[:1]]
    return {
        "share": captured / operations if operations else 0.0,
        "copies": sum(len(plan.stand_ins) for plan in plans),
    }


def _function(
    way: str,
    model: torch.nn.Module,
    workload: Workload,
    batches: list[list[torch.Tensor]],
    options: argparse.Namespace,
) -> Callable[..., Any]:
    if way == "eager":
        return model
    if way == "graphed":
        if options.dry_run:
            raise RuntimeError("make_graphed_callables needs a CUDA device")
        if workload.loss is None:
            model.requires_grad_(False)
        graphed: Callable[..., Any] = torch.cuda.make_graphed_callables(model, tuple(batches[0]))
        return graphed
    if way in SLOW:
        return torch.compile(model, mode=way, dynamic=workload.dynamic)
    if way in ("aot_eager", "cudagraphs"):
        if options.dry_run and way == "cudagraphs":
            raise RuntimeError("torch's cudagraphs needs a CUDA device")
        return torch.compile(model, backend=way, dynamic=workload.dynamic)
    from aot_cudagraphs import aot_cudagraphs

    chosen = {"outputs": "pool" if way == "ours-pool" else "clone"}
    if options.dry_run:
        chosen["capture"] = "simulated"
    return torch.compile(model, backend=aot_cudagraphs, options=chosen, dynamic=workload.dynamic)


def _start_over(way: Way, weights: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, value in way.model.state_dict().items():
            value.copy_(weights[name])
    torch.manual_seed(1)


def _compare(way: str, results: dict[str, torch.Tensor], workload: Workload) -> str:
    """Tell how a way's results agree: ours with aot_eager's, whose kernels they are, the others with eager's."""
    got, eager = results[way], results["eager"]
    exact = results.get("aot_eager", eager) if way.startswith("ours") else eager
    if torch.equal(got, exact):
        return "same bits"
    if workload.random:
        # Another order of random numbers: only its size can be compared.
        return "close" if bool((got.mean() - eager.mean()).abs() < 0.1 * eager.mean().abs()) else "differs"
    return "close" if torch.allclose(got, eager, rtol=1e-2, atol=1e-3) else "differs"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
