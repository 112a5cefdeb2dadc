"""One file that shows a fault by itself: a captured graph, random tensors like those it was called with, a comparison.

The graph is the whole one that Dynamo captured, not the piece around the wrong node: what leads to the fault (another
operation fused with it, a value that is saved) may lie outside that piece. Weights and inputs are drawn with the sizes,
strides, types, ranges, means and deviations of the originals; none of the user's numbers is in the file.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import keyword
import re
import runpy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import fx

import aot_registry
from aot_core.errors import AotError
from aot_registry import _compat
from aot_registry.bisecting import harness
from aot_registry.bisecting.result import Culprit
from aot_registry.bisecting.stages import Bench, Fault
from aot_registry.bisecting.tolerance import floors
from aot_registry.bisecting.trial import Captured, Limits

__all__ = ["write"]

SEEDS = 5
"""Random weights may hide a fault; this many draws are tried."""

TEMPLATE = '''\
"""Shows a fault of a torch.compile backend. Run it: it ends with 1 if the fault shows, with 0 if not.

Backend: {name}
Torch:   {torch_version}
Stage:   {stage}
Where:   {culprit}
What:    {failure}
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any

import torch
from torch import device

{setup}
SEED = {seed}
RELATIVE = {relative}  # an error up to this part of the largest value needs no explanation
HELD = {held}  # inputs of the graph that are parameters and buffers of the model

{graph}

def make_inputs() -> list[Any]:
{inputs}


{harness}

if __name__ == "__main__":
    with torch.set_grad_enabled({grad_enabled}):
        sys.exit(check(Graph(), make_inputs, HELD, BACKEND, SEED, RELATIVE))
