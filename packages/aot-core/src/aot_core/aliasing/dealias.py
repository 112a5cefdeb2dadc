"""Inputs that share memory: AOTAutograd never sees them.

A graph that changes no input may be called with any sharing. One that does is compiled once for each alias
signature that it is called with::

    call(inputs)
      │ addresses of the inputs' memory, all different?  ──yes──> the plain variant
      │ no: alias signature
      ▼
    variant for that signature: bases gathered, merged graph run, the caller's tensors restored
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aot_core import _compat
from aot_core.aliasing.apart import watch_apart
from aot_core.aliasing.effects import Effects, fake_like, find_effects
from aot_core.aliasing.memory import geometry_of, has_memory, storage_address
from aot_core.aliasing.merge import merge_aliases
from aot_core.aliasing.preparation import prepare
from aot_core.aliasing.refusals import refuse_opaque_views
from aot_core.aliasing.signature import AliasSignature, read_signature
from aot_core.compilation import Compilation
from aot_core.errors import UnsupportedAliasingError
from aot_core.graph_copy import copy_graph
from aot_core.protocol import Decision

__all__ = ["MAX_VARIANTS", "CompileGraph", "compile_without_aliases"]

MAX_VARIANTS = 16
"""Variants kept for one graph. A loop whose inputs overlap elsewhere in each call would fill the memory."""

CompileGraph = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
"""Compiles a graph whose inputs share no memory, for these example inputs."""


def compile_without_aliases(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    compile_graph: CompileGraph,
    compilation: Compilation,
) -> Callable[..., Any]:
    """Compile a graph so that it is right for inputs that share memory.

    Args:
        gm: A graph as Dynamo captured it. Not changed.
        example_inputs: Its inputs. Not kept.
        compile_graph: Compiles a graph whose inputs share none.
        compilation: The compile that this is a part of.

    Returns:
        A function of the inputs, one by one.

    Raises:
        UnsupportedAliasingError: the example inputs share memory in a way that can't be supported. A call
            whose inputs do raises it as well.
    """
    prepared = prepare(gm, example_inputs, subject=compilation.subject)
    watched = [i for i, x in enumerate(example_inputs) if has_memory(x)]
    variants = _Variants(prepared.gm, watched, compile_graph, compilation, prepared.effects)
    compiled = variants.compile(example_inputs)
    return prepared.finish(compiled, variants.unrecorded_views(example_inputs))


def _with_constants(
    gm: fx.GraphModule, inputs: Sequence[Any]
) -> tuple[fx.GraphModule, Callable[[Sequence[Any]], list[Any]]]:
    """Return a graph with the numbers among its inputs written into it, and what takes the other inputs.

    A variant is for these numbers only. AOTAutograd would make symbols of them.
    """
    numbers = {i: x for i, x in enumerate(inputs) if isinstance(x, (int, float))}
    if not numbers:
        return gm, list

    def placeholders(graph: fx.Graph) -> dict[fx.Node, Any]:
        nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
        return {
            node: numbers[i] if i in numbers else graph.placeholder(node.name) for i, node in enumerate(nodes)
        }

    others = [i for i in range(len(inputs)) if i not in numbers]
    return copy_graph(gm, inputs=placeholders), lambda given: [given[i] for i in others]


def _share_memory(tensors: list[torch.Tensor]) -> bool:
    return len({storage_address(tensor) for tensor in tensors}) < len(tensors)


class _Variants:
    """The compiled variants of one graph, by alias signature.

    Attributes:
        plain: The variant for inputs that share no memory, if compiled yet.
        changed: Positions of the inputs that the graph changes, once known.
        viewed: Positions of those that a view of their root has to stand for, if that was looked at.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        watched: list[int],
        compile_graph: CompileGraph,
        compilation: Compilation,
        effects: Effects | None,
    ) -> None:
        self.plain: Callable[..., Any] | None = None
        self.changed: frozenset[int] | None = None
        self.viewed: frozenset[int] = frozenset()
        self._gm = gm
        self._effects = effects
        self._watched = watched
        self._compile_graph = compile_graph
        self._compilation = compilation
        self._opaque = False
        self._merged: collections.OrderedDict[Any, Callable[..., Any]] = collections.OrderedDict()
        if effects is not None:
            self._note(effects)

    def _note(self, effects: Effects) -> None:
        self.changed = frozenset(effects.changed).intersection(self._watched)
        self.viewed = frozenset(effects.viewed).intersection(self._watched)

    def effects(self, inputs: Sequence[Any]) -> Effects:
        """Return what the graph does to its inputs, looked up at the first need of it."""
        if self._effects is None:
            self._effects = find_effects(self._gm, inputs)
        return self._effects

    def compile(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile for these inputs, and return what to call with them and with others."""
        # Their storages have no address to compare quickly.
        self._opaque = any(_compat.is_opaque(inputs[i]) for i in self._watched)
        shared = _share_memory([inputs[i] for i in self._watched])
        if not (shared or self.viewed):
            self._compile_plain(inputs)
        if self.changed is None:
            self._note(self.effects(inputs))
        assert self.changed is not None
        signature = read_signature(inputs, self._watched, self.changed, self.viewed)
        if shared and not signature:
            self._compile_plain(inputs)
        if signature or self.plain is None:
            self.add(signature, inputs)
        return self.as_function(len(inputs)) if self.changed or self.plain is None else self.plain

    def unrecorded_views(self, inputs: Sequence[Any]) -> dict[int, int | None]:
        """Return the outputs that `with_unrecorded_views` has to make anew, as `Effects` has them."""
        if torch.is_grad_enabled():
            return {} if self._effects is None else self._effects.unrecorded
        only_plain = self.plain is not None and not self.changed
        if only_plain or not any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
            return {}
        return self.effects(inputs).unrecorded

    def _compile_plain(self, inputs: Sequence[Any]) -> None:
        _compat.forget_metadata()
        try:
            self.plain = self._compile_graph(self._gm, inputs)
        except UnsupportedAliasingError:
            if not self._without_gradients:
                raise
            return  # A variant whose inputs require none will do.
        if _compat.returns_views_of_written_inputs() and any(map(_compat.is_symbolic, inputs)):
            # With symbolic sizes AOTAutograd makes such a view by the geometry that it had in the new values,
            # which have their own strides and begin at 0 (torch 2.10 to 2.13, silently).
            self.plain = None
            return
        changed = _compat.changed_inputs(self._gm, len(inputs)) if self.changed is None else None
        if changed is not None:
            # Known for nothing, once AOTAutograd has traced the graph.
            self.changed = changed.intersection(self._watched)

    @property
    def _without_gradients(self) -> bool:
        """Whether nothing that the graph computes here can have a gradient."""
        return not (torch.is_grad_enabled() or any(map(_compat.turns_gradients_on, self._gm.graph.nodes)))

    def as_function(self, count: int) -> Callable[..., Any]:
        """Return what to call with ``count`` inputs."""
        assert self.changed is not None
        if self._opaque:
            return lambda *inputs: self._for(inputs)(*inputs)
        lie_apart = watch_apart(self._watched, self.changed, count)

        def call(*inputs: Any) -> Any:
            plain = self.plain
            if plain is not None and lie_apart(inputs):
                return plain(*inputs)
            return self._for(inputs)(*inputs)

        return call

    def _for(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Return the variant for the inputs of a call."""
        assert self.changed is not None
        signature = read_signature(inputs, self._watched, self.changed, self.viewed)
        if not signature and self.plain is not None:
            return self.plain
        return self._find(signature, inputs)

    def add(self, signature: AliasSignature, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile a variant for inputs like these and keep it."""
        inputs = [_compat.concrete(x) for x in inputs]
        key = self._key(signature, inputs)
        variant = self._compile(signature, inputs)
        if len(self._merged) >= MAX_VARIANTS:
            self._merged.popitem(last=False)
            self._record("evict", "alias-variants-full", f"more than {MAX_VARIANTS} alias signatures")
        self._merged[key] = variant
        return variant

    def _find(self, signature: AliasSignature, inputs: Sequence[Any]) -> Callable[..., Any]:
        key = self._key(signature, inputs)
        variant = self._merged.get(key)
        if variant is None:
            grad = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
            with (
                self._compilation.entered(),
                _compat.compile_config(),
                # As Dynamo compiles: the tensors of a trace are none of inference mode's.
                torch.inference_mode(False),
                torch.set_grad_enabled(grad),
            ):
                # Another thread may have compiled it while this one waited.
                variant = self._merged.get(key)
                if variant is None:
                    variant = self.add(signature, inputs)
        self._merged.move_to_end(key)
        return variant

    def _key(self, signature: AliasSignature, inputs: Sequence[Any]) -> Any:
        # A variant is compiled for numbers, not for symbols, whatever Dynamo compiled the graph for.
        shapes = tuple(geometry_of(x)[:2] if isinstance(x, torch.Tensor) else x for x in inputs)
        return signature, shapes

    def _compile(self, signature: AliasSignature, inputs: Sequence[Any]) -> Callable[..., Any]:
        if not signature:
            return self._compile_apart(self._gm, inputs)
        subject = self._compilation.subject
        refuse_opaque_views(self._gm, inputs, signature, subject=subject)
        merged = merge_aliases(
            self._gm,
            signature,
            self.effects(inputs),
            subject=subject,
            without_gradients=self._without_gradients,
        )
        compiled = self._compile_apart(merged.gm, merged.inputs(inputs))
        placeholders = [node.name for node in self._gm.graph.nodes if node.op == "placeholder"]
        for group in signature:
            names = ", ".join(placeholders[i] for i in group.positions)
            self._record("merge", "aliased-inputs", f"inputs {names} share memory")

        def run(*inputs: Any) -> Any:
            return merged.restore(inputs, compiled(*merged.inputs(inputs)))

        return run

    def _compile_apart(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile for fake versions of the inputs, in a tracing context of their own.

        Nothing of a frame that Dynamo may be compiling is touched, and no trace sees what its tensors can't
        have: being views, or inference mode's, or requiring gradients where there are none, for autograd has
        rules for such views whatever becomes of them.
        """
        gm, tensors = _with_constants(gm, inputs)
        mode = _compat.new_fake_mode()
        fakes = [fake_like(x, mode) if isinstance(x, torch.Tensor) else x for x in tensors(inputs)]
        if self._without_gradients:
            fakes = [x.detach() if isinstance(x, torch.Tensor) else x for x in fakes]
        with _compat.tracing_under(mode):
            compiled = self._compile_graph(gm, fakes)
        return lambda *inputs: compiled(*tensors(inputs))

    def _record(self, action: str, code: str, detail: str) -> None:
        decision = Decision("aliasing", f"graph {self._compilation.graph}", action, code, detail)
        self._compilation.decide(decision)
