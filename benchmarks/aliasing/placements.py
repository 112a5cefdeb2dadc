"""Where the arguments of each call lie in memory: one recipe per kind of input aliasing.

A `Window` is what stays the same between the calls of a program: the sizes and strides of an argument. A
placement puts windows on storages, and may do so differently in each call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from random import Random

import torch

from aliasing.plan import CHANGING
from aliasing.program import Base, Call, Input, Step

__all__ = ["place"]

ELEMENTS = 24
"""Elements of each storage."""


@dataclasses.dataclass(frozen=True)
class Window:
    """A shape with strides, to be laid on a one-dimensional base.

    Args:
        span: Elements from its first to its last, both included.
        steps: Views to take of the base for a given offset.
        dense: Whether it covers each element of its span once.
    """

    span: int
    steps: Callable[[int], tuple[Step, ...]]
    dense: bool = True

    def at(self, base: int, offset: int, **how: object) -> Input:
        return Input(base, self.steps(offset), **how)  # type: ignore[arg-type]


def _narrow(size: int) -> Window:
    return Window(size, lambda offset: (Step("narrow", (0, offset, size)),))


def _slice(size: int) -> Window:
    return Window(size, lambda offset: (Step("[]", (slice(offset, offset + size),)),))


def _matrix(rows: int, columns: int, *more: Step) -> Window:
    size = rows * columns
    return Window(size, lambda o: (Step("narrow", (0, o, size)), Step("view", (rows, columns)), *more))


def _stepped(count: int) -> Window:
    span = 2 * count - 1
    return Window(span, lambda o: (Step("[]", (slice(o, o + span, 2),)),), dense=False)


def _column(rows: int, columns: int) -> Window:
    return dataclasses.replace(_matrix(rows, columns, Step("select", (1, columns - 1))), dense=False)


def _raw(size: tuple[int, int], stride: tuple[int, int]) -> Window:
    span = 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    return Window(span, lambda offset: (Step("as_strided", (size, stride, offset)),), dense=False)


def _expanded(rows: int, columns: int) -> Window:
    narrow = _narrow(columns)
    return Window(columns, lambda o: (*narrow.steps(o), Step("expand", (rows, columns))), dense=False)


_TRANSPOSE = Step("t")


def _dense(rng: Random) -> Window:
    """Return a window that covers its span."""
    return rng.choice(
        [
            _narrow(rng.choice((4, 6))),
            _slice(rng.choice((4, 6))),
            _matrix(2, rng.choice((2, 3))),
            _matrix(rng.choice((2, 3)), 2, _TRANSPOSE),
        ]
    )


def _any(rng: Random) -> Window:
    """Return a window of any shape that may be written to."""
    sparse = (_stepped(rng.choice((3, 4))), _column(3, 2), _raw((2, 3), (4, 1)), _raw((3, 2), (1, 4)))
    return rng.choice((_dense(rng), _dense(rng), _dense(rng), *sparse))


@dataclasses.dataclass
class _Drawing:
    """Random choices shared by the recipes."""

    rng: Random
    windows: list[Window]

    def offset(self, *windows: Window, room: int = 0) -> int:
        """Return an offset at which the windows fit, with ``room`` elements to spare behind them."""
        return self.rng.randint(0, ELEMENTS - room - max(window.span for window in windows))

    def separate(self) -> list[Input]:
        return [window.at(base, self.offset(window)) for base, window in enumerate(self.windows)]

    def overlapping(self, shift: int | None = None) -> list[Input]:
        """Lay all windows on base 0, each ``shift`` elements behind the one before."""
        shortest = min(window.span for window in self.windows)
        shift = shift or self.rng.randint(1, min(3, shortest - 1))
        room = shift * (len(self.windows) - 1)
        start = self.offset(*self.windows, room=room)
        return [window.at(0, start + shift * number) for number, window in enumerate(self.windows)]

    def disjoint(self) -> list[Input]:
        """Lay all windows on base 0, side by side in random order."""
        spare = ELEMENTS - sum(window.span for window in self.windows)
        order = self.rng.sample(range(len(self.windows)), len(self.windows))
        offset, placed = self.rng.randint(0, spare), {}
        for number in order:
            placed[number] = self.windows[number].at(0, offset)
            offset += self.windows[number].span
        return [placed[number] for number in sorted(placed)]

    def same_memory(self) -> list[Input]:
        """Lay the first two windows on the same memory, as two objects."""
        inputs = self.separate()
        return [inputs[0], dataclasses.replace(inputs[0]), *inputs[2:]]

    def identical(self) -> list[Input]:
        """Make the second argument the same object as the first."""
        inputs = self.separate()
        return [inputs[0], dataclasses.replace(inputs[0], same_as=0), *inputs[2:]]


def place(kind: str, rng: Random, *, training: bool) -> tuple[Call, ...]:
    """Draw the calls of a program.

    Args:
        kind: One of `aliasing.plan.INPUT_KINDS`.
        rng: Source of all choices.
        training: Whether most storages should need a gradient.

    Returns:
        One to three calls with two to four arguments each.
    """
    layouts = _layouts(kind, rng)
    kinds = (
        ("plain", "leaf", "computed", "computed", "computed")
        if training
        else ("plain", "plain", "leaf", "computed")
    )
    # A storage that needs a gradient in one call and none in the next would be another program to Dynamo, and
    # no aliasing could then surprise the backend.
    one_kind = rng.choice(kinds) if kind in CHANGING else None
    count = max(argument.base for layout in layouts for argument in layout) + 1
    base_kinds = [one_kind or rng.choice(kinds) for _ in range(count)]
    shape = (4, 6) if kind == "matrix base" else (ELEMENTS,)
    calls = []
    for number, layout in enumerate(layouts):
        used = sorted({argument.base for argument in layout})
        bases = tuple(Base(1 + 30 * base + 100 * number, shape, base_kinds[base]) for base in used)
        calls.append(Call(bases, tuple(_renumbered(layout, used))))
    return tuple(calls)


def _renumbered(layout: Sequence[Input], used: Sequence[int]) -> list[Input]:
    return [dataclasses.replace(argument, base=used.index(argument.base)) for argument in layout]


def _layouts(kind: str, rng: Random) -> list[list[Input]]:
    """Return the arguments of each call."""
    count = rng.choice((2, 2, 3))
    draw = _Drawing(rng, [_any(rng) for _ in range(count)])
    dense = _Drawing(rng, [_dense(rng) for _ in range(count)])
    twins = _Drawing(rng, [draw.windows[0], *draw.windows[:1], *draw.windows[2:]])
    repeats = rng.choice((1, 1, 2))
    match kind:
        case "separate":
            return [draw.separate() for _ in range(repeats)]
        case "duplicate":
            return [twins.identical() for _ in range(repeats)]
        case "same memory":
            return [twins.same_memory() for _ in range(repeats)]
        case "overlapping":
            return [dense.overlapping()] * repeats
        case "disjoint":
            return [draw.disjoint()] * repeats
        case "transposed":
            offset, rows = rng.randint(0, 12), rng.choice((2, 3))
            pair = [_matrix(rows, 2).at(0, offset), _matrix(rows, 2, _TRANSPOSE).at(0, offset)]
            return [[*rng.sample(pair, 2), *_on_base_one(draw)]]
        case "strided":
            offset = rng.randint(0, 12)
            other = rng.choice((_stepped(3).at(0, offset + rng.choice((1, 2))), _slice(4).at(0, offset)))
            return [[*rng.sample([_stepped(3).at(0, offset), other], 2), *_on_base_one(draw)]]
        case "base and view":
            view = rng.choice(
                (draw.windows[0].at(0, draw.offset(draw.windows[0])), Input(0, (Step("[]", (slice(None),)),)))
            )
            return [[*rng.sample([Input(0), view], 2), *_on_base_one(draw)]]
        case "matrix base":
            views = [
                Input(0),
                Input(0, (_TRANSPOSE,)),
                Input(0, (Step("[]", (slice(1, 3),)),)),
                Input(0, (Step("select", (1, 2)),)),
                Input(0, (Step("diagonal"),)),
                Input(0, (Step("view", (24,)),)),
                Input(0, (Step("unsqueeze", (0,)),)),
            ]
            return [rng.sample(views, count)] * repeats
        case "expanded":
            offset = rng.randint(0, 12)
            other = rng.choice((_narrow(4), _matrix(2, 2), _expanded(3, 4)))
            return [rng.sample([_expanded(2, 4).at(0, offset), other.at(0, offset + rng.randint(0, 3))], 2)]
        case "detached":
            inputs = twins.same_memory() if rng.random() < 0.5 else dense.overlapping()
            which = rng.randrange(2)
            inputs[which] = dataclasses.replace(inputs[which], how="detach")
            return [inputs] * repeats
        case "view made under no_grad":
            inputs = twins.same_memory() if rng.random() < 0.5 else dense.overlapping()
            which = rng.randrange(2)
            inputs[which] = dataclasses.replace(inputs[which], how="no_grad")
            return [inputs] * repeats
        case "multi-output view":
            parts = [Input(0, (Step("split", (6,)), Step("[]", (part,)))) for part in range(4)]
            return [rng.sample([*parts, *parts[:1], dense.windows[0].at(0, 3)], count)]
        case "two storages":
            first, second = dense.overlapping(), _Drawing(rng, [_dense(rng), _dense(rng)]).overlapping()
            mixed = [*first[:2], *(dataclasses.replace(argument, base=1) for argument in second)]
            return [rng.sample(mixed, 4)] * repeats
        case "mixed dtypes":
            offset = rng.randint(0, 12)
            integers = Window(4, lambda o: (Step("narrow", (0, o, 4)), Step("view", (torch.int64,))))
            return [rng.sample([integers.at(0, offset), _narrow(4).at(0, offset + rng.randint(0, 5))], 2)]
        case "separate, then overlapping":
            return [dense.separate(), *(dense.overlapping() for _ in range(repeats))]
        case "overlapping, then separate":
            return [dense.overlapping(), dense.separate(), *(dense.overlapping() for _ in range(repeats - 1))]
        case "overlapping at another offset":
            shifts = rng.sample((1, 2, 3), 1 + repeats)
            return [dense.overlapping(shift) for shift in shifts]
        case "identical, then distinct":
            return [twins.identical(), rng.choice((twins.separate, twins.same_memory))()]
        case "distinct, then identical":
            return [rng.choice((twins.separate, twins.same_memory))(), twins.identical()]
        case "same memory, then disjoint":
            return [twins.same_memory(), twins.disjoint(), *[twins.same_memory() for _ in range(repeats - 1)]]
        case "regrouped storages":
            window = _dense(rng)
            start = rng.randint(0, 12)
            near, far = window.at(0, start), window.at(0, start + 2)
            apart = window.at(1, start)
            return rng.sample([[near, far, apart], [near, apart, far], [apart, near, far]], 1 + repeats)
        case "growing windows":
            sizes, shift = rng.sample((3, 4, 5, 6), 1 + repeats), rng.randint(1, 3)
            return [
                [_narrow(size).at(0, 2), _narrow(size).at(0, 2 + rng.choice((0, shift, 6)))] for size in sizes
            ]
    raise AssertionError(kind)


def _on_base_one(draw: _Drawing) -> list[Input]:
    """Return what follows the first two arguments, on a storage of its own."""
    return [window.at(1, draw.offset(window)) for window in draw.windows[2:]]