'''


def write(
    bench: Bench,
    fault: Fault,
    culprit: Culprit,
    backend: str | Callable[..., Any],
    path: Path,
    *,
    name: str,
) -> bool | None:
    """Write the file and run it.

    Args:
        bench: Runs the model, to see what the graph is called with.
        fault: What it is to show.
        culprit: In which graph.
        backend: As the user gave it.
        path: The file; it is replaced.
        name: What the backend is called.

    Returns:
        Whether running it shows the fault. None, and no file, if there is no graph, or one that can't be written as
        code.
    """
    if culprit.graph is None:
        return None
    _, trial = bench.try_stage("dynamo", Limits(), keep_values=True)
    if culprit.graph >= len(trial.captured) or trial.captured[culprit.graph].inputs is None:
        return None
    captured = trial.captured[culprit.graph]
    code = _graph_code(captured.gm)
    inputs = _inputs_code(captured)
    if code is None or inputs is None:
        return None
    floating = [
        x.dtype for x in captured.inputs or [] if isinstance(x, torch.Tensor) and x.is_floating_point()
    ]
    relative = max((floors(dtype)[1] for dtype in floating), default=0.0)
    for seed in range(SEEDS):
        path.write_text(
            TEMPLATE.format(
                name=name,
                torch_version=torch.__version__,
                stage=fault.stage,
                culprit=_on_one_line(str(culprit)),
                failure=_on_one_line(str(fault.failures[0])),
                setup=_setup_code(backend, bench.backend, bench.options),
                seed=seed,
                relative=relative,
                held=captured.held,
                graph=code,
                inputs=inputs,
                harness=_harness_code(),
                grad_enabled=torch.is_grad_enabled(),
            ),
            encoding="utf-8",
        )
        if _shows(path):
            return True
    return False


def _shows(path: Path) -> bool:
    """Run the file here, as a program of its own would."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            return end.code == 1
        except Exception:
            return False
    return False


def _harness_code() -> str:
    source = inspect.getsource(harness)
    return (
        source.partition("# --- copied from here ---\n")[2].partition("# --- to here ---")[0].strip() + "\n"
    )


# --- the backend --------------------------------------------------------------------------------------------


def _setup_code(backend: str | Callable[..., Any], resolved: Callable[..., Any], options: Any) -> str:
    lines = [_compat.EAGER_RANDOM_NUMBERS, ""]
    if isinstance(backend, str) and ":" not in backend:
        lines.append(f"BACKEND = {backend!r}")
    else:
        lines += _import_code(resolved, backend if isinstance(backend, str) else None)
    if options:
        lines += [
            f"OPTIONS = {dict(options)!r}",
            "",
            "",
            "def with_options(gm, inputs, backend=BACKEND):",
            "    call = torch._dynamo.lookup_backend(backend) if isinstance(backend, str) else backend",
            "    return call(gm, inputs, options=OPTIONS)",
            "",
            "",
            "BACKEND = with_options",
        ]
    return "\n".join(lines)


def _import_code(backend: Any, reference: str | None) -> list[str]:
    name = getattr(backend, "name", None)
    with contextlib.suppress(AotError):
        if isinstance(name, str) and aot_registry.get_backend(name) is backend:
            return [f"BACKEND = {name!r}"]
    found = _place_of(backend) if reference is None else tuple(reference.split(":"))
    if found is None:
        return [
            "BACKEND = None  # the backend lies in no module: put it here",
            'assert BACKEND is not None, "set BACKEND"',
        ]
    module, attribute = found
    lines = []
    file = getattr(sys.modules[module], "__file__", None)
    if file is not None and "site-packages" not in file:
        root = Path(file).resolve().parents[module.count(".") + (Path(file).name == "__init__.py")]
        lines.append(f"sys.path.insert(0, {str(root)!r})")
    if module == "__main__" and file is not None:
        module = Path(file).stem
    return [*lines, f"from {module} import {attribute} as BACKEND"]


def _place_of(backend: Any) -> tuple[str, str] | None:
    """Return module and name under which a backend can be imported."""
    for module_name, module in list(sys.modules.items()):
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict) or keyword.iskeyword(module_name):
            continue
        for attribute, value in list(names.items()):
            if value is backend and all(part.isidentifier() for part in module_name.split(".")):
                return module_name, attribute
    return None


# --- the graph ----------------------------------------------------------------------------------------------


def _graph_code(gm: fx.GraphModule, name: str = "Graph") -> str | None:
    """Return a class for a graph, after those of the graphs inside it. None if something in it has no code."""
    pieces, body = [], []
    for child_name, child in gm.named_children():
        if not isinstance(child, fx.GraphModule):
            return None
        child_class = f"{name}_{child_name}"
        piece = _graph_code(child, child_class)
        if piece is None:
            return None
        pieces.append(piece)
        body.append(f"self.{child_name} = {child_class}()")
    tensors = [*gm.named_parameters(recurse=False), *gm.named_buffers(recurse=False)]
    for tensor_name, tensor in tensors:
        body.append(f"self.register_buffer({tensor_name!r}, {_tensor_code(tensor)})")
    code = gm.graph.python_code("self")
    imports = _imports_of(code.globals)
    if imports is None:
        return None
    # The annotations that are comments for a reader of graphs name types that the file lacks.
    source = re.sub(
        r"(?m)^def forward\((.*)\)(?: -> .*)?:$", lambda m: f"def forward({_bare(m[1])}):", code.src
    )
    lines = [*imports, f"class {name}(torch.nn.Module):"]
    if body:
        lines += ["    def __init__(self) -> None:", "        super().__init__()"]
        lines += [*(f"        {line}" for line in body), ""]
    lines += [f"    {line}".rstrip() for line in source.strip().splitlines()]
    return "\n".join([*pieces, *lines, ""])


def _bare(parameters: str) -> str:
    """Return parameters without annotations: ``self, x : Tensor, y: "f32[2, 3]"`` → ``self, x, y``."""
    without_texts = re.sub(r"\"[^\"]*\"|\[[^\]]*\]", "", parameters)
    return ", ".join(re.split("[:=]", part)[0].strip() for part in without_texts.split(","))


def _imports_of(names: dict[str, Any]) -> list[str] | None:
    """Return import statements for the names that a graph's code takes for given."""
    lines = []
    for name, value in names.items():
        if name in ("torch", "inf", "nan", "device", "NoneType", "fx_pytree", "pytree"):
            lines += ["NoneType = type(None)"] if name == "NoneType" else []
            continue
        module, qualified = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if isinstance(value, type(sys)):
            lines.append(f"import {value.__name__} as {name}")
        elif module and qualified and "." not in qualified and _importable(module, qualified, value):
            lines.append(f"from {module} import {qualified} as {name}")
        else:
            return None
    return [*lines, "", ""] if lines else []


def _importable(module: str, attribute: str, value: Any) -> bool:
    try:
        return getattr(importlib.import_module(module), attribute, None) is value
    except Exception:
        return False


# --- its inputs ---------------------------------------------------------------------------------------------


def _inputs_code(captured: Captured) -> str | None:
    """Return the body of a function that draws inputs like those that a graph was called with."""
    lines: list[str] = []
    owners: dict[int, str] = {}
    names = []
    for index, value in enumerate(captured.inputs or []):
        name = f"x{index}"
        names.append(name)
        memory = captured.memory[index]
        if isinstance(value, torch.Tensor):
            shared = memory is not None and captured.memory.count(memory) > 1
            if shared and memory is not None and memory not in owners:
                owners[memory] = f"memory{len(owners)}"
                lines.append(f"    {owners[memory]} = {_memory_code(value)}")
            lines.append(f"    {name} = {_tensor_code(value, owners[memory] if shared and memory else None)}")
        elif isinstance(value, (int, float, bool, type(None))):
            lines.append(f"    {name} = {value!r}")
        elif isinstance(value, (torch.SymInt, torch.SymFloat)):
            lines.append(f"    {name} = {int(value) if isinstance(value, torch.SymInt) else float(value)}")
        else:
            return None
    return "\n".join([*lines, f"    return [{', '.join(names)}]"])


def _memory_code(tensor: torch.Tensor) -> str:
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    flat = tensor.detach().as_strided((elements,), (1,), 0)
    return _tensor_code(flat)


def _tensor_code(tensor: torch.Tensor, memory: str | None = None) -> str:
    arguments = [
        f"{tuple(tensor.size())}",
        f"{tuple(tensor.stride())}",
        f"{tensor.dtype}",
        f"spread={_spread(tensor)}",
    ]
    if memory is not None:
        arguments += [f"offset={tensor.storage_offset()}", f"memory={memory}"]
    if tensor.requires_grad:
        arguments.append("requires_grad=True")
    if tensor.device.type != "cpu":
        arguments.append(f"device={str(tensor.device)!r}")
    return f"random_tensor({', '.join(arguments)})"


def _spread(tensor: torch.Tensor) -> tuple[float, float, float, float]:
    """Return lowest and highest value, mean and standard deviation."""
    values = tensor.detach().reshape(-1)
    values = values.real if values.is_complex() else values
    values = values.to(torch.float64)
    values = values[torch.isfinite(values)]
    if not values.numel():
        return (0.0, 0.0, 0.0, 0.0)
    numbers = values.min(), values.max(), values.mean(), values.std(correction=0)
    low, high, mean, deviation = (float(f"{float(number):.4g}") for number in numbers)
    if not (tensor.is_floating_point() or tensor.is_complex()):
        low, high = float(values.min()), float(values.max())
    return low, high, mean, deviation


def _on_one_line(text: str) -> str:
    text = " ".join(text.split()).replace("\\", "/").replace('"', "'")
    return text if len(text) <= 100 else f"{text[:100]}…"
