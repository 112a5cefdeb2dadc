"""What a fusion means: nvFuser's operations by torch's eager kernels, on any device.

It stands in the place of nvFuser's ``FusionDefinition`` and is written from what nvFuser does, not from what ATen
does, since it is there to find where the two differ: 16-bit floats are computed in float32 and left there, ``div`` of
integers truncates, a float makes a double of an integer tensor, reductions accumulate in the dtype that they are
given, operands of a different rank are not aligned, and a slice has steps of 1.

Two paths lead here: a translated `Definition` is replayed into it, with exact constants; and nvFuser's own printed
form of a fusion is run by it, see `run_printed`.
"""

from __future__ import annotations

import builtins
import enum
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from aot_partition.nvfuser.definition import DATA_TYPES, Definition

__all__ = ["DataType", "FusionSemanticsError", "Interpreter", "interpret", "run_printed"]


class DataType(enum.Enum):
    """Stands for nvFuser's own."""

    Double = torch.float64
    Float = torch.float32
    Half = torch.float16
    BFloat16 = torch.bfloat16
    Int = torch.int64
    Int32 = torch.int32
    Bool = torch.bool
    Index = "index"
    Null = "null"


_DTYPES: dict[Any, torch.dtype] = {
    **{getattr(DataType, name): dtype for dtype, name in DATA_TYPES.items()},
    DataType.Index: torch.int64,
}
_NARROW = (torch.float16, torch.bfloat16)


class FusionSemanticsError(Exception):
    """A fusion says what nvFuser does not allow."""


def interpret(definition: Definition, inputs: Sequence[Any]) -> list[Any]:
    """Run a definition.

    Args:
        definition: A fusion.
        inputs: Tensors and numbers, in the order in which it defines them.

    Raises:
        FusionSemanticsError: it says what nvFuser would refuse.
    """
    interpreter = Interpreter(inputs)
    definition.replay(interpreter, DataType)
    return interpreter.outputs


def run_printed(text: str, inputs: Sequence[Any]) -> list[Any]:
    """Run a fusion as nvFuser prints it, which has six digits of every constant.

    Args:
        text: What ``str()`` of nvFuser's ``FusionDefinition`` gives.
        inputs: Tensors and numbers, in the order in which it defines them.
    """
    interpreter = Interpreter(inputs)
    namespace: dict[str, Any] = {"FusionDefinition": object, "DataType": DataType, "torch": torch}
    exec(text, namespace)
    (function,) = (each for name, each in namespace.items() if re.fullmatch(r"nvfuser_fusion.*", name))
    function(interpreter)
    return interpreter.outputs


