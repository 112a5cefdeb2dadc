"""The function that serves a call once everything is recorded: generated, straight-line, for one recording.

For a graph of three inputs, of which the first is a parameter, the second is copied and the third is a number, and
with two outputs, one of which is a view of the parameter::

    def run(args):
        if len(args) != 3: raise_count(args)
        if lane.path != PATH or not guard(*take_tensors(args)) or args[2].__class__ is not TYPE2 or args[2] != NUMBER2
            or addresses(take_in_place(args)) != ADDRESSES: return None
        TARGETS.copy_(args[1])
        replay()
        o1 = view_of_argument(args[0], 0, LIKE1)
        o0 = SOURCE0.clone()
        args.clear()
        return [o0, o1]

It returns None, and has done nothing, if the call is not one for this recording.
"""

from __future__ import annotations

import linecache
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from aot_cudagraphs import _compat
from aot_cudagraphs.inputs import InputPlan
from aot_cudagraphs.lanes import Lane
from aot_cudagraphs.outputs import (
    Argument,
    ArgumentView,
    Cloned,
    Constant,
    OutputPlan,
    Shown,
    clone_alone,
    clone_together,
    view_of_argument,
)
from aot_cudagraphs.strided import Layout, bytes_of, layout_of

__all__ = ["Run", "generate"]

Run = Callable[[list[Any]], "list[Any] | None"]


def generate(
    inputs: InputPlan,
    outputs: OutputPlan,
    *,
    count: int,
    replay: Callable[[], None],
    raise_count: Callable[[Sequence[Any]], None],
    lane: Lane,
    number: int,
    guard: Callable[..., bool] | None,
    guarded: Sequence[int],
    compare_numbers: bool,
    watch_overlaps: bool,
    name: str,
) -> Run:
    """Generate the function for one recording.

    Args:
        inputs: How inputs are read and written.
        outputs: What becomes of outputs.
        count: How many inputs there are.
        replay: Replays the recording.
        raise_count: Called when the number of inputs is another; raises.
        lane: Where it was recorded, after the recordings that are on the lane's path now.
        number: The recording's own.
        guard: Tells whether tensors have the dtypes, sizes, strides, … of the recording's; None if all are known to.
        guarded: Positions of the tensors that it takes.
        compare_numbers: Look in each call whether what is no tensor is what it was.
        watch_overlaps: Look in each call how the inputs overlap, for callers who don't promise that none do.
        name: For tracebacks.

    Returns:
        A function of one list, which it empties, that returns the outputs, or None if the recording is not for
        inputs like these.
    """
    writer = _Writer(inputs, outputs, count)
    writer.constants.update(replay=replay, raise_count=raise_count, guard=guard, lane=lane)
    writer.constants.update(PATH=lane.path, NEXT_PATH=(*lane.path, number))
    writer.check(guarded, compare_numbers=compare_numbers, watch_overlaps=watch_overlaps)
    writer.copy_in()
    writer.line("replay()")
    writer.write_back()
    writer.hand_out()
    return writer.compiled(name)


