"""Torch's database of operators, captured, replayed on other values, and compared with eager bit by bit.

Every sample of every operator goes through the same steps, on the simulator or on a device::

    record the operator on the sample          inputs and random numbers must be as before
    change the inputs in place
    replay                                     outputs, and what it did to the inputs, are kept
    put the changed inputs back, run eagerly   must give the same bits

An *entry* is an operator in one of three forms: called, called in place, or called with its backward.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch

from aot_core.testing.operators import op_database, operators_not_seeded
from aot_cudagraphs import _compat
from aot_cudagraphs.engine import Engine
from aot_cudagraphs.errors import CaptureRefusedError

__all__ = [
    "UNDER_A_MODE",
    "Entry",
    "EntryResult",
    "Form",
    "Outcome",
    "copied_sample",
    "entries",
    "run_entry",
    "run_sample",
]

Form = Literal["call", "in-place", "backward"]
Status = Literal["exact", "refused", "mismatch", "error", "not-run"]

UNDER_A_MODE = "eager's bits under a dispatch mode"

# What these return, or part of it, is undefined.
_UNDEFINED = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
)


@dataclasses.dataclass(frozen=True)
class Entry:
    """An operator of the database, in one form."""

    info: Any
    form: Form

    @property
    def name(self) -> str:
        """Its name in reports: ``"nn.functional.relu (in-place)"``."""
        variant = f".{self.info.variant_test_name}" if self.info.variant_test_name else ""
        return f"{self.info.name}{variant} ({self.form})"

    @property
    def function(self) -> Callable[..., Any]:
        """What to call with a sample."""
        operator: Callable[..., Any] = (
            self.info.get_inplace() if self.form == "in-place" else self.info.get_op()
        )
        return operator

    def samples(self, device: str, dtype: torch.dtype) -> Iterator[Any]:
        """Yield the sample inputs; fewer for in-place calls, whose result must fit."""
        samples = iter(self.info.sample_inputs(device, dtype, requires_grad=self.form == "backward"))
        while True:
            with warnings.catch_warnings():
                # Some are made with what is in beta, or deprecated.
                warnings.simplefilter("ignore")
                sample = next(samples, None)
            if sample is None:
                return
            if self.form != "in-place" or not sample.broadcasts_input:
                yield sample


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one sample.

    Args:
        status: ``"exact"``: captured, and the replay gave eager's bits. ``"refused"``. ``"mismatch"``: the replay gave
            other bits, silently. ``"error"``: capture or replay raised something else. ``"not-run"``: eager itself
            fails.
        detail: The refusal's code, the message, what differs; or `UNDER_A_MODE` for bits that are eager's where a
            dispatch mode is active, as one is while the simulator captures. Autograd then takes other formulas for
            some derivatives.
        op: The refused operation, of a refusal.
    """

    status: Status
    detail: str = ""
    op: str = ""


@dataclasses.dataclass(frozen=True)
class EntryResult:
    """What became of all samples of an entry."""

    entry: Entry
    outcomes: tuple[Outcome, ...]

    @property
    def status(self) -> Status:
        """The worst of the samples, with a refused sample counting only where none was accepted."""
        found = Counter(outcome.status for outcome in self.outcomes)
        order: tuple[Status, ...] = ("mismatch", "error", "exact", "refused")
        return next((status for status in order if found[status]), "not-run")


def entries(*forms: Form, dtype: torch.dtype = torch.float32, device: str = "cpu") -> list[Entry]:
    """Return the entries of the database that support a dtype on a device.

    Args:
        forms: Which; all by default.
        dtype: The dtype of samples.
        device: ``"cpu"`` or ``"cuda"``.
    """
    with warnings.catch_warnings():
        # It can do without hypothesis, and says so.
        warnings.simplefilter("ignore", ImportWarning)
        database = op_database()
    found = []
    for info in database:
        supported = dtype in info.supported_dtypes(device)
        possible: dict[Form, bool] = {
            "call": supported,
            "in-place": supported and info.get_inplace() is not None,
            "backward": info.supports_autograd and dtype in info.supported_backward_dtypes(device),
        }
        found += [Entry(info, form) for form in forms or tuple(possible) if possible[form]]
    return found


