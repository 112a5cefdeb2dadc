"""Phase A: capture each sample of torch's op database on CUDA, and compare with what our table says.

    python benchmarks/gpu/cudagraphs.py --phase A --state a.jsonl
    python benchmarks/gpu/cudagraphs.py --phase A --dry-run --only add,nonzero     # without a GPU

For each sample it is noted

- what CUDA does: captures, and then replays on other values as eager computes them or not; or refuses;
- what the table of `aot_cudagraphs.refusals` says of the operations that the sample runs on the device;
- what the simulator says of the same sample on the CPU, whose kernels may run other operations.

Entries are run in chunks, each in a process of its own: a failed assertion on the device leaves a process that can do
no more, and a failed capture may leave an allocator that can't (pytorch PR 180395), which is looked for after each
refusal. Of an entry with many samples, some are taken, the same ones each time. With ``--dry-run`` the simulator plays
CUDA; all else is as on a GPU.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

HERE = Path(__file__).parent
Row = dict[str, Any]
"""One sample: entry, index, what the device did, what table and simulator say."""

ACCEPTED, REFUSED = "accepts", "refuses"
WORN_OUT = 3
"""The status of a process that has written its rows and can capture no more."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--state", type=Path, default=Path("cudagraphs-a.jsonl"), help="results, one a line")
    parser.add_argument("--seconds", type=float, default=210, help="start no chunk after this (default 210)")
    parser.add_argument("--workers", type=int, default=4, help="processes at a time (default 4)")
    parser.add_argument("--chunk", type=int, default=30, help="entries a process (default 30)")
    parser.add_argument("--samples", type=int, default=8, help="at most, of an entry (default 8; 0: all)")
    parser.add_argument("--only", default="", help="operators, by name, separated by commas")
    parser.add_argument("--dry-run", action="store_true", help="let the simulator play CUDA")
    parser.add_argument("--run-entries", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.run_entries:
        return run_chunk(options.run_entries.split(","), options)
    return drive(options)


# --- the process that drives ---------------------------------------------------------------------------------


def drive(options: argparse.Namespace) -> int:
    import torch

    if not options.dry_run and not torch.cuda.is_available():
        print("No CUDA device here. --dry-run does everything but the CUDA calls.")
        return 2
    where = "the simulator plays CUDA" if options.dry_run else torch.cuda.get_device_name()
    print(f"torch {torch.__version__}, {where}")
    start = time.monotonic()
    known = {row["entry"] for row in read_rows(options.state)}
    wanted = [name for name in entry_names(options) if name not in known]
    print(f"{len(known)} entries known from {options.state}, {len(wanted)} to do", flush=True)
    # Taken by turns, so that a partial result is about all kinds of operators.
    count = max(1, -(-len(wanted) // options.chunk))
    chunks = [wanted[first::count] for first in range(count) if wanted[first::count]]
    printing = threading.Lock()

    def work(chunk: list[str]) -> None:
        left = options.seconds - (time.monotonic() - start)
        if left > 0:
            run_process(chunk, options, left)
            with printing:
                show(list(read_rows(options.state)), time.monotonic() - start)

    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(work, chunks))
    rows = list(read_rows(options.state))
    show(rows, time.monotonic() - start, details=True)
    missing = set(entry_names(options)) - {row["entry"] for row in rows}
    if missing:
        print(f"{len(missing)} entries not done: run again with --state {options.state}")
    return 0


def run_process(chunk: list[str], options: argparse.Namespace, seconds: float) -> None:
    """Run entries in a process of their own; go on in a new one behind an entry that ended it."""
    while chunk:
        command = [sys.executable, str(HERE / "cudagraphs.py"), "--phase", "A", "--state", str(options.state)]
        command += ["--samples", str(options.samples), "--run-entries", ",".join(chunk)]
        command += ["--dry-run"] if options.dry_run else []
        try:
            done = subprocess.run(
                command, timeout=max(5.0, seconds + 20), capture_output=True, text=True, check=False
            )
            problem = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
            if done.returncode == 0:
                return
        except subprocess.TimeoutExpired:
            return
        known = {row["entry"] for row in read_rows(options.state)}
        left = [name for name in chunk if name not in known]
        if not left:
            return
        if done.returncode == WORN_OUT:
            chunk = left
            continue
        # The first one that left no row is the one that ended the process.
        write_rows(options.state, [{"entry": left[0], "sample": 0, "device": "crash", "detail": problem[0]}])
        chunk = left[1:]


# --- a process that runs entries -----------------------------------------------------------------------------


def entry_names(options: argparse.Namespace) -> list[str]:
    return list(entries_by_name(options.dry_run, options.only))


def entries_by_name(dry_run: bool, only: str = "") -> dict[str, Any]:
    from aot_cudagraphs.op_database import entries

    found = entries("call", "in-place", device="cpu" if dry_run else "cuda")
    names = set(filter(None, only.split(",")))
    # A comma in a name would be taken for two names.
    return {entry.name.replace(",", ";"): entry for entry in found if not names or entry.info.name in names}


def run_chunk(names: Sequence[str], options: argparse.Namespace) -> int:
    entries = entries_by_name(options.dry_run)
    for name in names:
        rows = list(run_entry(name, entries[name], options))
        write_rows(
            options.state, rows or [{"entry": name, "sample": 0, "device": "not-run", "detail": "no samples"}]
        )
        if not options.dry_run and any(row["device"] != "exact" for row in rows) and not still_captures():
            return WORN_OUT
    return 0


def still_captures() -> bool:
    """Tell whether this process can go on: whether the plainest of captures works and replays."""
    import torch

    try:
        torch.cuda.synchronize()
        x = torch.ones(4, device="cuda")
        recording = DeviceEngine().record(lambda inputs: inputs[0] + 1, [x], None)
        x.fill_(2)
        recording.replay()
        return recording.outputs[0].tolist() == [3, 3, 3, 3]
    except Exception:
        return False


def run_entry(name: str, entry: Any, options: argparse.Namespace) -> Iterator[Row]:
    import torch

    from aot_cudagraphs.op_database import run_sample
    from aot_cudagraphs.simulator import SimulatedEngine

    device = "cpu" if options.dry_run else "cuda"
    engine = SimulatedEngine() if options.dry_run else DeviceEngine()
    torch.manual_seed(0)
    on_device = spread(list(entry.samples(device, torch.float32)), options.samples)
    torch.manual_seed(0)
    on_cpu = spread(list(entry.samples("cpu", torch.float32)), options.samples)
    for index, sample in on_device:
        table = asked(entry, sample, device)
        got = run_sample(engine, entry, sample)
        twin = dict(on_cpu).get(index)
        simulated = run_sample(SimulatedEngine(), entry, twin) if twin is not None else None
        yield {
            "entry": name,
            "sample": index,
            "device": got.status,
            "detail": got.detail,
            "table": table[0],
            "table_op": table[1],
            "simulator": None if simulated is None else simulated.status,
        }


def spread(samples: list[Any], count: int) -> list[tuple[int, Any]]:
    """Return at most ``count`` samples from beginning to end, with their indices."""
    numbered = list(enumerate(samples))
    if not count or len(numbered) <= count:
        return numbered
    return [numbered[place * (len(numbered) - 1) // max(1, count - 1)] for place in range(count)]


def asked(entry: Any, sample: Any, device: str) -> tuple[str, str]:
    """Run a sample, ask the table about each operation; return the first refusal's code and operation, or empty."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from aot_cudagraphs.op_database import copied_sample
    from aot_cudagraphs.refusals import on_cpu, refusal_of_call

    found: list[tuple[str, str]] = []

    class Asking(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            is_host = on_cpu if device == "cuda" else lambda tensor: False
            refusal = refusal_of_call(func, args, kwargs or {}, is_host=is_host)
            if refusal is not None:
                found.append((refusal.code, refusal.op))
            return func(*args, **(kwargs or {}))

    given, args, kwargs = copied_sample(sample)
    try:
        with torch.no_grad(), Asking():
            entry.function(given, *args, **kwargs)
    except Exception as error:
        # Eager fails as well then, which is what the row will say.
        found.append(("failed", type(error).__name__))
    return found[0] if found else ("", "")


class DeviceEngine:
    """Captures on the device with as little as that takes. No warm-up: the comparison has run the sample before."""

    name = "cuda, bare"

    def new_pool(self, device: Any) -> Any:
        return None

    def record(self, function: Any, inputs: list[Any], pool: Any, generators: Any = ()) -> DeviceRecording:
        import torch

        from aot_cudagraphs.errors import CaptureRefusedError
        from aot_cudagraphs.refusals import Refusal

        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        failure: Exception | None = None
        with torch.cuda.stream(stream):
            graph.capture_begin()
            try:
                outputs = torch.utils._pytree.tree_leaves(function(inputs))
            except Exception as error:
                failure = error
            try:
                graph.capture_end()
            except Exception as error:
                failure = failure or error
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        if failure is not None:
            text = str(failure).splitlines()[0] if str(failure) else type(failure).__name__
            raise CaptureRefusedError(Refusal("", f"device: {text[:120]}", text, ""))
        return DeviceRecording(graph, outputs)


class DeviceRecording:
    def __init__(self, graph: Any, outputs: list[Any]) -> None:
        self.graph = graph
        self.outputs = outputs

    def replay(self) -> None:
        import torch

        self.graph.replay()
        torch.cuda.synchronize()

    def release(self) -> None:
        self.outputs = []
        self.graph.reset()


# --- rows ----------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> Iterator[Row]:
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            # The last line of a process that was ended may be cut off.
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Append rows in one write, so that those of several processes do not mix."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def verdicts(row: Row) -> tuple[str, str, str] | None:
    """Return what CUDA, table and simulator say, or None where CUDA has not been asked."""
    device = {"exact": ACCEPTED, "mismatch": ACCEPTED, "refused": REFUSED}.get(row["device"])
    if device is None:
        return None
    table = REFUSED if row["table"] else ACCEPTED
    simulator = REFUSED if row["simulator"] == "refused" else ACCEPTED
    return device, table, simulator


def show(rows: list[Row], seconds: float, *, details: bool = False) -> None:
    judged = [(row, found) for row in rows if (found := verdicts(row)) is not None]
    status = collections.Counter(row["device"] for row in rows)
    entries = len({row["entry"] for row in rows})
    print(f"after {seconds:.0f} s: {entries} entries, {len(rows)} samples; on the device: {dict(status)}")
    for title, position in (("the table", 1), ("the simulator", 2)):
        cells = collections.Counter((found[position], found[0]) for _, found in judged)
        agreed = cells[ACCEPTED, ACCEPTED] + cells[REFUSED, REFUSED]
        share = 100 * agreed / len(judged) if judged else 0.0
        print(
            f"  {title}: agreement {share:.2f} %; accepts what CUDA refuses: {cells[ACCEPTED, REFUSED]}; "
            f"refuses what CUDA accepts: {cells[REFUSED, ACCEPTED]}; "
            f"both accept {cells[ACCEPTED, ACCEPTED]}, both refuse {cells[REFUSED, REFUSED]}",
            flush=True,
        )
    if details:
        show_details(judged, rows)


def show_details(judged: list[tuple[Row, tuple[str, str, str]]], rows: list[Row]) -> None:
    def listed(title: str, lines: Iterable[str]) -> None:
        for line, count in collections.Counter(lines).most_common():
            print(f"  {title}: {line} ({count} samples)")

    listed(
        "table accepts, CUDA refuses",
        (f"{row['entry']}: {row['detail']}" for row, found in judged if found[:2] == (REFUSED, ACCEPTED)),
    )
    listed(
        "table refuses, CUDA accepts",
        (f"{row['table_op']} [{row['table']}]" for row, found in judged if found[:2] == (ACCEPTED, REFUSED)),
    )
    listed(
        "captured, but another result at replay",
        (
            f"{row['entry']}: {row['detail']}"
            for row in rows
            if row["device"] == "mismatch" and not row["table"]
        ),
    )
    listed(
        "ended the process", (f"{row['entry']}: {row['detail']}" for row in rows if row["device"] == "crash")
    )
    listed("error", (f"{row['entry']}: {row['detail']}" for row in rows if row["device"] == "error"))