class Interpreter:
    """Stands for nvFuser's ``FusionDefinition``: what is defined is computed at once.

    Args:
        inputs: Tensors and numbers, in the order in which they will be defined.

    Attributes:
        ops: The operations.
        outputs: What was returned so far; an output that is written over an input is not among them.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self.ops = _Operations()
        self.outputs: list[Any] = []
        self._inputs = list(inputs)

    def define_tensor(
        self,
        shape: Sequence[int],
        contiguity: Sequence[bool | None] | bool,
        dtype: Any,
        is_cpu: bool = False,
        stride_order: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """Take the next input, which has to be what is said of it."""
        tensor: torch.Tensor = self._inputs.pop(0)
        if tensor.dtype != _DTYPES[dtype]:
            raise FusionSemanticsError(f"an input is defined as {dtype.name} and has {tensor.dtype}")
        if len(shape) != tensor.dim():
            raise FusionSemanticsError(
                f"an input is defined with shape {shape} and has {tuple(tensor.shape)}"
            )
        for said, size in zip(shape, tensor.shape, strict=True):
            if said not in (-1, size) or (said == -1 and size == 1):
                raise FusionSemanticsError(
                    f"an input is defined with shape {shape}, has {tuple(tensor.shape)}"
                )
        _check_memory(tensor, contiguity, stride_order)
        return tensor

    def define_scalar(self, value: Any = None, dtype: Any = None) -> Any:
        """Take the next input, or a constant."""
        number = self._inputs.pop(0) if value is None else value
        return number if dtype is None else _as_number(number, _DTYPES[dtype])

    def add_output(self, value: Any, alias_input: Any = None) -> None:
        """Return a value, or write it over an input."""
        if alias_input is None:
            self.outputs.append(value)
        else:
            alias_input.copy_(value)


def _check_memory(
    tensor: torch.Tensor, contiguity: Sequence[bool | None] | bool, stride_order: Sequence[int] | None
) -> None:
    """An input said to be contiguous is read as such: where it is not, nvFuser's result is silently wrong."""
    rank = tensor.dim()
    said = [contiguity] * rank if isinstance(contiguity, bool) else list(contiguity)
    places = list(reversed(range(rank))) if stride_order is None else list(stride_order)
    outer_to_inner = sorted(range(rank), key=lambda i: -places[i])
    inside: int | None = 1
    for place in reversed(range(rank)):
        i = outer_to_inner[place]
        size, stride = tensor.shape[i], tensor.stride(i)
        if (said[place] is None) != (size == 1 or stride == 0):
            raise FusionSemanticsError(
                f"contiguity {said} for sizes {tuple(tensor.shape)}, strides {tensor.stride()}"
            )
        if said[place] is None:
            inside = inside if size == 1 else None
            continue
        if said[place] and stride != inside:
            raise FusionSemanticsError(
                f"dimension {i} with strides {tensor.stride()} is said to be contiguous"
            )
        inside = size * stride


def _as_number(number: Any, dtype: torch.dtype) -> Any:
    if dtype is torch.bool:
        return bool(number)
    return float(number) if dtype.is_floating_point else int(number)


def _wide(x: Any) -> Any:
    """16-bit floats are computed in float32."""
    return x.float() if isinstance(x, torch.Tensor) and x.dtype in _NARROW else x


def _is_float(x: Any) -> bool:
    return x.dtype.is_floating_point if isinstance(x, torch.Tensor) else isinstance(x, float)


def _together(*operands: Any) -> list[Any]:
    """Operands in the dtype in which nvFuser combines them, of one rank; numbers stay numbers if all are."""
    made = [_wide(each) for each in operands]
    tensors = [each for each in made if isinstance(each, torch.Tensor)]
    if not tensors:
        return made
    ranks = {each.dim() for each in tensors}
    if len(ranks) > 1:
        raise FusionSemanticsError(f"operands of ranks {sorted(ranks)}")
    dtype = functools.reduce(torch.promote_types, (each.dtype for each in tensors))
    numbers = [each for each in made if not isinstance(each, torch.Tensor)]
    if not dtype.is_floating_point and any(isinstance(each, float) for each in numbers):
        dtype = torch.float64
    elif dtype is torch.bool and any(type(each) is int for each in numbers):
        dtype = torch.int64
    device = tensors[0].device
    return [
        each.to(dtype) if isinstance(each, torch.Tensor) else torch.tensor(each, dtype=dtype, device=device)
        for each in made
    ]


def _scalar_function(function: Callable[..., torch.Tensor], *operands: Any) -> Any:
    """Apply a function of tensors to numbers, in float64 and int64."""
    made = function(*(torch.tensor(x, dtype=torch.float64 if _is_float(x) else None) for x in operands))
    return made.item()


