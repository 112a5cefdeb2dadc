"""nvFuser on a real GPU: are its values right, and how fast is a step?

    python benchmarks/gpu/nvfuser.py                      # under four minutes, results as they come
    python benchmarks/gpu/nvfuser.py --phases speed       # correctness | speed
    python benchmarks/gpu/nvfuser.py --seconds 120
    python benchmarks/gpu/nvfuser.py --dry-run            # without a GPU: the whole script on an imaginary one

Runs from the source tree, without installing this repository and without downloading. Needs torch with CUDA and a wheel
of nvFuser. On torch 2.11 and 2.12, for which there is no wheel, the one for 2.10 lacks a single symbol; it is supplied
from a few lines of C++ if there is a compiler.

Correctness: samples of torch's op database, each as one fusion, in float32 and bfloat16, compared with eager on the
CPU. Speed: forward and backward, eager, Inductor and nvFuser in turn, round by round on the same inputs. Printed is
eager's time over each way's, as median and quartiles of the rounds: 2 is twice as fast as eager.

With ``--dry-run`` the script is run on the CUDA of the tests that launches nothing, with small tensors: nvFuser
compiles its kernels, and what is printed as values and times means nothing. It tells that the script is not broken.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parents[2]

MISSING_SYMBOL = """
#include <c10/util/Logging.h>
#include <new>
#include <type_traits>
// The constructor that nvFuser's wheel for torch 2.10 was linked against, made of the one that later ones have.
template <class Logger>
void construct(void* self, const char* file, int line, int severity, bool fatal) {
  if constexpr (std::is_constructible_v<Logger, c10::SourceLocation, int, bool>) {
    new (self) Logger(c10::SourceLocation{"", file, static_cast<uint32_t>(line)}, severity, fatal);
  } else if constexpr (std::is_constructible_v<Logger, c10::SourceLocation, int>) {
    new (self) Logger(c10::SourceLocation{"", file, static_cast<uint32_t>(line)}, severity);
  }
}
extern "C" void _ZN3c1013MessageLoggerC1EPKciib(void* self, const char* file, int line, int severity, bool fatal) {
  construct<c10::MessageLogger>(self, file, line, severity, fatal);
}
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=220, help="for all phases together (default 220)")
    parser.add_argument(
        "--phases", nargs="+", default=["correctness", "speed"], choices=["correctness", "speed"]
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="on an imaginary device, where no figure counts"
    )
    options = parser.parse_args()
    use_source_tree()
    if options.dry_run and "AOT_FAKE_SM" not in os.environ:
        import fake_cuda

        return fake_cuda.rerun(90)
    if not torch.cuda.is_available():
        print("No CUDA device here.")
        return 2
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}", flush=True)
    if not load_nvfuser():
        return 2
    end = time.monotonic() + options.seconds
    wrong = 0
    if "correctness" in options.phases:
        share = 0.4 if "speed" in options.phases else 1.0
        wrong = correctness(time.monotonic() + share * options.seconds, dry=options.dry_run)
    if "speed" in options.phases:
        speed(end, dry=options.dry_run)
    return int(wrong > 0)


def use_source_tree() -> None:
    packages = ROOT / "packages"
    sys.path[:0] = [str(packages / name / "src") for name in ("aot-core", "aot-partition")]
    sys.path.append(str(packages / "aot-partition" / "tests" / "nvfuser"))


def load_nvfuser() -> bool:
    """Import nvFuser, with the symbol that it lacks if it lacks one."""
    try:
        importlib.import_module("nvfuser_direct")
    except ImportError as error:
        if "MessageLogger" not in str(error) or not supply_symbol():
            print(f"nvFuser can't be imported: {error}")
            return False
        for name in [name for name in sys.modules if name.startswith("nvfuser_direct")]:
            del sys.modules[name]
        importlib.import_module("nvfuser_direct")

        print("nvFuser imported with a symbol of our own", flush=True)
    return True


