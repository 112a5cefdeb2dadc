"""What a compiled graph does when it is called: TorchScript functions and FX partitions, one after the other.

::

    inputs ─┐
            ├─> slots ──> ScriptFunction ──> slots ──> FX partition ──> slots ──> ScriptFunction ──> outputs
    attributes

Values wait in numbered slots. A step takes what it reads, and what no later step reads it takes out, so that it is
freed as early as the step allows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import fx

from aot_core.protocol import Decision

if TYPE_CHECKING:
    from aot_ts_fusion.script_function import ScriptFunction

__all__ = ["Program", "Step"]


class Step:
    """One function of a program, and the slots that it reads and writes.

    Args:
        run: Takes lists of values, of ``tensors`` and of ``others``, and returns the values of ``written``. It may
            empty the lists.
        tensors: Slots that it reads.
        others: More slots that it reads.
        written: Slots that it fills.
        operations: How many operations of the graph it does.
        function: The TorchScript function, if it is one.
    """

    def __init__(
        self,
        run: Callable[[list[Any], list[Any]], Sequence[Any]],
        *,
        tensors: Sequence[int],
        others: Sequence[int],
        written: Sequence[int],
        operations: int,
        function: ScriptFunction | None = None,
    ) -> None:
        self.run = run
        self.tensors = tuple(tensors)
        self.others = tuple(others)
        self.written = tuple(written)
        self.operations = operations
        self.function = function
        self.freed: tuple[int, ...] = ()

    def __call__(self, slots: list[Any]) -> None:
        tensors = [slots[place] for place in self.tensors]
        others = [slots[place] for place in self.others]
        for place in self.freed:
            slots[place] = None
        for place, value in zip(self.written, self.run(tensors, others), strict=True):
            slots[place] = value


class Program:
    """A compiled graph. Call it with one list of inputs, which it empties.

    Args:
        slot_of: Slot of each node's value; inputs come first.
        num_inputs: How many inputs it takes.
        attributes: Slots that are filled at each call, each with what gives its value: the graph's own tensors are
            read when they are needed, so that a write to one, or another one in its place, is seen.
        steps: In order.
        output: What the graph returns: nodes, constants, and structures of them.
        decisions: What could not be expressed in TorchScript.
        keeps: What must live as long as the program.

    Attributes:
        steps: As given.
        decisions: As given.
        fuser: Name of TorchScript's fuser that is entered around calls, or None.
    """

    _boxed_call = True

    def __init__(
        self,
        slot_of: Mapping[fx.Node, int],
        num_inputs: int,
        attributes: Sequence[tuple[int, Callable[[], Any]]],
        steps: Sequence[Step],
        output: Any,
        *,
        decisions: Sequence[Decision] = (),
        keeps: Sequence[Any] = (),
        fuser: str | None = None,
    ) -> None:
        self.steps = tuple(steps)
        self.decisions = tuple(decisions)
        self.fuser = fuser
        self._num_inputs = num_inputs
        self._attributes = tuple(attributes)
        self._blank = [None] * (len(slot_of) - num_inputs)
        self._keeps = tuple(keeps)
        template = _with_slots(output, slot_of)
        self._assemble = _assembler(template)
        self._free_after_last_use(_slots_in(template))

    def __call__(self, args: list[Any]) -> Any:
        """Run the graph."""
        slots = args + self._blank
        args.clear()
        for place, read in self._attributes:
            slots[place] = read()
        for step in self.steps:
            step(slots)
        return self._assemble(slots)

    @property
    def scripts(self) -> tuple[ScriptFunction, ...]:
        """The TorchScript functions, in order."""
        return tuple(step.function for step in self.steps if step.function is not None)

    @property
    def native(self) -> int:
        """Number of the graph's operations that run in TorchScript."""
        return sum(step.operations for step in self.steps if step.function is not None)

    @property
    def cut_out(self) -> int:
        """Number of the graph's operations that run in FX."""
        return sum(step.operations for step in self.steps if step.function is None)

    def _free_after_last_use(self, returned: set[int]) -> None:
        later = returned
        for step in reversed(self.steps):
            read = {*step.tensors, *step.others}
            step.freed = tuple(sorted(read - later))
            later = later | read


@dataclasses.dataclass(frozen=True)
class _Slot:
    """Stands for a node's value in what a graph returns, without keeping the graph alive."""

    place: int


def _with_slots(output: Any, slot_of: Mapping[fx.Node, int]) -> Any:
    if isinstance(output, fx.Node):
        return _Slot(slot_of[output])
    return _mapped(lambda part: _with_slots(part, slot_of), output)


def _filled(output: Any, slots: list[Any]) -> Any:
    if isinstance(output, _Slot):
        return slots[output.place]
    return _mapped(lambda part: _filled(part, slots), output)


def _mapped(function: Callable[[Any], Any], output: Any) -> Any:
    """Apply a function to the parts of a structure, or return what has no parts."""
    if isinstance(output, list):
        return [function(part) for part in output]
    if isinstance(output, tuple):
        parts = [function(part) for part in output]
        return type(output)(*parts) if hasattr(output, "_fields") else tuple(parts)
    if isinstance(output, dict):
        return {name: function(part) for name, part in output.items()}
    return output


def _slots_in(output: Any) -> set[int]:
    if isinstance(output, _Slot):
        return {output.place}
    parts = (
        output.values() if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else ()
    )
    return {place for part in parts for place in _slots_in(part)}


def _assembler(output: Any) -> Callable[[list[Any]], Any]:
    """Return a function that makes the outputs from the slots."""
    if isinstance(output, tuple) and all(isinstance(each, _Slot) for each in output):
        places = [each.place for each in output]
        return lambda slots: tuple([slots[place] for place in places])
    return lambda slots: _filled(output, slots)
