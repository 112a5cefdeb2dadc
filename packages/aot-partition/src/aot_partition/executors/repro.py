"""A file that reproduces what an executor did to one region."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import fx

from aot_partition import _compat

__all__ = ["write_repro"]

_TEMPLATE = '''"""Region {name} of executor {executor!r}: compiled, run on random inputs and compared with ATen."""

from math import inf, nan

import torch
from torch import device
from torch.fx.experimental.proxy_tensor import make_fx

from aot_partition.executors import find_executor


{function}


def random(size, stride, dtype, device):
    elements = 1 + sum((n - 1) * step for n, step in zip(size, stride)) if all(size) else 0
    if dtype.is_floating_point:
        flat = torch.randn(elements, device=device).to(dtype)
    else:
        flat = torch.randint(0, 2, (elements,), device=device).to(dtype)
    return flat.as_strided(size, stride)


def make_inputs():
    torch.manual_seed(0)
    return [
{inputs}
    ]


if __name__ == "__main__":
    subgraph = make_fx(region, tracing_mode="fake")(*make_inputs())
    placeholders = [node for node in subgraph.graph.nodes if node.op == "placeholder"]
    executor = find_executor({executor!r})
    print(executor.name, executor.availability())
    run = executor.compile_region(subgraph, [node.meta.get("val") for node in placeholders])
    for got, expected in zip(run(make_inputs()), region(*make_inputs()), strict=True):
        torch.testing.assert_close(got, expected)
    print("same as ATen")
'''


def write_repro(subgraph: fx.GraphModule, name: str, *, executor: str, folder: str) -> Path:
    """Write a program that compiles a region and compares it with ATen on random inputs.

    Args:
        subgraph: The region as a graph of its own. Symbolic sizes become those that tracing saw.
        name: Its name.
        executor: Name of the executor.
        folder: Where to write; it is made if it does not exist.

    Returns:
        The file.
    """
    inputs = [node.meta.get("val") for node in subgraph.graph.nodes if node.op == "placeholder"]
    text = _TEMPLATE.format(
        name=name,
        executor=executor,
        function=_function(subgraph),
        inputs="\n".join(f"        {_made(value)}," for value in inputs),
    )
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = Path(folder) / f"{name}_{digest}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _function(subgraph: fx.GraphModule) -> str:
    lines = subgraph.graph.python_code("self").src.strip().splitlines()
    while not lines[0].startswith("def "):
        del lines[0]
    lines[0] = (
        lines[0].replace("def forward(self, ", "def region(").replace("def forward(self", "def region(")
    )
    return "\n".join(lines)


def _made(value: Any) -> str:
    """Return the code that makes an input like a traced value."""
    if not isinstance(value, torch.Tensor):
        return repr(_compat.size_hint(value))
    size = tuple(_compat.size_hint(n) for n in value.shape)
    stride = tuple(_compat.size_hint(n) for n in value.stride())
    return f"random({size}, {stride}, {value.dtype}, {str(value.device)!r})"
