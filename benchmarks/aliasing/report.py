"""What is printed: the table of verdicts, the counts by kind, and failures as code that runs by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from aliasing.plan import CHANGING, INPUT_KINDS, MODES, MUTATIONS, OUTPUT_KINDS
from aliasing.program import Program
from aliasing.run import VERDICTS, Case

__all__ = ["kinds_table", "one_object_for_two", "rejections", "reproducer", "verdict_table"]

Record = dict[str, Any]
"""What a worker writes of one program: index, plan, rejected, and a judgement for each backend."""


def verdict_table(records: Sequence[Record], backends: Sequence[str]) -> str:
    """Return counts and percentages by backend, for all programs and apart for those whose aliasing changes."""
    head = f"{'backend':<16}{'aliasing':<12}{'programs':>9}" + "".join(
        f"{verdict:>20}" for verdict in VERDICTS
    )
    lines = [head, "-" * len(head)]
    for backend in backends:
        for label, chosen in (
            ("any", records),
            ("unchanging", [r for r in records if r["plan"]["inputs"] not in CHANGING]),
            ("changing", [r for r in records if r["plan"]["inputs"] in CHANGING]),
        ):
            counts = Counter(record["results"][backend]["verdict"] for record in chosen)
            cells = "".join(f"{_share(counts[verdict], len(chosen)):>20}" for verdict in VERDICTS)
            lines.append(f"{backend:<16}{label:<12}{len(chosen):>9}{cells}")
    return "\n".join(lines)


def one_object_for_two(records: Sequence[Record], backends: Sequence[str]) -> str:
    """Return how many of the silently wrong differ in nothing but which outputs are one Python object.

    Inductor computes two equal views once, and returns one tensor for both: the same elements in the same memory.
    No analysis of inputs and outputs has a say in that.
    """
    lines = []
    for backend in backends:
        silent = [record for record in records if record["results"][backend]["verdict"] == "silently wrong"]
        kinds = [
            {d.partition(" of ")[0] for d in record["results"][backend]["differences"]} for record in silent
        ]
        alone = [
            record for record, found in zip(silent, kinds, strict=True) if all("identity" in k for k in found)
        ]
        unchanging = sum(record["plan"]["inputs"] not in CHANGING for record in alone)
        lines.append(
            f"{backend:<16}silently wrong only in that two outputs are one object: {len(alone)}, "
            f"of them with unchanging aliasing: {unchanging}"
        )
    return "\n".join(lines)


def kinds_table(records: Sequence[Record], backends: Sequence[str]) -> str:
    """Return for each kind how many programs contain it, and how many of them each backend got wrong."""
    lines = [f"{'kind':<48}{'programs':>9}" + "".join(f"{backend + ' wrong':>24}" for backend in backends)]
    parts: tuple[tuple[str, Iterable[str]], ...] = (
        ("inputs", INPUT_KINDS),
        ("output", OUTPUT_KINDS),
        ("mutation", MUTATIONS),
        ("mode", dict.fromkeys(MODES)),
    )
    for part, kinds in parts:
        for kind in kinds:
            chosen = [record for record in records if record["plan"][part] == kind]
            cells = "".join(f"{sum(map(_wrong_in(backend), chosen)):>24}" for backend in backends)
            lines.append(f"{part + ': ' + kind:<48}{len(chosen):>9}{cells}")
    return "\n".join(lines)


def rejections(records: Sequence[Record]) -> str:
    """Return how many draws were thrown away, and why."""
    reasons: Counter[str] = Counter()
    for record in records:
        reasons.update(record["rejected"])
    lines = [f"{reasons.total()} draws thrown away for {len(records)} valid programs:"]
    return "\n".join([*lines, *(f"  {count:>6}  {reason}" for reason, count in reasons.most_common(12))])


def reproducer(case: Case, backend: str, *, dynamo: bool = True) -> str:
    """Return Python code that makes the calls of a case eagerly and compiled, and prints both.

    Args:
        case: The program.
        backend: A registered name or ``"module:attribute"``.
        dynamo: Whether ``torch.compile`` is in front; else the code builds the graph that the backend gets.
    """
    program = case.program
    calls = " ".join(f"call_{number}," for number in range(len(program.calls)))
    around = {"training": "enable_grad", "no_grad": "no_grad"}.get(program.mode, "inference_mode")
    outside = "inference_mode" if program.mode == "inference_tensors" else "enable_grad"
    lines = [
        program.source,
        *(
            [f"compiled = torch.compile(f, backend={_backend_source(backend)})"]
            if dynamo
            else _direct(program, backend)
        ),
        "",
        "for g in (f, compiled):",
        '    print("eager" if g is f else "compiled")',
        f"    for call in ({calls}):",
        f"        with torch.{outside}():",
        "            roots, bases, arguments = call()",
        "        wanted = [root for root in roots if root.requires_grad]",
        f"        with torch.{around}():",
        "            outputs = g(*arguments)",
        '        print("  outputs", outputs)',
        '        print("  arguments", arguments)',
    ]
    if program.mode == "training":
        lines += [
            "        total = loss([*outputs, *arguments, *bases])",
            "        if total.requires_grad:",
            '            print("  gradients", torch.autograd.grad(total, wanted, allow_unused=True))',
        ]
    return "\n".join(lines)


def _direct(program: Program, backend: str) -> list[str]:
    """Return the source that builds the graph and compiles it at the first call."""
    lines = ["import operator", "import torch._dynamo", "graph = torch.fx.Graph()"]
    for node in program.graph().graph.nodes:
        args = f"({''.join(f'{arg}, ' for arg in node.args)})"
        if node.op == "placeholder":
            lines.append(f"{node.name} = graph.placeholder({node.target!r})")
        elif node.op == "output":
            lines.append(f"graph.output({', '.join(map(str, node.args))})")
        else:
            target = repr(node.target) if node.op == "call_method" else _function(node.target)
            lines.append(f"{node.name} = graph.{node.op}({target}, {args})")
    return [
        *lines,
        "graph = torch.fx.GraphModule(torch.nn.Module(), graph)",
        "made = []",
        "def compiled(*arguments):",
        f"    made or made.append({_backend_object(backend)}(graph, list(arguments)))",
        "    return made[0](*arguments)",
    ]


def _function(target: Any) -> str:
    return (
        "torch._C._set_grad_enabled"
        if target is torch._C._set_grad_enabled
        else f"operator.{target.__name__}"
    )


def _backend_source(name: str) -> str:
    """Return an expression for a backend. A registered name stands for itself, as `torch.compile` takes it."""
    module, colon, attribute = name.partition(":")
    return f'__import__("importlib").import_module({module!r}).{attribute}' if colon else repr(name)


def _backend_object(name: str) -> str:
    return _backend_source(name) if ":" in name else f"torch._dynamo.lookup_backend({name!r})"


def _wrong_in(backend: str) -> Callable[[Record], bool]:
    return lambda record: record["results"][backend]["verdict"] in ("loudly wrong", "silently wrong")


def _share(count: int, total: int) -> str:
    return f"{count} ({100 * count / total:.2f} %)" if total else "0"
