"""One training run that can be stopped after any step and resumed, so that several take turns."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from aot_core import CompileReport, record_reports
from aot_registry import _compat
from aot_registry.bench.errors import WorkloadContractError
from aot_registry.bench.rng import isolated_rng, seed_step
from aot_registry.bench.workloads.workload import Workload, call_model

__all__ = ["CompileModel", "TrainingRun"]

CompileModel = Callable[[nn.Module], Callable[..., Any]]
"""Turns a model into what is called in its place: ``torch.compile`` with a backend, or the identity."""


@dataclasses.dataclass
class TrainingRun:
    """A contender's training: its own copy of the model, its own optimizer, its own streams of random numbers.

    Nothing a run does is seen by another, whatever order they take turns in: the copy starts from the
    workload's initial parameters, step ``i`` starts from random state ``(seed, i)``, and the process's random
    state is put back after each turn.

    Args:
        workload: What to train.
        compile_model: How this contender runs it.
        seed: Seeds the random numbers of the steps.

    Attributes:
        losses: One per step taken so far.
        graphs: How many graphs Dynamo has compiled in this run's turns.
        reports: The `CompileReport` of each graph that a backend of this family compiled.
    """

    workload: Workload
    compile_model: CompileModel
    seed: int
    losses: list[float] = dataclasses.field(default_factory=list, init=False)
    graphs: int = dataclasses.field(default=0, init=False)
    reports: list[CompileReport] = dataclasses.field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.model = copy.deepcopy(self.workload.model)
        self.optimizer = self.workload.make_optimizer(
            [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        )
        self._called = self.compile_model(self.model)

    def take_steps(self, count: int) -> float:
        """Take the next ``count`` steps and append their losses.

        Returns:
            Wall time in seconds, until the device has finished.

        Raises:
            WorkloadContractError: the loss is not a tensor with one element.
        """
        losses = []
        with self._turn():
            self._synchronize()
            start = time.perf_counter()
            for step in range(len(self.losses), len(self.losses) + count):
                seed_step(self.seed, step)
                losses.append(self._step(step))
            self._synchronize()
            seconds = time.perf_counter() - start
        # Read only now: each item() waits for the device, which would hide what a backend overlaps.
        self.losses += [float(loss) for loss in losses]
        return seconds

    def probe_step(self, observe: Callable[[Callable[[], None]], int | None]) -> int | None:
        """Let ``observe`` watch one further step, whose loss is not recorded.

        Args:
            observe: Is handed the step, has to call it, and returns what it found out.

        Returns:
            What ``observe`` returned.
        """
        step = len(self.losses)

        def take() -> None:
            self._step(step)

        with self._turn():
            self.optimizer.zero_grad(set_to_none=True)
            seed_step(self.seed, step)
            return observe(take)

    def state_bytes(self) -> int:
        """Return what lives between steps: parameters, buffers, optimizer state and one batch, in bytes.

        Tensors that share storage count once. Gradients are not counted: they die before each step.
        """
        inputs, target = self.workload.batches[len(self.losses) % len(self.workload.batches)]
        optimizer_state = list(self.optimizer.state.values())
        held = [*self.model.parameters(), *self.model.buffers(), optimizer_state, inputs, target]
        storages = {storage.data_ptr(): storage.nbytes() for storage in _storages(held)}
        return sum(storages.values())

    def _step(self, step: int) -> torch.Tensor:
        inputs, target = self.workload.batches[step % len(self.workload.batches)]
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.workload.loss_fn(call_model(self._called, inputs), target)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            got = f"shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise WorkloadContractError(
                f"{self.workload.name}: loss_fn(output, target) must return a tensor with one element, got "
                f"{got}. Reduce it, as by .mean()."
            )
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        graphs = _compat.compiled_graph_count()
        try:
            with isolated_rng(self.seed), record_reports() as reports:
                yield
        finally:
            self.reports += reports
            self.graphs += _compat.compiled_graph_count() - graphs

    def _synchronize(self) -> None:
        if self.workload.device.type != "cpu":
            torch.accelerator.synchronize()


def _storages(value: Any) -> Iterator[torch.UntypedStorage]:
    if isinstance(value, torch.Tensor):
        yield value.untyped_storage()
    elif isinstance(value, dict):
        yield from _storages(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _storages(item)
