"""What torch's own backends compile, made right around AOTAutograd: before it, after it, and at each call.

::

    graph ──> prepared ──> AOTAutograd ──> partition: what is saved is kept ──> Inductor: what is returned is kept
                                                                                    │
    outputs <── finished <── a call: as compiled, or uncompiled where inputs share memory otherwise

This package's own backends prepare graphs in the same way (`aot_core.aliasing`), and compile a variant where this runs
the graph as it is: torch's can be called again only by Dynamo.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aot_core import _compat
from aot_core.__about__ import __version__
from aot_core.aliasing.apart import watch_apart
from aot_core.aliasing.effects import find_effects
from aot_core.aliasing.memory import has_memory
from aot_core.aliasing.preparation import prepare
from aot_core.aliasing.same_tensors import are_noted
from aot_core.aliasing.signature import read_signature
from aot_core.analysis.kept_copies import keeping_copies
from aot_core.analysis.returned_views import keep_returned_strides_
from aot_core.analysis.returned_writes import keep_returned_writes_

__all__ = ["minding_aliases"]

log = logging.getLogger(__name__)


def minding_aliases(compile_graph: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch's ``aot_module_simplified``, such that aliases that AOTAutograd does not tell are minded.

    Only looks at graphs whose nodes carry fake tensors, as Dynamo's do.
    """

    signature = inspect.signature(compile_graph)

    @functools.wraps(compile_graph)
    def run(graph: Any, inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        if not (isinstance(graph, fx.GraphModule) and are_noted(graph)):
            return compile_graph(graph, inputs, *args, **kwargs)  # type: ignore[no-any-return]
        prepared = prepare(graph, inputs, subject="A graph")
        call = signature.bind(prepared.gm, inputs, *args, **kwargs)
        call.apply_defaults()
        call.arguments["partition_fn"] = keeping_copies(call.arguments["partition_fn"])
        _compat.forget_metadata()
        with _compat.inductor_pass(_keep_outputs_, uuid=f"aot_core.analysis-{__version__}"):
            compiled: Callable[..., Any] = compile_graph(*call.args, **call.kwargs)
        changed = _compat.changed_inputs(prepared.gm, len(inputs))
        if changed is None:  # AOTAutograd merged inputs, and notes what changes of those
            changed = frozenset((prepared.effects or find_effects(graph, inputs)).changed)
        unrecorded = prepared.effects.unrecorded if prepared.effects and torch.is_grad_enabled() else {}
        finished = prepared.finish(compiled, unrecorded)
        if changed:
            finished = _for_this_sharing(finished, graph, inputs, changed)
        return finished if finished is compiled else functools.wraps(compiled)(finished)

    return run


def _keep_outputs_(graph: fx.Graph) -> None:
    keep_returned_writes_(graph)
    keep_returned_strides_(graph)


def _for_this_sharing(
    compiled: Callable[..., Any], graph: fx.GraphModule, inputs: Sequence[Any], changed: frozenset[int]
) -> Callable[..., Any]:
    """Return what runs ``compiled`` on inputs that share memory as these do, and the graph itself on others."""
    watched = [i for i, x in enumerate(inputs) if has_memory(x)]
    changed = changed.intersection(watched)
    if any(_compat.is_opaque(inputs[i]) for i in watched):
        return compiled
    signature = read_signature(inputs, watched, changed)
    if any(_compat.is_symbolic(inputs[i]) for group in signature for i in group.positions):
        return compiled  # Dynamo guards how inputs of symbolic sizes share memory.
    lie_apart = watch_apart(watched, changed, len(inputs))
    warned = False

    def call(*inputs: Any) -> Any:
        nonlocal warned
        if signature == (() if lie_apart(inputs) else read_signature(inputs, watched, changed)):
            return compiled(*inputs)
        if not warned:
            warned = True
            log.warning(
                "a compiled graph that writes its inputs was called with inputs that share memory in another way than "
                "those it was compiled for: it runs uncompiled on such inputs"
            )
        return graph(*inputs)

    return call
