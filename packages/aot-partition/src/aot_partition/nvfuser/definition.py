"""A fusion as data: what will be said to nvFuser, before anything is said to it.

The translation of a region writes a `Definition`, a list of instructions that holds no tensor, no torch graph and
nothing of nvFuser. It is then *replayed*: into nvFuser's ``FusionDefinition`` to be compiled, or into the reference
interpreter to be checked, on a machine that may have neither nvFuser nor a GPU. Its source text is exact (every
float with all its digits, which nvFuser's own printed form lacks) and tells whether two regions are the same::

    def fusion(fd):
        v0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
        v1 = fd.define_scalar(0.5, dtype=DataType.Double)
        v2 = fd.ops.mul(v0, v1)
        fd.add_output(v2)
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

__all__ = ["DATA_TYPES", "Definition", "Instruction", "Operations", "Recorder", "Value"]

DATA_TYPES: dict[torch.dtype, str] = {
    torch.float64: "Double",
    torch.float32: "Float",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.int64: "Int",
    torch.int32: "Int32",
    torch.bool: "Bool",
}
"""The dtypes that are translated, with nvFuser's names. It has no int8, uint8 and int16."""

_RESULTS = {"var_mean": 2, "topk": 2, "welford": 3, "sdpfa_fwd": 4}


class Value(NamedTuple):
    """A tensor or a scalar of a fusion: the result of one of its instructions."""

    number: int

    def __repr__(self) -> str:
        return f"v{self.number}"


class Instruction(NamedTuple):
    """One call: ``define_tensor``, ``define_scalar``, ``add_output``, or ``ops.`` and an operation's name."""

    call: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    results: tuple[Value, ...]


@dataclasses.dataclass(frozen=True)
class Definition:
    """A whole fusion.

    Args:
        instructions: In order; inputs are defined in the order in which they will be passed.
    """

    instructions: tuple[Instruction, ...]

    @functools.cached_property
    def source(self) -> str:
        """Python text that defines the fusion; equal for two definitions exactly if they are equal."""
        lines = []
        for call, arguments, keywords, results in self.instructions:
            said = [_text(each) for each in arguments]
            said += [f"{name}={_text(each)}" for name, each in keywords]
            left = f"{', '.join(map(repr, results))} = " if results else ""
            lines.append(f"    {left}fd.{call}({', '.join(said)})\n")
        return "def fusion(fd):\n" + "".join(lines)

    @property
    def operations(self) -> list[str]:
        """Names of the operations, in order."""
        return [each.call[4:] for each in self.instructions if each.call.startswith("ops.")]

    def replay(self, fd: Any, data_types: Any) -> None:
        """Say the fusion to something that understands it.

        Args:
            fd: nvFuser's ``FusionDefinition``, or what stands for it.
            data_types: nvFuser's ``DataType``, or what stands for it: has attributes by the names in `DATA_TYPES`.
        """
        values: list[Any] = []

        def real(argument: Any) -> Any:
            if type(argument) is Value:
                return values[argument.number]
            if type(argument) is tuple:
                return [real(each) for each in argument]
            if type(argument) is torch.dtype:
                return getattr(data_types, DATA_TYPES[argument])
            return argument

        for call, arguments, keywords, results in self.instructions:
            function = getattr(fd.ops, call[4:]) if call.startswith("ops.") else getattr(fd, call)
            made = function(*map(real, arguments), **{name: real(each) for name, each in keywords})
            if len(results) > 1:
                values.extend(made)
            elif results:
                values.append(made)

    def with_float_inputs(self, digits: int) -> tuple[Definition, list[float]]:
        """Turn the float constants that ``digits`` digits can't say into inputs, behind all others.

        Returns:
            The definition, and the values of the new inputs. What nvFuser prints of it is then exact.
        """
        kept: list[Instruction] = []
        lifted: list[tuple[Instruction, float]] = []
        last_input = max((i for i, each in enumerate(self.instructions) if _is_input(each)), default=-1)
        for position, each in enumerate(self.instructions):
            constant = each.arguments[0] if each.call == "define_scalar" else None
            if isinstance(constant, float) and _needs_more(constant, digits) and position > last_input:
                new = each._replace(arguments=(None,))
                lifted.append((new, constant))
            else:
                kept.append(each)
        ordered = [*kept[: last_input + 1], *(new for new, _ in lifted), *kept[last_input + 1 :]]
        return _renumbered(ordered), [constant for _, constant in lifted]


