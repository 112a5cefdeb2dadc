"""Putting these analyses in the place of torch's own, for every backend in the process.

torch's modules import the four functions by name, so each module that holds one is given ours, and gets its
own back when the last installation ends. So are the entry by which backends call AOTAutograd
(`aot_core.analysis.stock_compile`), the pass that takes tensors without dimensions for Python floats, what puts a
written input in the place of another output, what takes equal views of one intermediate for outputs that have
nothing to do with each other, and what lets gradients through views made under ``no_grad``. What is compiled in between
is right where stock torch's is not, Inductor's and torch's own debug backends' included.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from aot_core import _compat
from aot_core.__about__ import __version__
from aot_core.aliasing.memory import has_memory
from aot_core.aliasing.signature import read_signature
from aot_core.analysis.duplicates import remove_dupe_metadata
from aot_core.analysis.overlap import compute_overlapping_inputs
from aot_core.analysis.signature import create_graph_signature
from aot_core.analysis.stock_compile import minding_aliases
from aot_core.analysis.synthetic_base import create_synthetic_base_metadata
from aot_core.errors import AnalysisInstallationError

__all__ = ["Installation", "install", "is_installed", "uninstall"]

log = logging.getLogger(__name__)

OURS = (
    remove_dupe_metadata,
    create_synthetic_base_metadata,
    compute_overlapping_inputs,
    create_graph_signature,
)

_lock = threading.RLock()
_live: list[Installation] = []
_replaced: dict[Callable[..., Any], Callable[..., Any]] = {}
"""Torch's functions and ours in their place, while anything is installed."""


class Installation:
    """One call of `install`. Ends when `uninstall` is called on it, or with its ``with`` block."""

    def uninstall(self) -> None:
        """End this installation; torch's own functions return with the last one. Ending it twice is harmless."""
        with _lock:
            if self in _live:
                _live.remove(self)
                if not _live:
                    _restore()

    def __enter__(self) -> Installation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.uninstall()


def install() -> Installation:
    """Put this package's analyses under torch's own AOTAutograd, in the whole process and all its threads.

    ::

        with aot_core.analysis.install():
            torch.compile(model)(x)

        aot_core.analysis.install()     # or for good

    Installations nest: torch's functions come back when as many have ended as were made. What was compiled
    before stays as it was, and what is compiled meanwhile stays so after: call ``torch.compiler.reset()`` to
    have functions compiled again. AOTAutograd's cache is keyed apart through torch's documented
    ``torch.compiler.config.cache_key_tag``, for its own key only: neither side is ever served a result of the other.

    Aliasing that changes between calls is minded too: a graph that writes its inputs runs as compiled on inputs that
    share memory as those did that it was compiled for, and uncompiled, with a warning, on others. Backends made
    by `aot_core.aot_autograd` compile a variant there, installed or not.

    Returns:
        A handle and context manager that ends this installation.

    Raises:
        AnalysisInstallationError: this torch lacks one of the functions, or the means to key the cache apart.
            Nothing is changed then.
    """
    with _lock:
        if not _live:
            _replace()
        installation = Installation()
        _live.append(installation)
        return installation


def uninstall() -> None:
    """End the latest installation that has not ended yet.

    Raises:
        AnalysisInstallationError: nothing is installed.
    """
    with _lock:
        if not _live:
            raise AnalysisInstallationError(
                "uninstall() was called while nothing was installed. Expected one install() for each uninstall()."
            )
        _live[-1].uninstall()


def is_installed() -> bool:
    """Tell whether these analyses are in the place of torch's own now."""
    with _lock:
        return bool(_live)


def _replace() -> None:
    modules = _compat.importers_of_the_analyses()
    home = _compat.input_output_analysis()
    replacements: dict[Callable[..., Any], Callable[..., Any]] = {}
    for function in OURS:
        stock = getattr(home, function.__name__, None)
        if stock is None:
            raise AnalysisInstallationError(
                f"This torch has no {function.__name__!r} in {home.__name__}. Expected torch>=2.10,<2.16."
            )
        replacements[stock] = function
    compute_key = _compat.autograd_cache_key()
    if compute_key is None:
        raise AnalysisInstallationError(
            "This torch has no key of AOTAutograd's cache, or no torch.compiler.config.cache_key_tag, to keep results "
            "apart by: a warm cache would return what stock torch compiled. Expected torch>=2.10,<2.16."
        )
    replacements[compute_key] = _tagged(compute_key)
    replacements |= _compat.repaired_functions()
    entry = _compat.aot_autograd_entry()
    replacements[entry] = minding_aliases(entry)
    _replaced.update(replacements)
    changed = _exchange(modules, replacements)
    log.debug("analyses installed under %s", changed)


def _restore() -> None:
    # Looked for again: a module imported meanwhile has taken ours by name.
    _exchange(_compat.importers_of_the_analyses(), {ours: stock for stock, ours in _replaced.items()})
    _replaced.clear()


def _exchange(modules: list[Any], replacements: dict[Callable[..., Any], Callable[..., Any]]) -> list[str]:
    """In each module, set every name that is bound to one of the keys to its value."""
    changed = []
    names = {function.__name__ for function in replacements}
    for module in modules:
        namespace = vars(module)
        for name in names & namespace.keys():
            for old, new in replacements.items():
                if namespace[name] is old:
                    setattr(module, name, new)
                    changed.append(f"{module.__name__}.{name}")
    return changed


def _tagged(compute_key: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that computes the key of AOTAutograd's cache, with a key of our own.

    It tells how the inputs share memory as well, of which stock torch's says nothing (2.10 to 2.13): a result for
    inputs that overlap would be served to others that don't.
    """

    @functools.wraps(compute_key)
    def tagged(graph: Any, inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        watched = [i for i, x in enumerate(inputs) if has_memory(x)]
        sharing = read_signature(inputs, watched, frozenset(watched))
        # torch's configuration is process-global up to 2.10: one at a time, or the tag would be left behind.
        with _lock, _compat.cache_key_tag(f"aot_core.analysis-{__version__}-{sharing!r}"):
            return compute_key(graph, inputs, *args, **kwargs)

    return tagged