def run_entry(
    engine: Engine,
    entry: Entry,
    *,
    dtype: torch.dtype = torch.float32,
    max_samples: int | None = None,
) -> EntryResult:
    """Capture, replay and compare each sample of an entry on the CPU, or the first ``max_samples``."""
    samples = itertools.islice(entry.samples("cpu", dtype), max_samples)
    return EntryResult(entry, tuple(run_sample(engine, entry, sample) for sample in samples))


def run_sample(engine: Engine, entry: Entry, sample: Any, *, seed: int = 0) -> Outcome:
    """Capture, replay and compare one sample.

    Args:
        engine: Captures and replays.
        entry: The operator.
        sample: One of its samples. Its tensors are changed.
        seed: What random numbers start from.
    """
    with warnings.catch_warnings(), operators_not_seeded():
        # Samples provoke the warnings of their operators on purpose.
        warnings.simplefilter("ignore")
        try:
            return _Trial(engine, entry, sample, seed).run()
        except Exception as error:
            return Outcome(
                "error", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            )


def copied_sample(sample: Any) -> tuple[Any, Any, Any]:
    """Return input, positional and keyword arguments of a sample, tensors copied and without history."""
    tree = (sample.input, sample.args, sample.kwargs)
    copied: tuple[Any, Any, Any] = _compat.pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.detach().clone(), tree
    )
    return copied


