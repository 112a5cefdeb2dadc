"""Does `aot_core.explain` tell what eager is seen to do? Random programs of the aliasing fuzzer, compared.

    python benchmarks/explain_agreement.py --programs 1000 --seed 0
    python benchmarks/explain_agreement.py --seed 0 --only 137    # one program: its code and what differs

For each call of a program, eager is watched from outside: which arguments' elements and which arguments' size,
strides or offset change, which argument an output is, which arguments and which other outputs it shares memory with.
Each must be as the explanation says; what the explanation is made from must stay as it was, and its random state
too. The exit status is 1 if anything differs. A call that ``torch.compile`` fails on without `explain` as well can't
be compared; such calls are counted as not compilable.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from aliasing.run import Case, find_case, resolve
from torch.utils._python_dispatch import TorchDispatchMode

import aot_core

OURS = "aot_core.debug:aot_core_eager"
ASPECTS = (
    "written",
    "reshaped",
    "is argument",
    "shares with argument",
    "shares with output",
    "left as it was",
    "explained",
)

Facts = dict[tuple[str, str], Any]
"""(aspect, subject) → what is so."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=500, help="how many (default 500)")
    parser.add_argument("--first", type=int, default=0, help="index of the first one (default 0)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--backend", default=OURS, help="a registered name or module:attribute (default %(default)s)"
    )
    parser.add_argument("--show-failures", type=int, default=3, metavar="K")
    parser.add_argument("--only", type=int, metavar="INDEX", help="look at one program and show its code")
    options = parser.parse_args()
    torch.set_num_threads(1)
    backend = resolve(options.backend)
    first, count = (options.first, options.programs) if options.only is None else (options.only, 1)
    agreed: collections.Counter[str] = collections.Counter()
    asked: collections.Counter[str] = collections.Counter()
    wrong = []
    in_graphs = failed = 0
    started = time.monotonic()
    for index in range(first, first + count):
        case = find_case(options.seed, index)
        differences = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number in range(len(case.program.calls)):
                seen, told, explanation = compare(case, number, backend)
                if ("not compilable", "") in seen:
                    break
                in_graphs += not (explanation.written_elsewhere or explanation.reshaped_elsewhere)
                for key in seen:
                    asked[key[0]] += 1
                    if seen[key] == told.get(key):
                        agreed[key[0]] += 1
                    else:
                        differences.append(
                            f"call {number}: {key}: eager {seen[key]}, explained {told.get(key)}"
                        )
        if differences:
            wrong.append(index)
        failed += not differences and ("not compilable", "") in seen
        if options.only is not None or (differences and len(wrong) <= options.show_failures):
            print(f"\n# ---- program {index} of seed {options.seed}: {case.plan}\n{case.program.source}")
            print("\n".join(differences), flush=True)
            if options.only is not None:
                print(explanation)
    print(
        f"\ntorch {torch.__version__}, seed {options.seed}: {count} programs in {time.monotonic() - started:.0f} s"
    )
    for aspect in ASPECTS:
        if asked[aspect]:
            print(
                f"  {aspect:22}{agreed[aspect]:7} of {asked[aspect]:7}  {agreed[aspect] / asked[aspect]:8.2%}"
            )
    print(f"calls of which the graphs tell everything: {in_graphs}")
    compared = count - failed
    share = (compared - len(wrong)) / max(1, compared)
    print(f"programs in full agreement: {compared - len(wrong)} of {compared}, {share:.2%}")
    print(f"programs that torch.compile fails on without explain, too: {failed}")
    if wrong:
        print(f"not in agreement: {wrong[:40]}")
    return bool(wrong)


