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
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aot_core import _compat
from aot_core.aliasing.effects import Effects, fake_like, find_effects, geometry_of, has_memory
from aot_core.aliasing.merge import merge_aliases
from aot_core.aliasing.refusals import needs_a_look, refuse_opaque_views, refuse_unsupported
from aot_core.aliasing.signature import AliasSignature, is_view_of_leaf, read_signature, storage_address
from aot_core.aliasing.single_views import split_returned_views
from aot_core.compilation import Compilation
from aot_core.protocol import Decision

__all__ = ["MAX_VARIANTS", "CompileGraph", "compile_without_aliases"]

MAX_VARIANTS = 16
"""Variants kept for one graph. A loop whose inputs overlap elsewhere in each call would fill the memory."""

# Called by `map`, so that no line of Python runs for an input.
_STORAGE = torch.Tensor.untyped_storage
_ADDRESS = torch.UntypedStorage.data_ptr

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
    gm = split_returned_views(gm)
    watched = [i for i, x in enumerate(example_inputs) if has_memory(x)]
    variants = _Variants(gm, example_inputs, watched, compile_graph, compilation)
    unrecorded: list[int] = []
    if needs_a_look(gm, example_inputs):
        effects = variants.effects(example_inputs)
        refuse_unsupported(gm, example_inputs, effects, subject=compilation.subject)
        unrecorded = effects.unrecorded if torch.is_grad_enabled() else []
    if not _share_memory([example_inputs[i] for i in watched]):
        _compat.forget_metadata()
        variants.plain = compile_graph(gm, example_inputs)
        # Known for nothing, once AOTAutograd has traced the graph.
        variants.changed = _compat.changed_inputs(gm, len(example_inputs))
    if variants.changed is None:
        variants.changed = frozenset(variants.effects(example_inputs).changed)
    variants.changed &= set(watched)
    signature = read_signature(example_inputs, watched, variants.changed)
    if signature:
        variants.add(signature, example_inputs)
    elif variants.plain is None:
        variants.plain = compile_graph(gm, example_inputs)
    checked = signature or variants.changed or variants.plain is None
    compiled = variants.as_function() if checked else variants.plain
    assert compiled is not None
    return _with_unrecorded_views(compiled, unrecorded) if unrecorded else compiled


def _with_unrecorded_views(compiled: Callable[..., Any], positions: list[int]) -> Callable[..., Any]:
    """Return what a model made under ``no_grad`` as a view made under ``no_grad``.

    In eager such a view requires a gradient and passes none on. AOTAutograd knows of no such outputs: what it
    returns passes gradients on.
    """

    def call(*inputs: Any) -> Any:
        outputs = list(compiled(*inputs))
        with torch.no_grad():
            for i in positions:
                outputs[i] = outputs[i].view_as(outputs[i])
        return tuple(outputs)

    return call


def _share_memory(tensors: list[torch.Tensor]) -> bool:
    return len({storage_address(tensor) for tensor in tensors}) < len(tensors)


class _Variants:
    """The compiled variants of one graph, by alias signature.

    Attributes:
        plain: The variant for inputs that share no memory, if compiled yet.
        changed: Positions of the inputs that the graph changes, once known.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        example_inputs: Sequence[Any],
        watched: list[int],
        compile_graph: CompileGraph,
        compilation: Compilation,
    ) -> None:
        self.plain: Callable[..., Any] | None = None
        self.changed: frozenset[int] | None = None
        self._gm = gm
        self._effects: Effects | None = None
        self._watched = watched
        self._compile_graph = compile_graph
        self._compilation = compilation
        # Their storages have no address to compare quickly.
        self._opaque = any(_compat.is_opaque(example_inputs[i]) for i in watched)
        self._merged: collections.OrderedDict[Any, Callable[..., Any]] = collections.OrderedDict()

    def effects(self, inputs: Sequence[Any]) -> Effects:
        """Return what the graph does to its inputs, looked up at the first need of it."""
        if self._effects is None:
            self._effects = find_effects(self._gm, inputs)
        return self._effects

    def as_function(self) -> Callable[..., Any]:
        """Return what to call."""
        if self._opaque:
            return lambda *inputs: self._for(inputs)(*inputs)
        watched, count = self._watched, len(self._watched)
        take = operator.itemgetter(*watched) if count > 1 else lambda inputs: (inputs[watched[0]],)
        assert self.changed is not None
        changed = self.changed

        def call(*inputs: Any) -> Any:
            plain = self.plain
            if plain is not None:
                # The common case, at a sixth of a microsecond an input: nothing is shared.
                addresses = set(map(_ADDRESS, map(_STORAGE, take(inputs))))
                if len(addresses) == count and not any(is_view_of_leaf(inputs[i]) for i in changed):
                    return plain(*inputs)
            return self._for(inputs)(*inputs)

        return call

    def _for(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Return the variant for the inputs of a call."""
        assert self.changed is not None
        signature = read_signature(inputs, self._watched, self.changed)
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
        merged = merge_aliases(self._gm, signature, self.effects(inputs), subject=subject)
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
        have: being views, or inference mode's.
        """
        mode = _compat.new_fake_mode()
        fakes = [fake_like(x, mode) if isinstance(x, torch.Tensor) else x for x in inputs]
        with _compat.tracing_under(mode):
            return self._compile_graph(gm, fakes)

    def _record(self, action: str, code: str, detail: str) -> None:
        decision = Decision("aliasing", f"graph {self._compilation.graph}", action, code, detail)
        self._compilation.decide(decision)