class _Trial:
    """One sample on its way."""

    def __init__(self, engine: Engine, entry: Entry, sample: Any, seed: int) -> None:
        self.engine = engine
        self.entry = entry
        self.sample = sample
        self.seed = seed
        tree = (sample.input, sample.args, sample.kwargs)
        self.leaves, self.structure = _compat.pytree.tree_flatten(tree)
        tensors = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]
        self.memory = _Memory(tensors)
        self.device = tensors[0].device if tensors else torch.device("cpu")

    def run(self) -> Outcome:
        start = self.memory.save()
        failed = self._eager()
        if isinstance(failed, Exception):
            return Outcome("not-run", str(failed)[:100])
        self.memory.restore(start)
        random_state = torch.get_rng_state()
        try:
            recording = self.engine.record(self._call, [], self.engine.new_pool(self.device))
        except CaptureRefusedError as error:
            if self.memory.differs_from(start) or not torch.equal(random_state, torch.get_rng_state()):
                return Outcome("mismatch", "a refused capture left traces")
            return Outcome("refused", error.refusal.code, error.refusal.op)
        if self.memory.differs_from(start) or not torch.equal(random_state, torch.get_rng_state()):
            return Outcome("mismatch", "capturing left traces")
        return self._compare(recording, start)

    def _compare(self, recording: Any, start: list[torch.Tensor]) -> Outcome:
        changed = self._changed(start)
        self._seed()
        self.memory.restore(changed)
        recording.replay()
        got = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in recording.outputs]
        got_memory, got_random = self.memory.save(), torch.get_rng_state()
        recording.release()
        found = ""
        for mode in (contextlib.nullcontext, _compat.PassiveMode):
            self.memory.restore(changed)
            with mode():
                expected = self._eager()
            if isinstance(expected, Exception):
                return Outcome("not-run", f"eager on changed inputs: {str(expected)[:80]}")
            difference = self._difference(got, got_memory, got_random, expected)
            if not difference:
                return Outcome("exact", found and UNDER_A_MODE)
            found = found or difference
        return Outcome("mismatch", found)

    def _difference(
        self, got: list[Any], memory: list[torch.Tensor], random: torch.Tensor, expected: list[Any]
    ) -> str:
        """Return in what a replay differs from the eager call that has just been made; empty if in nothing."""
        if self.memory.differs_from(memory):
            return "inputs afterwards differ"
        if not torch.equal(random, torch.get_rng_state()):
            return "random state afterwards differs"
        if self.entry.info.name in _UNDEFINED:
            expected, got = [_shape(leaf) for leaf in expected], [_shape(leaf) for leaf in got]
        if len(got) != len(expected) or not all(map(_same, got, expected)):
            return "outputs differ"
        return ""

    def _changed(self, start: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return other contents for the inputs, on which eager runs as well."""
        for change in (_change, _change_floats):
            changed = [change(values) for values in start]
            self.memory.restore(changed)
            if not isinstance(self._eager(), Exception):
                return changed
        return start

    def _eager(self) -> Any:
        self._seed()
        try:
            return _compat.pytree.tree_leaves(self._call([]))
        except Exception as error:
            return error

    def _seed(self) -> None:
        # torch.manual_seed keeps a stack trace for devices that do not exist, which takes a millisecond.
        torch.default_generator.manual_seed(self.seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(self.seed)

    def _call(self, _: list[Any]) -> Any:
        # New tensors on the same memory: an operator may change the sizes of what it is given.
        backward = self.entry.form == "backward"
        leaves = [_alias(leaf, backward) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        given, args, kwargs = _compat.pytree.tree_unflatten(leaves, self.structure)
        with torch.set_grad_enabled(backward):
            returned = self.entry.function(given, *args, **kwargs)
        if not backward:
            return returned
        returned = self.sample.output_process_fn_grad(returned)
        outputs = [
            leaf
            for leaf in _compat.pytree.tree_leaves(returned)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if not outputs or not wanted:
            return returned
        tangents = [torch.full_like(output, 0.5) for output in outputs]
        gradients = torch.autograd.grad(outputs, wanted, tangents, allow_unused=True)
        return [leaf.detach() for leaf in outputs], gradients


class _Memory:
    """All storages that some tensors lie in."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        found = {}
        for tensor in tensors:
            if tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                found[storage.data_ptr()] = _whole(tensor)
        self.wholes = list(found.values())

    def save(self) -> list[torch.Tensor]:
        return [whole.clone() for whole in self.wholes]

    def restore(self, saved: Sequence[torch.Tensor]) -> None:
        for whole, values in zip(self.wholes, saved, strict=True):
            whole.copy_(values)

    def differs_from(self, saved: Sequence[torch.Tensor]) -> bool:
        return not all(map(_same, self.wholes, saved))


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return a flat tensor of everything in a tensor's storage."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return whole.set_(tensor.untyped_storage(), 0, (count,), (1,))


def _alias(tensor: torch.Tensor, backward: bool) -> torch.Tensor:
    alias = tensor.detach()
    return alias.requires_grad_() if backward and tensor.requires_grad else alias


def _change(values: torch.Tensor) -> torch.Tensor:
    """Return other values of the same kind: still positive, still symmetric, still indices in range."""
    if values.is_floating_point() or values.is_complex():
        return values * 0.75
    return values.flip(0)


def _change_floats(values: torch.Tensor) -> torch.Tensor:
    return _change(values) if values.is_floating_point() or values.is_complex() else values


def _shape(leaf: Any) -> Any:
    return leaf.shape if isinstance(leaf, torch.Tensor) else leaf


def _same(one: Any, other: Any) -> bool:
    """Tell whether two values are the same bit by bit; any NaN is the same as any other."""
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return bool(one == other)
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    # Equal bytes are compared first: not every dtype knows ==.
    if torch.equal(_bytes(one), _bytes(other)):
        return True
    if not (one.is_floating_point() or one.is_complex()):
        return False
    return torch.equal(one.isnan(), other.isnan()) and torch.equal(
        _bytes(one.masked_fill(one.isnan(), 0)), _bytes(other.masked_fill(other.isnan(), 0))
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.resolve_conj().resolve_neg().flatten()
    # One element is contiguous whatever its stride, but only seen as bytes with a stride of 1.
    return flat.clone(memory_format=torch.contiguous_format).view(torch.uint8)
