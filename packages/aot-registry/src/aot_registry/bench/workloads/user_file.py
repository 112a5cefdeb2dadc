"""``FILE.py:build``: a model of the user's own.

The file is executed as a module of its own, with its folder first on ``sys.path`` as for a script, and the
function is called without arguments, with torch's and Python's random numbers seeded::

    def build():
        model = torch.nn.Linear(4, 1)
        batches = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(10)]
        return model, batches, torch.nn.functional.mse_loss

- ``model`` is a `torch.nn.Module` with something to train that `copy.deepcopy` can copy.
- ``batches`` is a list, or an iterable that ends, of pairs ``(inputs, target)``. ``inputs`` is a tensor, a
  tuple of positional arguments or a dictionary of keyword arguments of the model.
- ``loss_fn(output, target)`` returns a tensor with one element.

Neither model nor loss may write into a batch: all contenders are given the same tensors.

The model is trained by AdamW with a learning rate of 1e-3, in the mode (``train()`` or ``eval()``) it comes in.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aot_registry.bench.errors import WorkloadBuildError, WorkloadContractError, WorkloadFileError
from aot_registry.errors import suggest

if TYPE_CHECKING:
    from aot_registry.bench.workloads.workload import Workload

__all__ = ["MAX_BATCHES", "build", "parse_reference"]

MAX_BATCHES = 10_000
"""Batches are held in memory together; an iterable still going after this many is taken for endless."""

CONTRACT = "build() must return (model, batches, loss_fn)"


def parse_reference(reference: str) -> tuple[Path, str]:
    """Split ``FILE.py:function`` into an existing file and a function's name.

    Raises:
        WorkloadFileError: there is no such file, or no function is named.
    """
    file, colon, function = reference.rpartition(":")
    if not colon or not function.isidentifier():
        raise WorkloadFileError(
            f"{reference!r} names no function. Expected FILE.py:build, where build() returns "
            "(model, batches, loss_fn)."
        )
    path = Path(file)
    if not path.is_file():
        neighbours = [str(path.with_name(other.name)) for other in path.parent.glob("*.py")]
        raise WorkloadFileError(
            f"There is no file {file!r} (in {reference!r}), looking from {Path.cwd()}."
            f"{suggest(str(path), neighbours)}"
        )
    return path, function


def build(reference: str) -> Workload:
    """Call the user's function and check what it returns.

    Raises:
        WorkloadFileError: no such file or function, or the file raises when executed.
        WorkloadBuildError: the function raises, or iterating over its batches does.
        WorkloadContractError: it returns something else than a model, batches and a loss function.
    """
    import torch

    from aot_registry.bench.workloads.workload import Workload

    path, function = parse_reference(reference)
    build_function = _load_function(path, function)
    try:
        returned = build_function()
    except Exception as error:
        raise WorkloadBuildError(
            f"{reference} raised {type(error).__name__}: {error}. Call {function}() on its own to debug it."
        ) from error
    model, batches, loss_fn = _check(returned, reference)
    return Workload(
        name=reference,
        model=model,
        batches=batches,
        loss_fn=loss_fn,
        make_optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    )


def _load_function(path: Path, function: str) -> Any:
    # A name that no import statement can spell: the file must not shadow an installed module.
    spec = importlib.util.spec_from_file_location(f"<aot bench {path}>", path.resolve())
    if spec is None or spec.loader is None:
        raise WorkloadFileError(f"{str(path)!r} is not a Python file. Expected FILE.py:{function}.")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickling look a class's module up here.
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise WorkloadFileError(
            f"Executing {str(path)!r} raised {type(error).__name__}: {error}. Run `python {path}` to debug it."
        ) from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    found = getattr(module, function, None)
    if not callable(found):
        functions = [name for name, value in vars(module).items() if callable(value)]
        what = (
            "has no function" if found is None else f"holds a {type(found).__name__}, not a function, named"
        )
        raise WorkloadFileError(f"{str(path)!r} {what} {function!r}.{suggest(function, functions)}")
    return found


def _check(returned: Any, reference: str) -> tuple[Any, list[tuple[Any, Any]], Any]:
    import torch

    def broken(problem: str) -> WorkloadContractError:
        return WorkloadContractError(f"{reference}: {CONTRACT}; {problem}.")

    if not isinstance(returned, (tuple, list)) or len(returned) != 3:
        size = f" of {len(returned)}" if isinstance(returned, (tuple, list)) else ""
        raise broken(f"got a {type(returned).__name__}{size}")
    model, batches, loss_fn = returned
    if not isinstance(model, torch.nn.Module):
        raise broken(f"model must be a torch.nn.Module, got a {type(model).__name__}")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise broken("model has no parameter with requires_grad=True, so there is nothing to train")
    if not callable(loss_fn):
        raise broken(f"loss_fn must be callable as loss_fn(output, target), got a {type(loss_fn).__name__}")
    if not isinstance(batches, Iterable) or isinstance(batches, (str, dict, torch.Tensor)):
        raise broken(f"batches must be a list of (inputs, target), got a {type(batches).__name__}")
    try:
        pairs = list(itertools.islice(batches, MAX_BATCHES + 1))
    except Exception as error:
        raise WorkloadBuildError(
            f"Iterating over the batches of {reference} raised {type(error).__name__}: {error}. "
            "Return a list to debug it inside build()."
        ) from error
    if not pairs:
        raise broken("batches is empty; at least one (inputs, target) is needed")
    if len(pairs) > MAX_BATCHES:
        raise broken(f"batches goes on after {MAX_BATCHES} items; cut it with itertools.islice(batches, 100)")
    for index, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise broken(f"batches[{index}] must be (inputs, target), got a {type(pair).__name__}")
        if not isinstance(pair[0], (torch.Tensor, tuple, dict)):
            raise broken(
                f"inputs of batches[{index}] must be a tensor, a tuple of positional arguments or a dict of "
                f"keyword arguments, got a {type(pair[0]).__name__}"
            )
    try:
        copy.deepcopy(model)
    except Exception as error:
        raise WorkloadContractError(
            f"{reference}: {CONTRACT}; model must survive copy.deepcopy, because each contender trains a copy, "
            f"but that raised {type(error).__name__}: {error}. Keep only parameters, buffers and plain data in "
            "its attributes."
        ) from error
    return model, [(inputs, target) for inputs, target in pairs], loss_fn
