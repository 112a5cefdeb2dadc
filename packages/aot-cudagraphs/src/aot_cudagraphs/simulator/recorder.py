"""Capturing: every operation is refused or noted down with the addresses it touches.

CUDA captures without executing. Here operations have to run, since the ones that follow need sizes and the like; what
that changes is undone at the end: memory outside, memory of the pool that was in use before, random numbers.

A result in new memory is moved into the pool at once, and what follows sees it there::

    native memory          pool
    add(x, y)  ──────────> block at 0x7f00   Step(add, (x at 0x55a0, y at 0x55c0), result at 0x7f00)
    the tensor that the function gets is the one in the pool
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch

from aot_core.analysis import find_written_tensors
from aot_cudagraphs import _compat
from aot_cudagraphs.errors import CaptureRefusedError
from aot_cudagraphs.refusals import Refusal, named_refusal, refusal_of_call
from aot_cudagraphs.simulator.addresses import OutsideMemory, copied, copy_bytes, same_view, tensor_at
from aot_cudagraphs.simulator.host_calls import host_calls_refused
from aot_cudagraphs.simulator.host_memory import as_host, is_host
from aot_cudagraphs.simulator.pool import Range, SimulatedPool, poison, subtract
from aot_cudagraphs.simulator.step import Result, Step

__all__ = ["Recorder", "is_capturing"]

# A stream is captured per device and process; a second capture fails there, and here.
_capture = threading.Lock()
_capturing_thread: int | None = None

# These give out memory and run nothing: what is in it is undefined, and poisoned here.
_ALLOCATE_ONLY = {
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
}
_RESIZE = {"aten::resize_", "aten::resize_as_"}
_SET_STORAGE = {"aten::set_", "aten::set_data"}


def is_capturing() -> bool:
    """Tell whether the calling thread is capturing."""
    return _capturing_thread == threading.get_ident()


class Recorder(_compat.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes down what one function does, see `recording`.

    Args:
        pool: Where new memory comes from.
        generators: Generators that may be drawn from besides the default one.

    Attributes:
        steps: The recorded operations.
        outside: Memory outside all pools that they touch.
        fresh: Memory that was free before, and is rubbish until a replay writes it.
        dead: Memory that is free again at the end, and is rubbish after a replay.
    """

    def __init__(self, pool: SimulatedPool, generators: Sequence[torch.Generator]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pool = pool
        self.generators = [torch.default_generator, *generators]
        self.steps: list[Step] = []
        self.outside = OutsideMemory()
        self.fresh: list[Range] = []
        self.dead: list[Range] = []
        self._error: CaptureRefusedError | None = None
        self._overwritten: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._random_states: list[torch.Tensor] = []

    # --- the capture as a whole ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Capture what the ``with`` block does; at its end, nothing has changed but `steps` and the pool.

        Raises:
            CaptureRefusedError: another capture is under way, or the block did what can't be captured, even if it
                went on afterwards.
        """
        with self._alone(), self._undone():
            with host_calls_refused(self._refuse), self:
                yield
            self._check_random_states("the end of the capture")
            if self._error is not None:
                raise self._error

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        global _capturing_thread
        if not _capture.acquire(blocking=False):
            raise CaptureRefusedError(named_refusal("concurrent-capture", "A capture"))
        _capturing_thread = threading.get_ident()
        try:
            yield
        finally:
            _capturing_thread = None
            _capture.release()

    @contextlib.contextmanager
    def _undone(self) -> Iterator[None]:
        before = self.pool.live()
        contents = [(address, ctypes.string_at(address, size)) for address, size in before]
        random_states = [generator.get_state() for generator in self.generators]
        self._random_states = list(random_states)
        self.pool.start_journal()
        try:
            yield
        finally:
            given_out = self.pool.stop_journal()
            self.fresh = subtract(given_out, before)
            self.dead = subtract(given_out, self.pool.live())
            for storage, saved in self._overwritten.values():
                # A storage may be resized without an operator, as FSDP does to free parameters.
                if storage.nbytes() == saved.nbytes():
                    storage.copy_(saved)
            self._overwritten.clear()
            for address, data in contents:
                ctypes.memmove(address, data, len(data))
            poison(self.fresh)
            for generator, state in zip(self.generators, random_states, strict=True):
                generator.set_state(state)

    def _refuse(self, refusal: Refusal) -> NoReturn:
        # A refused capture stays refused, whatever the function makes of the exception.
        if self._error is None:
            self._error = CaptureRefusedError(refusal, _calling_line())
        raise self._error

    # --- one operation -------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._error is not None:
            raise self._error
        if _compat.is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        tensors = [
            leaf for leaf in _compat.pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
        ]
        if tensors and all(map(is_host, tensors)) and all(tensor.dim() == 0 for tensor in tensors):
            return _compat.pytree.tree_map_only(torch.Tensor, as_host, func(*args, **kwargs))
        refusal = refusal_of_call(func, args, kwargs, is_host=is_host)
        if refusal is not None:
            self._refuse(refusal)
        if _compat.has_tag(func, "nondeterministic_seeded"):
            self._check_generator(func, kwargs)
        if func._schema.name in _RESIZE:
            return self._resize(func, args, kwargs)
        returned = self._run(func, args, kwargs, tensors)
        self._random_states = [generator.get_state() for generator in self.generators]
        return returned

    def _run(self, func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
        written = find_written_tensors(func, args, kwargs)
        for tensor in written:
            self._keep_contents(tensor)
        outs = {
            argument.name: kwargs[argument.name] for argument in func._schema.arguments if argument.is_out
        }
        before = self._at_addresses(args), self._at_addresses(kwargs)
        if outs:
            # An operator may make its out= argument larger, which memory of a pool can't be.
            returned = self._run_with_outs(func, args, kwargs, outs)
            before = before[0], self._at_addresses(kwargs)
        else:
            returned = func(*args, **kwargs)
        known = {_compat.storage_key(tensor.untyped_storage()) for tensor in tensors}
        moved, results = self._move_into_pool(func, returned, known)
        only_views = not results and not written and bool(_compat.pytree.tree_leaves(returned))
        only_metadata = _compat.has_tag(func, "inplace_view") or func._schema.name in _SET_STORAGE
        if not (only_views or only_metadata or func._schema.name in _ALLOCATE_ONLY):
            self.steps.append(Step(func, before[0], before[1], tuple(results)))
        return moved

    def _at_addresses(self, tree: Any) -> Any:
        return _compat.pytree.tree_map_only(torch.Tensor, self._at_address, tree)

    def _at_address(self, tensor: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(False):
            if _compat.is_zero_tensor(tensor):
                return tensor
            if is_host(tensor):
                # Read when the kernel is launched: the number becomes part of the graph.
                return tensor.clone()
            self.outside.add(tensor)
            return tensor_at(tensor)

    def _keep_contents(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = _compat.storage_key(storage)
        if not self.pool.owns(storage.data_ptr()) and key not in self._overwritten:
            self._overwritten[key] = (storage, copied(storage))

    def _move_into_pool(self, func: Any, returned: Any, known: set[int]) -> tuple[Any, list[Result]]:
        """Move results in new memory into the pool; return them there, and what to write at replay."""
        leaves, structure = _compat.pytree.tree_flatten(returned)
        storages: dict[int, torch.UntypedStorage] = {}
        results = []
        for position, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor):
                continue
            if leaf.layout is not torch.strided:
                self._refuse(named_refusal("sparse-layout", str(func)))
            if _compat.is_zero_tensor(leaf):
                continue
            storage = leaf.untyped_storage()
            key, nbytes = _compat.storage_key(storage), storage.nbytes()
            if key in known or nbytes == 0:
                continue
            if key not in storages:
                storages[key] = self.pool.allocate(nbytes)
                copy_bytes(storage, storages[key].data_ptr())
                address = storages[key].data_ptr()
                results.append(Result(position, address, nbytes, leaf.size(), leaf.stride()))
            leaves[position] = same_view(leaf, storages[key])
        return _compat.pytree.tree_unflatten(leaves, structure), results

    # --- memory that changes its size ----------------------------------------------------------------------

    def _run_with_outs(self, func: Any, args: Any, kwargs: Any, outs: dict[str, torch.Tensor]) -> Any:
        copies = {
            name: same_view(out, copied(out.untyped_storage()))
            for name, out in outs.items()
            if out is not None
        }
        returned = func(*args, **{**kwargs, **copies})
        for name, copy in copies.items():
            self._take_over(outs[name], copy)
        position = {id(copy): outs[name] for name, copy in copies.items()}
        return _compat.pytree.tree_map_only(torch.Tensor, lambda leaf: position.get(id(leaf), leaf), returned)

    def _take_over(self, tensor: torch.Tensor, copy: torch.Tensor) -> None:
        """Give a tensor the contents of a copy, and new memory in the pool if that has become larger."""
        storage, native = tensor.untyped_storage(), copy.untyped_storage()
        if native.nbytes() != storage.nbytes():
            storage = self.pool.allocate(native.nbytes())
        if native.nbytes():
            copy_bytes(native, storage.data_ptr())
        with torch.no_grad():
            tensor.set_(storage, copy.storage_offset(), copy.size(), copy.stride())

    def _resize(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensor = args[0]
        self._keep_contents(tensor)
        old = tensor.untyped_storage()
        copy = same_view(tensor, copied(old))
        func(copy, *args[1:], **kwargs)
        self._take_over(tensor, copy)
        new = tensor.untyped_storage()
        if old.nbytes() and new.data_ptr() != old.data_ptr():
            # What fits is copied over, by the device.
            count = min(old.nbytes(), new.nbytes())
            pair = [
                torch.empty(0, dtype=torch.uint8).set_(storage, 0, (count,), (1,)) for storage in (new, old)
            ]
            self.steps.append(Step(torch.ops.aten.copy_.default, tuple(self._at_addresses(pair)), {}, ()))
        return tensor

    # --- random numbers ------------------------------------------------------------------------------------

    def _check_generator(self, func: Any, kwargs: Any) -> None:
        generator = kwargs.get("generator")
        known = map(_compat.generator_key, self.generators)
        if generator is not None and _compat.generator_key(generator) not in known:
            self._refuse(named_refusal("unregistered-generator", str(func)))
        self._check_random_states(str(func))

    def _check_random_states(self, where: str) -> None:
        """Refuse if a generator is not where the last operation left it: the host has set its state."""
        for generator, state in zip(self.generators, self._random_states, strict=True):
            if self._error is None and not torch.equal(generator.get_state(), state):
                self._refuse(named_refusal("host-random-state", f"What was done before {where}"))


_HERE = str(Path(__file__).parents[1])
_TORCH = str(Path(torch.__file__).parent)


def _calling_line() -> str | None:
    """Return the line of the captured function that is being executed, torch's own frames left out."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if frame.f_code.co_name == "record" and file.startswith(_HERE):
            return None
        if not file.startswith(("<", _HERE, _TORCH)):
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return None