def _pair(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def compute(self: Any, a: Any, b: Any) -> Any:
        a, b = _together(a, b)
        return function(a, b) if isinstance(a, torch.Tensor) else _scalar_function(function, a, b)

    return compute


def _floating(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """A function that gives floats; of integers, float32."""

    def compute(self: Any, x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return _scalar_function(function, float(x))
        x = _wide(x)
        return function(x if x.dtype.is_floating_point else x.float())

    return compute


def _kept(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """A function that keeps the dtype, but for 16-bit floats."""

    def compute(self: Any, x: Any) -> Any:
        return function(_wide(x)) if isinstance(x, torch.Tensor) else _scalar_function(function, x)

    return compute


def _divided(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.true_divide(a, b) if a.dtype.is_floating_point else torch.div(a, b, rounding_mode="trunc")


def _exact_fmod(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The remainder as C and CUDA have it: torch's vectorized one is NaN where the quotient is huge."""
    if not a.dtype.is_floating_point:
        return torch.fmod(a, b)
    with np.errstate(invalid="ignore", divide="ignore"):
        made = np.fmod(*(each.contiguous().numpy() for each in torch.broadcast_tensors(a, b)))  # type: ignore[no-untyped-call]
    return torch.as_tensor(made, dtype=a.dtype)


def _logical(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def compute(self: Any, *operands: Any) -> Any:
        for each in operands:
            if isinstance(each, torch.Tensor) and each.dtype is not torch.bool:
                raise FusionSemanticsError(f"logic of {each.dtype}")
        made = _together(*operands)
        return function(*made) if isinstance(made[0], torch.Tensor) else _scalar_function(function, *made)

    return compute


_FLOATING = (
    "acos acosh asin asinh atan atanh cos cosh erf erfc erfinv exp exp2 expm1 lgamma log log10 log1p log2 reciprocal "
    "rsqrt sigmoid sin sinh sqrt tan tanh"
)
_KEPT = (
    "abs ceil floor frac neg relu round sign trunc bitwise_not isnan isinf isfinite isposinf isneginf signbit"
)
_PAIRS = "add sub mul pow maximum minimum remainder gcd eq ne lt le gt ge"


class _Operations:
    """nvFuser's ``fd.ops``."""

    # Of one operand.
    for _name in _FLOATING.split():
        locals()[_name] = _floating(getattr(torch, _name))
    silu = _floating(torch.nn.functional.silu)
    for _name in _KEPT.split():
        locals()[_name] = _kept(getattr(torch, _name))
    logical_not = _logical(torch.logical_not)
    erfcinv = _floating(lambda x: -torch.special.ndtri(x / 2) / math.sqrt(2.0))

    # Of two.
    for _name in _PAIRS.split():
        locals()[_name] = _pair(getattr(torch, _name))
    div = _pair(_divided)
    fmod = mod = _pair(_exact_fmod)
    bitwise_and, bitwise_or, bitwise_xor = (
        _pair(torch.bitwise_and),
        _pair(torch.bitwise_or),
        _pair(torch.bitwise_xor),
    )
    bitwise_left_shift = _pair(torch.bitwise_left_shift)
    bitwise_right_shift = _pair(torch.bitwise_right_shift)
    logical_and, logical_or = _logical(torch.logical_and), _logical(torch.logical_or)
    del _name

    def truediv(self, a: Any, b: Any) -> Any:
        """True division, of integers too."""
        a, b = _together(a, b)
        if not isinstance(a, torch.Tensor):
            return _scalar_function(torch.true_divide, float(a), float(b))
        return a / b if a.dtype.is_floating_point else a.float() / b.float()

    def atan2(self, a: Any, b: Any) -> Any:
        """The angle of a point."""
        a, b = _together(a, b)
        return torch.atan2(a, b) if a.dtype.is_floating_point else torch.atan2(a.float(), b.float())

    def nextafter(self, a: Any, b: Any) -> Any:
        """The next float."""
        return torch.nextafter(*_together(a, b))

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """A choice, whose alternatives are brought together."""
        if isinstance(condition, torch.Tensor) and condition.dtype is not torch.bool:
            raise FusionSemanticsError(f"a condition of {condition.dtype}")
        if not any(isinstance(each, torch.Tensor) for each in (condition, a, b)):
            return a if condition else b
        ranks = {each.dim() for each in (condition, a, b) if isinstance(each, torch.Tensor)}
        if len(ranks) > 1:
            raise FusionSemanticsError(f"operands of ranks {sorted(ranks)}")
        a, b = _together(a, b)
        if not isinstance(a, torch.Tensor):
            dtype = torch.float64 if isinstance(a, float) or isinstance(b, float) else torch.int64
            a, b = torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype)
        return torch.where(torch.as_tensor(condition), a, b)

    def cast(self, x: Any, dtype: Any) -> Any:
        """Another dtype."""
        return x.to(_DTYPES[dtype]) if isinstance(x, torch.Tensor) else _as_number(x, _DTYPES[dtype])

    def set(self, x: Any) -> Any:
        """A copy."""
        return x

    segment_set = set  # noqa: A003

    # Shapes.

    def stride_order(self, x: torch.Tensor, stride_order: Sequence[int]) -> torch.Tensor:
        """The same values, laid in memory in an order of dimensions; nvFuser prints an empty one for row-major."""
        stride_order = stride_order or list(reversed(range(x.dim())))
        outer_to_inner = sorted(range(x.dim()), key=lambda i: -stride_order[i])
        back = [outer_to_inner.index(i) for i in range(x.dim())]
        return x.permute(outer_to_inner).contiguous().permute(back)

    def size(self, x: torch.Tensor, dim: int) -> int:
        """A size."""
        return x.shape[dim]

    def permute(self, x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        """Dimensions in another order."""
        return x.permute(list(dims))

    def broadcast(self, x: torch.Tensor, is_broadcast_dim: Sequence[bool]) -> torch.Tensor:
        """Dimensions of size 1 more."""
        if is_broadcast_dim.count(False) != x.dim():
            raise FusionSemanticsError(f"{is_broadcast_dim} for a tensor of rank {x.dim()}")
        for i, new in enumerate(is_broadcast_dim):
            if new:
                x = x.unsqueeze(i)
        return x

    def broadcast_in_dim(
        self, x: torch.Tensor, shape: Sequence[int], broadcast_dims: Sequence[int]
    ) -> torch.Tensor:
        """Dimensions laid at places of a larger shape."""
        sizes = [1] * len(shape)
        for i, place in enumerate(broadcast_dims):
            sizes[place] = x.shape[i]
        return x.reshape(sizes).expand(list(shape))

    def expand(self, x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        """Dimensions of size 1 repeated."""
        if len(shape) != x.dim():
            raise FusionSemanticsError(f"a tensor of rank {x.dim()} expanded to {shape}")
        return x.expand(list(shape))

    def squeeze(self, x: torch.Tensor, dims: Sequence[int], squeeze_expanded: bool = False) -> torch.Tensor:
        """Without some dimensions of size 1."""
        for dim in sorted(dims, reverse=True):
            if x.shape[dim] != 1 and not squeeze_expanded:
                raise FusionSemanticsError(f"dimension {dim} of {tuple(x.shape)} squeezed")
            x = x.select(dim, 0)
        return x

    def reshape(self, x: torch.Tensor, new_shape: Sequence[int]) -> torch.Tensor:
        """Another shape."""
        return x.reshape(list(new_shape))

    def slice(
        self,
        x: torch.Tensor,
        start_indices: Sequence[int],
        end_indices: Sequence[int],
        strides: Sequence[int] | None = None,
        manual_normalization: bool = False,
    ) -> torch.Tensor:
        """A part, by steps of 1."""
        if strides is not None and any(step != 1 for step in strides):
            raise FusionSemanticsError(f"a slice by steps of {strides}")
        return x[tuple(map(builtins.slice, start_indices, end_indices))]

    def pad(self, x: torch.Tensor, pad_widths: Sequence[int], value: Any = 0) -> torch.Tensor:
        """Room around, from the last dimension on."""
        number = bool(value) if x.dtype is torch.bool else value
        return torch.nn.functional.pad(x, list(pad_widths), value=number)

    def cat(
        self, tensors: Sequence[torch.Tensor], dim: int = 0, manual_padding: bool = False
    ) -> torch.Tensor:
        """Side by side; padded to the result's size already, if it says so."""
        if len({each.dtype for each in tensors}) > 1:
            raise FusionSemanticsError("tensors of several dtypes side by side")
        if not manual_padding:
            return torch.cat(list(tensors), dim)
        return functools.reduce(torch.logical_or if tensors[0].dtype is torch.bool else torch.add, tensors)

    # Indices.

    def select(self, x: torch.Tensor, index: int, dim: int) -> torch.Tensor:
        """One index of a dimension."""
        return x.select(dim, index)

    def index_select(self, x: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
        """Along a dimension the elements at an index."""
        if index.dim() > 1 and index.numel() != builtins.max(index.shape):
            raise FusionSemanticsError(f"an index of shape {tuple(index.shape)}")
        _check_bounds(index, x.shape[dim])
        return torch.index_select(x, dim, index.reshape(-1))

    def gather(self, x: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
        """Per element of an index the element there."""
        _check_bounds(index, x.shape[dim])
        return torch.gather(x, dim, index.long())

    def take_along_axis(self, x: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
        """Per element of an index the element there, all other dimensions being those of the index."""
        _check_bounds(index, x.shape[dim])
        return torch.take_along_dim(x, index.long(), dim)

    def scatter(self, x: torch.Tensor, index: torch.Tensor, src: Any, dim: int) -> torch.Tensor:
        """Elements laid where an index says."""
        _check_bounds(index, x.shape[dim])
        return torch.scatter(x, dim, index.long(), src)

    def argsort(
        self, x: torch.Tensor, dim: int, descending: bool = False, stable: bool = False
    ) -> torch.Tensor:
        """Where elements come from, in order."""
        return torch.argsort(x, dim=dim, descending=descending, stable=True)

    def topk(
        self,
        x: torch.Tensor,
        k: int,
        dim: int = -1,
        largest: bool = True,
        sorted: bool = False,  # noqa: A002
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The largest elements, and where they come from."""
        values, places = torch.topk(x, k, dim, largest, sorted=True)
        return values, places

    # Tensors of numbers.

    def full(self, shape: Sequence[int], fill_value: Any, dtype: Any) -> torch.Tensor:
        """One number everywhere."""
        return torch.full(list(shape), fill_value, dtype=_DTYPES[dtype])

    def iota(self, length: int, start: int = 0, step: int = 1, dtype: Any = DataType.Int) -> torch.Tensor:
        """Evenly spaced integers."""
        return (torch.arange(length) * step + start).to(_DTYPES[dtype])

    # Reductions, in the dtype that they are given.

    def sum(
        self, x: torch.Tensor, dims: Sequence[int], keepdim: bool = False, dtype: Any = DataType.Null
    ) -> torch.Tensor:
        """The sum; without a dtype, integers and booleans become int64."""
        x = _widened(x) if dtype is DataType.Null else x.to(_DTYPES[dtype])
        if x.dtype in _NARROW:
            return _added_one_by_one(x, dims, keepdim)
        return torch.sum(x, tuple(dims), keepdim=keepdim, dtype=x.dtype)

    def prod(
        self, x: torch.Tensor, dims: Sequence[int], keepdim: bool = False, dtype: Any = DataType.Null
    ) -> torch.Tensor:
        """The product; without a dtype, of integers and booleans in int64."""
        x = _widened(x) if dtype is DataType.Null else x.to(_DTYPES[dtype])
        for dim in sorted(dims, reverse=True):
            x = torch.prod(x, dim, keepdim=keepdim, dtype=x.dtype)
        return x

    def max(
        self, x: torch.Tensor, dims: Sequence[int], keepdim: bool = False, dtype: Any = DataType.Null
    ) -> torch.Tensor:
        """The largest; NaN if one is."""
        return torch.amax(x, tuple(dims), keepdim=keepdim)

    def min(
        self, x: torch.Tensor, dims: Sequence[int], keepdim: bool = False, dtype: Any = DataType.Null
    ) -> torch.Tensor:
        """The smallest; NaN if one is."""
        return torch.amin(x, tuple(dims), keepdim=keepdim)

    def welford(
        self, x: torch.Tensor, dims: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The mean, the sum of squares about it, and the number of elements."""
        x = _wide(x)
        mean = x.mean(tuple(dims), keepdim=True)
        squares = (x - mean).square().sum(tuple(dims))
        count = math.prod(x.shape[dim] for dim in dims)
        return mean.squeeze(tuple(dims)), squares, torch.full_like(squares, count, dtype=torch.int64)

    def var_mean(
        self, x: torch.Tensor, dims: Sequence[int], correction: int = 1, keepdim: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The variance and the mean; the correction is a whole number."""
        if type(correction) is not int:
            raise FusionSemanticsError(f"a correction of {correction!r}")
        mean, squares, count = self.welford(x, dims)
        made = squares / (count - correction).clamp(min=0)
        return (_with_dims(made, dims), _with_dims(mean, dims)) if keepdim else (made, mean)

    def cumsum(self, x: torch.Tensor, dim: int, init: Any = None) -> torch.Tensor:
        """Sums up to each element."""
        return torch.cumsum(x, dim, dtype=x.dtype)

    def cummax(self, x: torch.Tensor, dim: int, init: Any = None) -> torch.Tensor:
        """The largest up to each element."""
        return torch.cummax(x, dim).values

    def cummin(self, x: torch.Tensor, dim: int, init: Any = None) -> torch.Tensor:
        """The smallest up to each element."""
        return torch.cummin(x, dim).values

    def uniform(
        self,
        minval: float,
        maxval: float,
        shape: Sequence[int],
        rng_seed: int,
        rng_offset: int,
        dtype: Any = DataType.Float,
    ) -> torch.Tensor:
        """Numbers from an interval; the same for the same seed and offset, and other ones than nvFuser's."""
        generator = torch.Generator().manual_seed(rng_seed + 7919 * rng_offset)
        drawn = torch.rand(list(shape), generator=generator, dtype=_DTYPES[dtype])
        return minval + (maxval - minval) * drawn

    def normal(
        self,
        mean: float,
        std: float,
        shape: Sequence[int],
        rng_seed: int,
        rng_offset: int,
        dtype: Any = DataType.Float,
    ) -> torch.Tensor:
        """Normally distributed numbers; the same for the same seed and offset, and other ones than nvFuser's."""
        generator = torch.Generator().manual_seed(rng_seed + 7919 * rng_offset)
        return mean + std * torch.randn(list(shape), generator=generator, dtype=_DTYPES[dtype])

    def cumprod(self, x: torch.Tensor, dim: int, init: Any = None) -> torch.Tensor:
        """Products up to each element."""
        return torch.cumprod(x, dim, dtype=x.dtype)

    # Products of matrices.

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """A product of matrices."""
        return torch.matmul(a, b)

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """A layer."""
        return torch.nn.functional.linear(x, weight, bias)

    def sdpfa_fwd(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        """Flash attention without dropout, in float32: the values, and the logarithms of the sums of the weights."""
        if query.dtype not in _NARROW or query.dim() != 4:
            raise FusionSemanticsError(f"attention of {query.dtype} in {query.dim()} dimensions")
        if dropout_p:
            raise FusionSemanticsError("attention with dropout, whose random state is none of the fusion's")
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        scores = query.float() @ key.float().transpose(-2, -1) * factor
        if is_causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        sums = torch.logsumexp(scores, -1)
        made = torch.exp(scores - sums[..., None]) @ value.float()
        return made.to(query.dtype), sums, None, None


def _with_dims(value: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    for dim in sorted(dims):
        value = value.unsqueeze(dim)
    return value


def _widened(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype.is_floating_point or x.dtype.is_complex else x.to(torch.int64)


def _added_one_by_one(x: torch.Tensor, dims: Sequence[int], keepdim: bool) -> torch.Tensor:
    for dim in sorted(dims, reverse=True):
        total = torch.zeros_like(x.select(dim, 0))
        for each in x.unbind(dim):
            total = total + each
        x = total.unsqueeze(dim) if keepdim else total
    return x


def _check_bounds(index: torch.Tensor, size: int) -> None:
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= size):
        raise FusionSemanticsError(f"an index out of 0 … {size - 1}")
