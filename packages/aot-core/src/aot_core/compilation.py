"""The compile that is under way: which backend, which graph, which settings.

Compilers and partitioners have fixed signatures. Whatever else one of them needs to know, it asks
`current_compilation`, which is set for the duration of one compile in the thread that compiles.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import time
from collections.abc import Iterable, Iterator

from aot_core.protocol import CompileReport, Decision
from aot_core.report import publish_late
from aot_core.settings import Settings

__all__ = ["Compilation", "current_compilation", "record_decision"]


@dataclasses.dataclass
class Compilation:
    """One call of a backend.

    Args:
        backend: Name of the backend.
        graph: Name of the graph, unique in this process.
        settings: The checked options.
        mode: The ``mode=`` of ``torch.compile``, or None.
        report: Where decisions go.
        stage: What is being compiled now: ``"trace"``, ``"partition"``, ``"forward"``, ``"backward"`` or
            ``"inference"``.
        started: When it began, by `time.perf_counter`, in seconds.
    """

    backend: str
    graph: str
    settings: Settings
    mode: str | None
    report: CompileReport
    stage: str = "trace"
    started: float = dataclasses.field(default_factory=time.perf_counter)

    @property
    def subject(self) -> str:
        """What to call the graph in a message."""
        return f"Graph {self.graph} of backend {self.backend!r}"

    def decide(self, decision: Decision) -> None:
        """Add a decision to the report; one taken after the compile is logged and traced by itself."""
        self.report.decisions.append(decision)
        if self.report.status != "compiling":
            publish_late(self.report, decision)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Make this the current compilation of the calling context."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: contextvars.ContextVar[Compilation | None] = contextvars.ContextVar(
    "aot_core_compilation", default=None
)


def current_compilation() -> Compilation:
    """Return the compile under way.

    Raises:
        RuntimeError: no backend of this family is compiling in this context.
    """
    compilation = _current.get()
    if compilation is None:
        raise RuntimeError(
            "current_compilation() was called outside a compile. Call it from a compiler, a partitioner or a "
            "decomposition function that aot_core.aot_autograd was given."
        )
    return compilation


def record_decision(
    subject: str,
    action: str,
    code: str,
    detail: str = "",
    *,
    stage: str | None = None,
    source: str | None = None,
    nodes: Iterable[str] = (),
) -> Decision:
    """Add a `Decision` to the report of the compile under way, and return it.

    ``stage`` is by default the stage being compiled.

    Raises:
        RuntimeError: no backend of this family is compiling in this context.
    """
    compilation = current_compilation()
    decision = Decision(stage or compilation.stage, subject, action, code, detail, source, tuple(nodes))
    compilation.decide(decision)
    return decision
