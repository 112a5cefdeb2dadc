"""`ts_compile`: a compiler of traced graphs whose result runs in TorchScript's interpreter, outside Python."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from torch import fx

import aot_core
from aot_core.protocol import Decision
from aot_ts_fusion import _compat
from aot_ts_fusion.cut import compile_program
from aot_ts_fusion.errors import UnknownFuserError
from aot_ts_fusion.program import Program

__all__ = ["FUSERS", "ts_compile"]

FUSERS = ("fuser0", "fuser1", "fuser2", "fuser3")
"""TorchScript's fusers, by the names that ``torch.jit.fuser`` gives them."""

_numbers = itertools.count()


def ts_compile(gm: fx.GraphModule, example_inputs: Sequence[Any], *, fuser: str | None = None) -> Program:
    """Compile a graph of ATen operations to TorchScript.

    The graph is translated node by node, each to the overload that was traced, without `torch.jit.script` or any other
    deprecated call. What TorchScript can't express runs in FX between two TorchScript functions, and is recorded.

    Args:
        gm: Graph as AOTAutograd or ``make_fx`` traces it. Not changed. Its own tensors are read at each call.
        example_inputs: Tensors, real or fake, and numbers, also symbolic ones: one for each placeholder.
        fuser: ``"fuser1"`` has TorchScript profile the graph in its first calls and fuse it with NNC, as within
            ``torch.jit.fuser("fuser1")``; likewise ``"fuser0"``, ``"fuser2"`` and ``"fuser3"``. None honours a
            ``torch.jit.fuser(...)`` that is in force now, and otherwise runs the graph as it is.

    Returns:
        A boxed callable: it takes one list of inputs, empties it, and returns what the graph returns. It frees each
        input after its last use. Its `decisions` say what runs in FX, and why.

    Raises:
        UnknownFuserError: ``fuser`` is none of these names.
    """
    if fuser is not None and fuser not in FUSERS:
        raise UnknownFuserError(f"ts_compile expects fuser to be one of {', '.join(FUSERS)}, got {fuser!r}.")
    ambient = _compat.ambient_fuser() if fuser is None else None
    compilation = _compilation()
    stage = "torchscript" if compilation is None else compilation.stage
    program = compile_program(
        gm, example_inputs, fuser=fuser or ambient, name=f"graph_{next(_numbers)}", stage=stage
    )
    if compilation is not None:
        for decision in (*_told(stage, fuser, ambient), *program.decisions):
            compilation.decide(decision)
    return program


def _compilation() -> aot_core.Compilation | None:
    """Return the compile under way, if the function is called by a backend's."""
    try:
        return aot_core.current_compilation()
    except RuntimeError:
        return None


def _told(stage: str, fuser: str | None, ambient: str | None) -> list[Decision]:
    found = []
    if fuser is not None:
        found.append(Decision(stage, "graph", "fuse", "torchscript-fuser", f"{fuser}, by the options"))
    if ambient is not None:
        found.append(
            Decision(stage, "graph", "fuse", "torchscript-fuser", f"{ambient}, by torch.jit.fuser in force")
        )
    if not _compat.keeps_error_types():
        found.append(
            Decision(
                stage,
                "graph",
                "lose",
                "error-types",
                "this torch has no switch to let exceptions out of TorchScript: they come as RuntimeError",
            )
        )
    return found
