"""Draws the program of an index: statements that eager accepts, in the order that the plan asks for.

Each statement is run on the arguments of the first call as soon as it is drawn, so that the next one can be
chosen by what is really there: sizes, and who shares memory with whom.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch

from aliasing.placements import place
from aliasing.plan import Plan
from aliasing.program import Call, Mode, Program, Ref, Statement, Step

__all__ = ["draw_program", "elements"]


def elements(tensor: torch.Tensor) -> list[int]:
    """Return the byte address of each element, in order."""
    positions = torch.zeros(tensor.shape, dtype=torch.int64)
    for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        steps = torch.arange(size) * stride
        positions = positions + steps.view([-1 if d == dimension else 1 for d in range(tensor.dim())])
    start = tensor.untyped_storage().data_ptr() + tensor.storage_offset() * tensor.element_size()
    return (positions * tensor.element_size() + start).flatten().tolist()


def draw_program(plan: Plan, rng: Random) -> Program | None:
    """Draw a program that fulfils a plan.

    Args:
        plan: What it must contain.
        rng: Source of all choices.

    Returns:
        A program that eager accepts for its first call's forward, or None if the choices led nowhere. Whether
        eager accepts all of it, the caller has to try.
    """
    calls = place(plan.inputs, rng, training=plan.mode == "training")
    mode = _mode(plan.mode, rng)
    draft = _Draft(rng, calls, mode)
    with torch.no_grad() if mode != "training" else torch.enable_grad():
        tasks = [draft.write_input] * ("data" in plan.mutation) + [draft.change_metadata] * (
            "metadata" in plan.mutation
        )
        tasks += rng.choices(
            [draft.view, draft.compute, draft.detach, draft.write_intermediate], k=rng.choice((0, 1, 2))
        )
        rng.shuffle(tasks)
        if not all(task() for task in tasks):
            return None
        focus = draft.output(plan.output)
        if focus is None:
            return None
        if "data" in plan.mutation and rng.random() < 0.3 and not draft.write_input():
            return None
    return Program(tuple(draft.statements), draft.outputs_with(focus), calls, mode)


def _mode(mode: str, rng: Random) -> Mode:
    if mode == "inference":
        return rng.choice(("inference_mode", "inference_tensors"))
    return mode  # type: ignore[return-value]


class _Draft:
    """A body under construction, with the values that its variables have in the first call."""

    def __init__(self, rng: Random, calls: tuple[Call, ...], mode: Mode) -> None:
        self.rng = rng
        self.mode = mode
        self.statements: list[Statement] = []
        skeleton = Program((), (), calls, mode)
        self.variables: dict[str, Any] = {}
        _, self.bases, arguments = skeleton.namespace()["call_0"]()
        self.inputs = list(skeleton.names)
        self.variables.update(zip(skeleton.names, arguments, strict=True))

    # Choosing a variable.

    def tensors(self, accept: Callable[[torch.Tensor], bool] = lambda _: True) -> list[str]:
        """Return the variables that hold acceptable tensors."""
        return [
            name
            for name, value in self.variables.items()
            if isinstance(value, torch.Tensor) and value.numel() and accept(value)
        ]

    def of_input(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in an argument's memory."""
        storages = {base.untyped_storage().data_ptr() for base in self.bases}
        return tensor.untyped_storage().data_ptr() in storages

    def pick(self, names: list[str]) -> str | None:
        return self.rng.choice(names) if names else None

    # Drawing statements. Each returns the variable it made (or wrote), or None if nothing fitted.

    def attempt(self, receiver: str, step: Step, *, result: bool, no_grad: float = 0.1) -> str | None:
        """Add a statement if eager runs it."""
        target = Ref(f"t{len(self.statements)}") if result else None
        in_block = self.mode == "training" and self.rng.random() < no_grad
        statement = Statement(Ref(receiver), step, target, in_block)
        if statement.writes and not self._may_write(statement):
            return None
        try:
            statement.run(self.variables)
        except (RuntimeError, IndexError):
            return None
        self.statements.append(statement)
        return target.name if target else receiver

    def _may_write(self, statement: Statement) -> bool:
        # Eager finds only the simple ones of the writes whose result is undefined.
        return not is_undefined(statement, self.variables)

    def several(self, draw: Callable[[], str | None]) -> str | None:
        """Try a few times."""
        for _ in range(8):
            name = draw()
            if name is not None:
                return name
        return None

    def view(self, of: list[str] | None = None) -> str | None:
        """Add a view of any variable, or of one of those given."""
        return self.several(lambda: self._view(self.pick(of or self.tensors())))

    def _view(self, name: str | None) -> str | None:
        if name is None:
            return None
        value = self.variables[name]
        steps = [Step("[]", (slice(None),)), Step("view_as", (Ref(name),)), Step("unsqueeze", (0,))]
        if value.dim() == 1:
            steps += [
                Step("[]", (slice(1, None),)),
                Step("[]", (slice(None, None, 2),)),
                Step("narrow", (0, 0, max(1, value.numel() - 1))),
                Step("select", (0, 1)),
                Step("view", (2, -1)),
                Step("view", (-1, 2)),
            ]
        if value.dim() >= 2:
            steps += [
                Step("t"),
                Step("transpose", (0, 1)),
                Step("[]", (0,)),
                Step("[]", ((slice(None), 0),)),
                Step("diagonal"),
                Step("view", (-1,)),
                Step("flatten"),
            ]
        if value.dim() and self.rng.random() < 0.1:
            parts = self.attempt(name, Step(self.rng.choice(("chunk", "split")), (2,)), result=True)
            return parts and self.attempt(parts, Step("[]", (0,)), result=True)
        return self.attempt(name, self.rng.choice(steps), result=True)

    def compute(self, of: list[str] | None = None) -> str | None:
        """Add an intermediate."""
        return self.several(lambda: self._compute(self.pick(of or self.tensors())))

    def _compute(self, name: str | None) -> str | None:
        if name is None:
            return None
        value = self.variables[name]
        other = self.rng.choice(self.tensors(lambda o: o.dim() == 0 or o.shape == value.shape) or [name])
        steps = [
            Step("mul", (2.0,)),
            Step("sin"),
            Step("add", (Ref(other),)),
            Step("mul", (Ref(other),)),
            Step("clone"),
            Step("sum"),
            # These give the tensor itself when it is contiguous.
            Step("contiguous"),
            Step("reshape", (-1,)),
        ]
        return self.attempt(name, self.rng.choice(steps), result=True)

    def fresh(self) -> str | None:
        """Add an intermediate of one dimension or more, in memory of its own."""

        def draw() -> str | None:
            name = self.pick(self.tensors(lambda t: t.dim() > 0 and t.is_floating_point()))
            return name and self.attempt(
                name,
                self.rng.choice((Step("mul", (2.0,)), Step("sin"), Step("clone"))),
                result=True,
                no_grad=0.0,
            )

        return self.several(draw)

    def detach(self, of: list[str] | None = None) -> str | None:
        """Add a detached alias."""
        name = self.pick(of or self.tensors())
        return name and self.attempt(name, Step("detach"), result=True, no_grad=0.0)

    def write_input(self) -> str | None:
        """Write to an argument's memory, through the argument or a view of it."""
        return self.several(lambda: self._write(self.pick(self.tensors(self.of_input))))

    def write_intermediate(self) -> str | None:
        """Write to memory that the body made."""
        names = self.tensors(lambda tensor: not self.of_input(tensor))
        return self.several(lambda: self._write(self.pick(names))) if names else self.fresh()

    def _write(self, name: str | None) -> str | None:
        if name is None:
            return None
        value = self.variables[name]
        if not value.is_floating_point():
            return self.attempt(
                name, self.rng.choice((Step("add_", (3,)), Step("fill_", (2,)))), result=False, no_grad=0.4
            )
        same = self.tensors(lambda other: other.shape == value.shape and other.is_floating_point())
        other = Ref(self.rng.choice(same))
        steps = [
            Step("mul_", (1.5,)),
            Step("add_", (0.5,)),
            Step("sin_"),
            Step("fill_", (2.0,)),
            Step("add_", (other,)),
            Step("mul_", (other,)),
            Step("copy_", (other,)),
        ]
        if value.dim():
            steps += [
                Step("[]=", (0, 2.5)),
                Step("[]=", (slice(None), other)),
                Step("[]=", (slice(1, None), -1.0)),
            ]
        needs_block = value.requires_grad and value.is_leaf
        return self.attempt(name, self.rng.choice(steps), result=False, no_grad=0.9 if needs_block else 0.1)

    def change_metadata(self) -> str | None:
        """Change an argument's sizes and strides in place."""

        def draw() -> str | None:
            name = self.rng.choice(self.inputs)
            value = self.variables[name]
            steps = [Step("t_"), Step("unsqueeze_", (0,)), Step("unsqueeze_", (-1,)), Step("squeeze_")]
            steps += [Step("transpose_", (0, 1))] * (value.dim() >= 2)
            needs_block = value.requires_grad and value.is_leaf
            return self.attempt(
                name, self.rng.choice(steps), result=False, no_grad=0.9 if needs_block else 0.1
            )

        return self.several(draw)

    # Outputs.

    def output(self, kind: str) -> list[Any] | None:
        """Return outputs of the kind asked for, adding the statements they need; None if nothing fitted."""
        match kind:
            case "fresh":
                return _if_all(self.fresh())
            case "input":
                return _if_all(self.rng.choice(self.inputs))
            case "view of input":
                return _if_all(self.view(self.inputs))
            case "view of written memory":
                # Made before or after the write, and more often than not of another argument than the written.
                first, second = self.rng.sample([lambda: self.view(self.inputs), self.write_input], 2)
                names = [first(), second()]
                views = [name for name in names if name not in (None, *self.inputs)]
                return _if_all(*views[:1]) if all(names) and views else None
            case "intermediate":
                name = self.fresh()
                return name and _if_all(name, self.compute([name]))
            case "view of intermediate":
                name = self.fresh()
                return name and _if_all(self.view([name]), *[name] * self.rng.randint(0, 1))
            case "two views of one intermediate":
                name = self.fresh()
                return name and _if_all(
                    self.view([name]), self.view([name]), *[name] * self.rng.randint(0, 1)
                )
            case "written input":
                written = self.write_input()
                return (
                    _if_all(written if written in self.inputs else self.rng.choice(self.inputs))
                    if written
                    else None
                )
            case "detached alias":
                source = self.inputs if self.rng.random() < 0.7 else [self.fresh() or self.inputs[0]]
                return _if_all(self.detach(source))
            case "same object twice":
                name = self.rng.choice(self.tensors())
                return _if_all(name, name)
            case "non-tensor":
                return [self.rng.choice((5, None, 2.5, "text"))]
        raise AssertionError(kind)

    def outputs_with(self, focus: list[Any]) -> tuple[Any, ...]:
        """Return the outputs asked for and up to two more, in random order."""
        more: list[Any] = [Ref(name) for name in self.tensors()]
        outputs = [*focus, *self.rng.sample(more, min(len(more), self.rng.choice((0, 1, 1, 2))))]
        self.rng.shuffle(outputs)
        return tuple(outputs)


def _if_all(*names: str | None) -> list[Any] | None:
    return [Ref(name) for name in names if name] if all(names) else None


def is_undefined(statement: Statement, variables: dict[str, Any]) -> bool:
    """Whether a statement writes one place twice, or reads in another order what it writes."""
    written = elements(variables[statement.receiver.name])
    if len(set(written)) != len(written):
        return True
    for operand in statement.operands:
        value = variables[operand.name]
        read = (
            elements(value.expand(variables[statement.receiver.name].shape))
            if value.dim() == 0
            else elements(value)
        )
        if read != written and not set(read).isdisjoint(written):
            return True
    return False