def supply_symbol() -> bool:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        return False
    from torch.utils import cpp_extension

    folder = Path(tempfile.mkdtemp(prefix="nvfuser_symbol_"))
    (folder / "symbol.cpp").write_text(MISSING_SYMBOL)
    includes = [f"-I{path}" for path in (*cpp_extension.include_paths(), sysconfig.get_paths()["include"])]
    libraries = [f"-L{path}" for path in cpp_extension.library_paths()]
    command = [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", *includes, str(folder / "symbol.cpp")]
    command += [*libraries, "-lc10", "-o", str(folder / "symbol.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr[-2000:])
        return False
    ctypes.CDLL(str(folder / "symbol.so"), mode=ctypes.RTLD_GLOBAL)
    return True


# --- correctness ---------------------------------------------------------------------------------------------


def correctness(until: float, *, dry: bool) -> int:
    """Compare fusions of the op database with eager, until the time is over; return how many are wrong."""
    import random

    from op_database import entries, run_sample, samples_of

    from aot_partition.nvfuser import NvFuserExecutor

    executors = {"nvfuser": NvFuserExecutor()}
    chosen = random.Random(0).sample(entries(), len(entries()))
    counts = {"fusion": 0, "wrong": 0, "entries": 0}
    for entry in chosen:
        if time.monotonic() > until:
            break
        before = counts["fusion"]
        for dtype in (torch.float32, torch.bfloat16):
            for place, sample in enumerate(samples_of(entry, dtype)):
                if place == 3 or time.monotonic() > until:
                    break
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    outcome = run_sample(entry, sample, executors, device="cuda", compare=not dry)
                counts["fusion"] += outcome.status == "fusion"
                for fault in outcome.faults.values():
                    counts["wrong"] += 1
                    print(f"  {entry.name} {dtype} sample {place}: {fault[:300]}", flush=True)
        counts["entries"] += counts["fusion"] > before
        if counts["fusion"] // 100 != before // 100:
            print(
                f"  {counts['fusion']} samples of {counts['entries']} entries, {counts['wrong']} wrong",
                flush=True,
            )
    print(
        f"correctness: {counts['fusion']} samples of {counts['entries']} entries in fusions, {counts['wrong']} wrong"
    )
    return counts["wrong"]


# --- speed ---------------------------------------------------------------------------------------------------


class RMSNorm(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


class BiasGelu(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x + self.bias)


class Softmax(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x, -1)


class CrossEntropy(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, torch.arange(x.shape[0], device=x.device) % x.shape[1])


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = (
            self.qkv(self.before(x))
            .view(batch, length, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        mixed = F.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        x = x + F.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, width)), 0.1)
        return x + F.dropout(self.down(F.gelu(self.up(self.between(x)))), 0.1)


WORKLOADS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]] = {
    "softmax": (Softmax, (8192, 4096)),
    "layer norm": (lambda: torch.nn.LayerNorm(4096), (8192, 4096)),
    "RMS norm": (lambda: RMSNorm(4096), (8192, 4096)),
    "cross entropy": (CrossEntropy, (4096, 32000)),
    "bias + GELU": (lambda: BiasGelu(4096), (8192, 4096)),
    "GPT block": (lambda: Block(1024), (8, 1024, 1024)),
}


def speed(until: float, *, dry: bool) -> None:
    """Time all workloads, until the time is over."""
    from aot_partition.nvprims_backends import aot_nvprims_nvfuser

    if dry:
        stand_in_for_cublas()
    print("eager's time / each way's, forward and backward in bfloat16: median (quartiles)")
    for name, (make, shape) in WORKLOADS.items():
        if time.monotonic() > until:
            print("out of time")
            return
        torch.compiler.reset()
        model = make().cuda().bfloat16()
        if dry:
            shape = (*(min(size, 16) for size in shape[:-1]), shape[-1])
        x = torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        ways = {
            "eager": model,
            "inductor": torch.compile(model),
            "nvfuser": torch.compile(model, backend=aot_nvprims_nvfuser),
        }
        if dry:
            # Triton asks the driver for more than the imaginary one knows.
            del ways["inductor"]
        ready = {}
        for way, run in ways.items():
            try:
                for _ in range(3):
                    step(run, model, x)
                ready[way] = run
            except Exception as error:
                print(f"  {name}, {way}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        count = 2 if dry else 15
        rounds = [{way: timed(run, model, x) for way, run in ready.items()} for _ in range(count)]
        columns = []
        for way in ready:
            ratios = sorted(each["eager"] / each[way] for each in rounds)
            low, middle, high = statistics.quantiles(ratios, n=4)
            columns.append(f"{way} {middle:.2f} ({low:.2f}–{high:.2f})")
        milliseconds = statistics.median(each["eager"] for each in rounds)
        print(f"  {name:14} {milliseconds:7.3f} ms eager  {'  '.join(columns[1:])}", flush=True)


def stand_in_for_cublas() -> None:
    """Let matrix products give zeros: their library opens a real device."""
    library = torch.library.Library("aten", "IMPL")
    # Torch warns that its own kernels are replaced.
    warnings.filterwarnings("ignore", message=r"(?s).*Overriding a previously registered kernel")
    library.impl("mm", lambda a, b: a.new_zeros(a.shape[0], b.shape[1]), "CUDA")
    library.impl("addmm", lambda bias, a, b, **_: a.new_zeros(a.shape[0], b.shape[1]), "CUDA")
    KEPT.append(library)


KEPT: list[torch.library.Library] = []


def step(run: Callable[..., torch.Tensor], model: torch.nn.Module, x: torch.Tensor) -> None:
    model.zero_grad(set_to_none=True)
    x.grad = None
    out = run(x)
    (out.float().sum() if out.dim() else out).backward()


def timed(
    run: Callable[..., torch.Tensor], model: torch.nn.Module, x: torch.Tensor, steps: int = 10
) -> float:
    """Return milliseconds a step."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(steps):
        step(run, model, x)
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) / steps


if __name__ == "__main__":
    sys.exit(main())