def _needs_more(number: float, digits: int) -> bool:
    return math.isfinite(number) and float(f"{number:.{digits}g}") != number


def _is_input(instruction: Instruction) -> bool:
    return instruction.call == "define_tensor" or (
        instruction.call == "define_scalar" and instruction.arguments[0] is None
    )


def _renumbered(instructions: Iterable[Instruction]) -> Definition:
    names: dict[Value, Value] = {}

    def new(argument: Any) -> Any:
        if type(argument) is Value:
            return names[argument]
        return tuple(map(new, argument)) if type(argument) is tuple else argument

    done = []
    for call, arguments, keywords, results in instructions:
        said = tuple(map(new, arguments)), tuple((name, new(each)) for name, each in keywords)
        for result in results:
            names[result] = Value(len(names))
        done.append(Instruction(call, *said, tuple(names[each] for each in results)))
    return Definition(tuple(done))


def _text(argument: Any) -> str:
    if type(argument) is tuple:
        return f"[{', '.join(map(_text, argument))}]"
    if type(argument) is torch.dtype:
        return f"DataType.{DATA_TYPES[argument]}"
    if type(argument) is float and not math.isfinite(argument):
        return f'float("{argument}")'
    return repr(argument)


class Operations:
    """The operations of nvFuser by their names: ``ops.add(x, y)``, or ``ops("add", x, y)``, appends one.

    What it returns is the result, or a tuple of them.
    """

    def __init__(self, record: Callable[..., Any]) -> None:
        self._record = record

    def __getattr__(self, name: str) -> Callable[..., Value]:
        return functools.partial(self._record, f"ops.{name}")

    def __call__(self, name: str, *arguments: Any, **keywords: Any) -> Value:
        """Append the operation of a name."""
        made: Value = self._record(f"ops.{name}", *arguments, **keywords)
        return made


class Recorder:
    """Takes what a translation says, in the words of nvFuser's ``FusionDefinition``, and makes a `Definition`.

    Attributes:
        ops: The operations.
    """

    def __init__(self) -> None:
        self._instructions: list[Instruction] = []
        self._values = 0
        self._constants: dict[str, Value] = {}
        self.ops = Operations(self._call)

    def define_tensor(
        self,
        *,
        shape: tuple[int, ...],
        contiguity: tuple[bool | None, ...],
        dtype: torch.dtype,
        is_cpu: bool,
        stride_order: tuple[int, ...] | None = None,
    ) -> Value:
        """Add a tensor input; see `aot_partition.nvfuser.layouts`."""
        order: dict[str, Any] = {} if stride_order is None else {"stride_order": stride_order}
        value: Value = self._call(
            "define_tensor", shape=shape, contiguity=contiguity, dtype=dtype, is_cpu=is_cpu, **order
        )
        return value

    def define_input(self, dtype: torch.dtype) -> Value:
        """Add a scalar input."""
        value: Value = self._call("define_scalar", None, dtype=dtype)
        return value

    def constant(self, number: bool | int | float, dtype: torch.dtype) -> Value:
        """Return a constant, made once in a fusion."""
        key = f"{number!r} {dtype}"
        if key not in self._constants:
            self._constants[key] = self._call("define_scalar", number, dtype=dtype)
        return self._constants[key]

    def add_output(self, value: Value, alias_input: Value | None = None) -> None:
        """Add an output. With ``alias_input`` it is written over that input and not returned."""
        if alias_input is None:
            self._call("add_output", value, results=0)
        else:
            self._call("add_output", value, alias_input, results=0)

    def finish(self) -> Definition:
        """Return what was said."""
        return Definition(tuple(self._instructions))

    def _call(self, call: str, *arguments: Any, results: int | None = None, **keywords: Any) -> Any:
        count = _RESULTS.get(call.removeprefix("ops."), 1) if results is None else results
        made = tuple(Value(self._values + i) for i in range(count))
        self._values += count
        said = tuple(sorted((name, _frozen(each)) for name, each in keywords.items()))
        self._instructions.append(Instruction(call, tuple(map(_frozen, arguments)), said, made))
        return made if count > 1 else made[0] if made else None


def _frozen(argument: Any) -> Any:
    if isinstance(argument, (list, tuple)) and type(argument) is not Value:
        return tuple(map(_frozen, argument))
    return argument
