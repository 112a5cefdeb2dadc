"""One call that tells what a compiled function does, and leaves everything as it was.

::

    explain(model, x)
      │ 1  copies of model and arguments, sharing memory as the originals do
      │ 2  torch.compile of the copy, under a backend that looks at each graph; one call
      │ 3  random numbers, Dynamo's caches and counters put back
      ▼
    Explanation
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from aot_core import _compat
from aot_core._compat import pytree
from aot_core.aliasing.memory import geometry_of, has_memory
from aot_core.backend import Backend
from aot_core.debug import aot_core_eager
from aot_core.explaining.captured_graph import what
from aot_core.explaining.explained_backend import ExplainedBackend
from aot_core.explaining.explanation import Explanation, GraphBreak, OutputExplanation, StepAnalysis
from aot_core.explaining.isolated_copies import Copies, random_state_kept
from aot_core.explaining.memory_overlap import region_of, same_memory
from aot_core.explaining.tensor_names import TensorNames, path_name
from aot_core.settings import parse_settings

__all__ = ["explain", "explain_with"]


def explain(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Explanation:
    """Tell what a function or module does when it is compiled: to its inputs, to memory, in how many graphs.

    A copy is compiled and called once, in the grad mode of the caller: training graphs come of a call that needs
    gradients, inference graphs of one under ``no_grad``. Parameters, buffers, arguments, their gradients, the
    state of random numbers and whatever is compiled already stay as they are, also if the function raises.
    The copy needs as much memory as the model. Other side effects of the function, such as printing or appending
    to a list that is neither an argument nor holds tensors, do happen.

    Args:
        function: A module, a function, a method, or what ``torch.compile`` made of one.
        args: Its positional arguments.
        kwargs: Its keyword arguments, all of them: the choices of `explain` itself are those of `explain_with`.

    Returns:
        What was found; print it.

    Raises:
        UncopyableError: the function or an argument can't be copied.
        Exception: whatever the function raises.
    """
    return explain_with()(function, *args, **kwargs)


def explain_with(
    backend: str | Backend = aot_core_eager,
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    dynamic: bool | None = None,
    analyses: Mapping[str, StepAnalysis] | None = None,
) -> Callable[..., Explanation]:
    """Return `explain` for another backend or other options: ``explain_with("aot_x")(model, x)``.

    Args:
        backend: A backend made by `aot_core.aot_autograd`, or its name; by default ``aot_core_eager``.
        options: As for ``torch.compile``.
        mode: As for ``torch.compile``.
        dynamic: As for ``torch.compile``.
        analyses: Called with the forward and the backward of each training graph; what they find stands under their
            names in `GraphExplanation.analyses`. ``{"memory": aot_partition.simulate_step}`` is one.

    Raises:
        TypeError: a backend that was not made by `aot_core.aot_autograd`.
        UnknownOptionError, InvalidOptionValueError: see there.
    """
    found = _compat.find_backend(backend) if isinstance(backend, str) else backend
    if not isinstance(found, Backend):
        raise TypeError(
            f"explain_with expects a backend made by aot_core.aot_autograd, or its name, got {backend!r}. "
            "Of torch's own, explain_with('aot_core_eager') comes closest to 'aot_eager', and "
            "explain_with('aot_inductor_debug') to 'inductor'."
        )
    given_options = None if options is None else dict(options)
    settings = parse_settings(found.settings_type, options, backend=found.name).to_dict()

    def explain_call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Explanation:
        given = _compat.uncompiled(function)
        copies = Copies()
        copied_args, copied_kwargs = copies.copy((args, kwargs), what="an argument")
        copied = copies.function(given)
        names = TensorNames()
        names.add_call(copied, copied_args, copied_kwargs, copies.captured)
        explained = ExplainedBackend(found, names, analyses or {})
        with random_state_kept(), _compat.dynamo_kept() as dynamo:
            compiled = torch.compile(
                copied, backend=explained, options=given_options, mode=mode, dynamic=dynamic
            )
            result = compiled(*copied_args, **copied_kwargs)
        explanation = Explanation(
            subject=getattr(given, "__qualname__", type(given).__name__),
            backend=found.name,
            settings=settings,
            graphs=explained.explain_graphs(),
            breaks=tuple(
                GraphBreak(reason, None if place is None else f"{os.path.basename(place[0])}:{place[1]}")
                for reason, place in dynamo.breaks
            ),
            results=_explain_results(result, explained, names),
        )
        elsewhere = _Elsewhere.find(explanation, explained, copies, names)
        return dataclasses.replace(
            explanation, written_elsewhere=elsewhere.written, reshaped_elsewhere=elsewhere.reshaped
        )

    return explain_call


def _explain_results(
    result: Any, explained: ExplainedBackend, names: TensorNames
) -> tuple[OutputExplanation, ...]:
    places, leaves = [], []
    for path, leaf in pytree.tree_flatten_with_path(result)[0]:
        places.append(path_name("result", path))
        leaves.append(leaf)

    told = [_explain_result(leaf, explained, names) for leaf in leaves]

    def share(i: int, j: int) -> bool:
        if told[i].memory_of or told[j].memory_of:
            return not set(told[i].memory_of).isdisjoint(told[j].memory_of)
        by_graph = explained.share_memory(leaves[i], leaves[j])
        return same_memory(leaves[i], leaves[j]) if by_graph is None else by_graph

    return tuple(
        dataclasses.replace(
            result,
            name=place,
            shares_memory_with=tuple(places[j] for j in range(len(told)) if j != i and share(i, j)),
        )
        for i, (place, result) in enumerate(zip(places, told, strict=True))
    )


def _explain_result(leaf: Any, explained: ExplainedBackend, names: TensorNames) -> OutputExplanation:
    if not isinstance(leaf, torch.Tensor):
        return OutputExplanation("", "none" if leaf is None else "value", repr(leaf))
    if known := names.names_of(leaf):
        owners = dict.fromkeys([*known, *names.names_beside(leaf)])
        return OutputExplanation("", "input", what(leaf), leaf.requires_grad, tuple(owners))
    from_graph = explained.explain_result(leaf)
    if from_graph is None:
        # Made between graphs: there is nothing to tell but what can be seen.
        beside = tuple(names.names_beside(leaf))
        kind = "alias of input" if beside else "fresh"
        return OutputExplanation("", kind, what(leaf), leaf.requires_grad, beside)
    if from_graph.kind not in ("input", "alias of input"):
        return from_graph
    # A graph knows of its own inputs only.
    owner = names.tensor_named(from_graph.alias_of[0])
    owners = dict.fromkeys([*from_graph.alias_of, *([] if owner is None else names.names_beside(owner))])
    return dataclasses.replace(from_graph, alias_of=tuple(owners))


@dataclasses.dataclass(frozen=True)
class _Elsewhere:
    """What happened to tensors without a graph that tells of it, by name."""

    written: tuple[str, ...]
    reshaped: tuple[str, ...]

    @classmethod
    def find(
        cls, explanation: Explanation, explained: ExplainedBackend, copies: Copies, names: TensorNames
    ) -> _Elsewhere:
        inputs = [given for graph in explanation.graphs for given in graph.inputs]
        told_written = {given.name for given in inputs if given.writes}
        told_reshaped = {given.name for given in inputs if given.metadata_change is not None}
        written: list[str] = []
        reshaped: list[str] = []
        for original, copied in copies.tensors.values():
            known = names.names_of(copied)
            if not known or not has_memory(original):
                continue
            if told_reshaped.isdisjoint(known) and geometry_of(copied) != geometry_of(original):
                reshaped += known
            if told_written.isdisjoint(known) and (
                explained.writes_into(copied, region_of(original)) or _elements_differ(original, copied)
            ):
                written += known
        return cls(tuple(written), tuple(reshaped))


def _elements_differ(original: torch.Tensor, copied: torch.Tensor) -> bool:
    """Tell whether the elements where a tensor was are other than those of the original, bit by bit."""
    if not original.is_inference() and copied._version == 0:
        return False  # the common case, without a look at the elements
    if copied.untyped_storage().nbytes() < original.untyped_storage().nbytes():
        return True
    with torch.no_grad():
        size, stride, offset = geometry_of(original)
        now = copied.detach().as_strided(size, stride, offset)
        return not torch.equal(*(x.detach().contiguous().view(torch.uint8) for x in (original, now)))