class _Writer:
    def __init__(self, inputs: InputPlan, outputs: OutputPlan, count: int) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._count = count
        self._lines: list[str] = []
        self.constants: dict[str, Any] = {
            "copy_all": _compat.copy_all,
            "view_of_argument": view_of_argument,
            "increment_version": torch.autograd.graph.increment_version,
            "addresses": _addresses,
            "count_storages": _count_storages,
        }

    def line(self, text: str) -> None:
        self._lines.append(f"    {text}")

    def check(self, guarded: Sequence[int], *, compare_numbers: bool, watch_overlaps: bool) -> None:
        """Compare the inputs with those of the recording."""
        self.line(f"if len(args) != {self._count}: raise_count(args)")
        tests = ["lane.path != PATH"]
        tensors = [i for i in range(self._count) if i not in self._inputs.numbers]
        if guarded:
            tests.append(f"not guard(*{self._take('guarded', [*guarded])})")
        if compare_numbers:
            for i, value in self._inputs.numbers.items():
                tests.append(self._compare(i, value))
        if self._inputs.in_place:
            self.constants["ADDRESSES"] = [*self._inputs.in_place.values()]
            tests.append(f"addresses({self._take('in_place', [*self._inputs.in_place])}) != ADDRESSES")
        for i, (offset, nbytes) in self._inputs.places.items() if compare_numbers else ():
            tests.append(f"args[{i}].storage_offset() != {offset}")
            tests.append(f"args[{i}].untyped_storage().nbytes() != {nbytes}")
        if watch_overlaps and tensors:
            tests.append(self._compare_overlaps(tensors))
        self.line(f"if {' or '.join(tests)}: return None")

    def _take(self, name: str, positions: list[int]) -> str:
        """Return an expression for several inputs, taken from the list by one call of C code."""
        if positions == list(range(self._count)):
            return "args"
        if len(positions) == 1:
            return f"(args[{positions[0]}],)"
        self.constants[f"take_{name}"] = operator.itemgetter(*positions)
        return f"take_{name}(args)"

    def _compare(self, i: int, value: Any) -> str:
        if isinstance(value, float):
            self.constants[f"NUMBER{i}"] = value.hex()
            return f"args[{i}].__class__ is not float or args[{i}].hex() != NUMBER{i}"
        self.constants[f"NUMBER{i}"] = value
        if value is None or not isinstance(value, (bool, int, str, complex)):
            return f"args[{i}] is not NUMBER{i}"
        self.constants[f"TYPE{i}"] = type(value)
        return f"args[{i}].__class__ is not TYPE{i} or args[{i}] != NUMBER{i}"

    def _compare_overlaps(self, tensors: Sequence[int]) -> str:
        """Compare which inputs share storage: the groups do, at the same distances, and no others."""
        alone = len(tensors) - sum(len(group) - 1 for group in self._inputs.groups)
        tests = [f"count_storages({self._take('tensors', [*tensors])}) != {alone}"]
        for first, *others in self._inputs.groups:
            for other in others:
                self.constants[f"DISTANCE{other}"] = self._distance(first, other)
                tests.append(f"args[{other}].data_ptr() - args[{first}].data_ptr() != DISTANCE{other}")
        return " or ".join(tests)

    def _distance(self, first: int, other: int) -> int:
        def address(i: int) -> int:
            in_place = self._inputs.in_place
            return in_place[i] if i in in_place else self._inputs.stand_ins[i].tensor.data_ptr()

        return address(other) - address(first)

    def copy_in(self) -> None:
        """Copy the inputs that are not read in place: all plain ones at once."""
        stand_ins = self._inputs.stand_ins
        together = [i for i, one in stand_ins.items() if one.layout.plain and not (one.lazy or one.whole)]
        if len(together) == 1:
            self.constants["TARGET"] = stand_ins[together[0]].tensor
            self.line(f"TARGET.copy_(args[{together[0]}])")
        elif together:
            self.constants["TARGETS"] = [stand_ins[i].tensor for i in together]
            self.line(f"copy_all(TARGETS, {self._take('copied', together)})")
        for i, one in stand_ins.items():
            if one.whole:
                self.constants.update(
                    {f"TARGET{i}": bytes_of(one.tensor.untyped_storage()), "bytes_of": bytes_of}
                )
                self.line(f"TARGET{i}.copy_(bytes_of(args[{i}].untyped_storage()))")
            elif i not in together:
                self.constants[f"TARGET{i}"] = one.layout.writable(one.tensor)
                self.line(f"TARGET{i}.copy_({_writable(i, one.layout)})")

    def write_back(self) -> None:
        """Copy to the inputs what was written to their stand-ins, and count what was written in place."""
        for i in self._inputs.written_back:
            one = self._inputs.stand_ins[i]
            if one.whole:
                self.constants[f"WRITTEN{i}"] = bytes_of(one.tensor.untyped_storage())
                self.line(f"bytes_of(args[{i}].untyped_storage()).copy_(WRITTEN{i})")
                self.line(f"increment_version((args[{i}],))")
                continue
            self.constants[f"WRITTEN{i}"] = one.layout.writable(one.tensor)
            self.line(f"{_writable(i, one.layout)}.copy_(WRITTEN{i})")
        if self._inputs.written_in_place:
            self.line(f"increment_version({self._take('written', [*self._inputs.written_in_place])})")

    def hand_out(self) -> None:
        """Make the outputs."""
        results, copied = [], []
        for i, output in enumerate(self._outputs.outputs):
            results.append(f"o{i}")
            if isinstance(output, Argument):
                self.line(f"o{i} = args[{output.position}]")
            elif isinstance(output, ArgumentView):
                self.constants[f"LIKE{i}"] = output.like
                self.line(f"o{i} = view_of_argument(args[{output.position}], {output.offset}, LIKE{i})")
            elif isinstance(output, Constant):
                self.constants[f"o{i}"] = output.value
            elif isinstance(output, Shown):
                self.constants[f"SHOWN{i}"] = output.tensor
                self.line(f"o{i} = SHOWN{i}.detach()")
            elif output.group is None:
                copied.append((i, output))
        self._clone(copied)
        for i, members in enumerate(self._outputs.groups):
            tensors = [
                one.tensor
                for one in map(self._outputs.outputs.__getitem__, members)
                if isinstance(one, Cloned)
            ]
            self.constants[f"clone{i}"] = clone_together(tensors)
            self.line(f"{_tuple(f'o{member}' for member in members)} = clone{i}()")
        if self._outputs.blocks:
            self.constants["BLOCKS"] = {block.address: block for block in self._outputs.blocks}
            self.line("lane.live.update(BLOCKS)")
            self.line("lane.path = NEXT_PATH")
        self.line("args.clear()")
        self.line(f"return [{', '.join(results)}]")

    def _clone(self, copied: Sequence[tuple[int, Cloned]]) -> None:
        plain = []
        for i, output in copied:
            tensor, layout = output.tensor, layout_of(output.tensor)
            if tensor.numel() and layout.span == tensor.numel() and layout.plain and not _is_lazy(tensor):
                plain.append((i, tensor))
            else:
                self.constants.update({"clone_alone": clone_alone, f"SOURCE{i}": tensor})
                self.line(f"o{i} = clone_alone(SOURCE{i})")
        if len(plain) == 1:
            i, tensor = plain[0]
            self.constants[f"SOURCE{i}"] = tensor
            self.line(f"o{i} = SOURCE{i}.clone()")
        elif plain:
            self.constants["empty_strided"] = torch.empty_strided
            for i, tensor in plain:
                self.constants.update({f"DTYPE{i}": tensor.dtype, f"DEVICE{i}": tensor.device})
                size, stride = tuple(tensor.size()), tuple(tensor.stride())
                self.line(f"o{i} = empty_strided({size}, {stride}, dtype=DTYPE{i}, device=DEVICE{i})")
            self.constants["SOURCES"] = tuple(tensor for _, tensor in plain)
            self.line(f"copy_all({_tuple(f'o{i}' for i, _ in plain)}, SOURCES)")

    def compiled(self, name: str) -> Run:
        source = "\n".join(["def run(args):", *self._lines, ""])
        file = f"<{name}>"
        # So that a traceback shows the line. The entry is one per module and kind, not one per recording.
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        namespace = dict(self.constants)
        exec(compile(source, file, "exec"), namespace)
        # Taken out of its own globals: a function in there would keep itself, and the memory of the recording, alive.
        run: Run = namespace.pop("run")
        return run


def _addresses(tensors: Sequence[torch.Tensor]) -> list[int]:
    return [*map(_ADDRESS, tensors)]


def _count_storages(tensors: Sequence[torch.Tensor]) -> int:
    return len({*map(_STORAGE_ADDRESS, map(_STORAGE, tensors))})


# Called by `map`, so that no line of Python runs for an input.
_ADDRESS = torch.Tensor.data_ptr
_STORAGE = torch.Tensor.untyped_storage
_STORAGE_ADDRESS = torch.UntypedStorage.data_ptr


def _is_lazy(tensor: torch.Tensor) -> bool:
    return tensor.is_conj() or tensor.is_neg()


def _writable(i: int, layout: Layout) -> str:
    return f"args[{i}]" if layout.plain else f"args[{i}].as_strided({layout.size}, {layout.stride})"


def _tuple(names: Any) -> str:
    names = list(names)
    return f"({', '.join(names)},)" if names else "()"
