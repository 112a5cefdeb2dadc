"""What torch's own backends compile, made right around AOTAutograd: before it, after it, and at each call.

::

    graph ──> parts of a split made one by one ──> outputs that are one tensor with another taken out ──> AOTAutograd
                                                                                                             │
    outputs <── put back <── as compiled, or uncompiled where inputs share memory otherwise <── a call <─────┘

The same is done for this package's backends in `aot_core.aliasing`, which compiles another variant where this runs the
graph as it is: torch's backends can be called again only by Dynamo.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from aot_core import _compat
from aot_core.__about__ import __version__
from aot_core.aliasing.apart import watch_apart
from aot_core.aliasing.effects import find_effects
from aot_core.aliasing.memory import has_memory
from aot_core.aliasing.same_tensors import are_noted, find_same_tensors
from aot_core.aliasing.signature import read_signature
from aot_core.aliasing.single_views import split_returned_views
from aot_core.analysis.returned_writes import keep_returned_writes_

__all__ = ["minding_aliases"]

log = logging.getLogger(__name__)


def minding_aliases(compile_graph: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch's ``aot_module_simplified``, such that aliases that AOTAutograd does not tell are minded.

    Only looks at graphs whose nodes carry fake tensors, as Dynamo's do.
    """

    @functools.wraps(compile_graph)
    def run(graph: Any, inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        if not (isinstance(graph, fx.GraphModule) and are_noted(graph)):
            return compile_graph(graph, inputs, *args, **kwargs)  # type: ignore[no-any-return]
        gm = split_returned_views(graph)
        same = find_same_tensors(gm, None)
        if same:
            gm = same.removed_from(gm)
        _compat.forget_metadata()
        with _compat.inductor_pass(keep_returned_writes_, uuid=f"aot_core.analysis-{__version__}"):
            compiled: Callable[..., Any] = compile_graph(gm, inputs, *args, **kwargs)
        changed = _compat.changed_inputs(gm, len(inputs))
        if changed is None:  # AOTAutograd merged inputs, and notes what changes of those
            changed = frozenset(find_effects(graph, inputs).changed)
        call = same.put_back(compiled) if same else compiled
        if changed:
            call = _for_this_sharing(call, graph, inputs, changed)
        return call if call is compiled else functools.wraps(compiled)(call)

    return run


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