def compare(case: Case, number: int, backend: Any) -> tuple[Facts, Facts, aot_core.Explanation]:
    """Return what is seen of one call in eager, and what is told of it."""
    program = case.program
    names = program.namespace()

    def arguments() -> dict[str, torch.Tensor]:
        inside = torch.inference_mode() if program.mode == "inference_tensors" else contextlib.nullcontext()
        with inside:
            return dict(zip(program.names, names[f"call_{number}"]()[2], strict=True))

    with _mode(program.mode):
        seen = _watch(names["f"], arguments())
        given = arguments()
        before, random_state = _state(given), torch.get_rng_state()
        try:
            explanation = aot_core.explain_with(backend)(names["f"], *given.values())
        except Exception as error:
            message = f"{type(error).__name__}: {error}".partition("\n")[0]
            empty = aot_core.Explanation("f", "", {})
            torch.compiler.reset()
            try:
                torch.compile(program.namespace()["f"], backend=backend)(*arguments().values())
            except Exception:
                return {("not compilable", ""): True}, {("not compilable", ""): True}, empty
            return {("explained", ""): True}, {("explained", ""): message}, empty
    kept = _same_state(before, _state(given)) and torch.equal(random_state, torch.get_rng_state())
    told = _told(explanation, list(given))
    seen["left as it was", ""], told["left as it was", ""] = True, kept
    return seen, told, explanation


@contextlib.contextmanager
def _mode(mode: str) -> Iterator[None]:
    with {"training": contextlib.nullcontext, "no_grad": torch.no_grad}.get(mode, torch.inference_mode)():
        yield


def _watch(function: Any, given: dict[str, torch.Tensor]) -> Facts:
    """Call a function eagerly and note what can be seen."""
    aliases = {name: x.detach() for name, x in given.items()}
    values = {name: x.clone() for name, x in aliases.items()}
    shapes = {name: _geometry(x) for name, x in given.items()}
    with _MarkWrites() as marks:
        outputs = function(*given.values())
    facts: Facts = {}
    for name, x in given.items():
        facts["written", name] = marks.any_in(aliases[name])
        assert facts["written", name] or torch.equal(aliases[name], values[name]), (
            "a write that was not marked"
        )
        facts["reshaped", name] = _geometry(x) != shapes[name]
    for i, output in enumerate(outputs):
        if isinstance(output, torch.Tensor):
            place = f"result[{i}]"
            itself = {name for name, x in given.items() if x is output}
            facts["is argument", place] = bool(itself)
            facts["shares with argument", place] = {name for name, x in given.items() if _shares(x, output)}
            facts["shares with output", place] = {
                f"result[{j}]" for j, other in enumerate(outputs) if j != i and _shares(other, output)
            }
    return facts


class _MarkWrites(TorchDispatchMode):
    """Marks each byte that an operator writes, whatever it writes there: ``a[:] = a`` is a write, too."""

    def __init__(self) -> None:
        super().__init__()
        self._marks: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.inplace_view not in func.tags:
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    self._bytes(value).fill_(True)
        return func(*args, **(kwargs or {}))

    def any_in(self, tensor: torch.Tensor) -> bool:
        return bool(self._bytes(tensor).any())

    def _bytes(self, tensor: torch.Tensor) -> torch.Tensor:
        storage, item = tensor.untyped_storage(), tensor.element_size()
        marks = self._marks.setdefault(storage.data_ptr(), torch.zeros(storage.nbytes(), dtype=torch.bool))
        strides = [stride * item for stride in tensor.stride()]
        return marks.as_strided((*tensor.size(), item), (*strides, 1), tensor.storage_offset() * item)


def _told(explanation: aot_core.Explanation, names: list[str]) -> Facts:
    """Return the same facts as an explanation has them."""
    facts: Facts = {}
    for name in names:
        facts["written", name] = name in explanation.written
        facts["reshaped", name] = name in explanation.reshaped
    for result in explanation.results:
        facts["is argument", result.name] = result.kind == "input"
        facts["shares with argument", result.name] = set(result.memory_of)
        facts["shares with output", result.name] = set(result.shares_memory_with)
    return facts


def _geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.size(), tensor.stride(), tensor.storage_offset()


def _shares(one: Any, other: Any) -> bool:
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    address = one.untyped_storage().data_ptr()
    return address != 0 and address == other.untyped_storage().data_ptr()


def _state(given: dict[str, torch.Tensor]) -> list[Any]:
    return [
        (
            x,
            x.detach().clone(),
            _geometry(x),
            x.requires_grad,
            x.grad_fn,
            None if x.is_inference() else x._version,
        )
        for x in given.values()
    ]


def _same_state(before: list[Any], after: list[Any]) -> bool:
    return all(
        one[0] is other[0] and torch.equal(one[1], other[1]) and one[2:] == other[2:]
        for one, other in zip(before, after, strict=True)
    )


if __name__ == "__main__":
    sys.exit(main())
