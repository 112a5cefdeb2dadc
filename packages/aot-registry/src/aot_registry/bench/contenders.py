"""Who takes part: eager, and each backend that was asked for or is installed, usable or not."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import aot_registry
from aot_core.protocol import Availability
from aot_registry import _compat
from aot_registry.errors import UnknownBackendError, suggest
from aot_registry.probing import CONCURRENT_PROBES

if TYPE_CHECKING:
    from torch import nn

__all__ = ["EAGER", "Contender", "check_backend_names", "choose_contenders"]

EAGER = "eager"
"""The contender that all others are compared with: the model as it is, without ``torch.compile``."""


@dataclasses.dataclass(frozen=True)
class Contender:
    """One row of the table.

    Args:
        backend: The name for ``torch.compile``, or `EAGER`.
        availability: Whether it can take part here, and why not.
    """

    backend: str
    availability: Availability

    def compile_model(self, model: nn.Module) -> Callable[..., Any]:
        """Return what is called in the model's place. Compiling happens at its first call.

        Raises:
            AotError: the backend can't be loaded.
        """
        if self.backend == EAGER:
            return model
        import torch

        # By object and not by name: a name that torch owns would hide one that `activate()` did not override.
        backend = aot_registry.get_backend(self.backend) if self.backend in _installed() else self.backend
        compiled: Callable[..., Any] = torch.compile(model, backend=backend)
        return compiled


def check_backend_names(names: Sequence[str]) -> None:
    """Check that each name is a backend's, without importing torch.

    Raises:
        UnknownBackendError: one is not; names the closest ones.
    """
    installed = _installed()
    unknown = [name for name in names if name != EAGER and name not in installed]
    # Which names torch owns is read from its sources, in a tenth of a second; not needed for ours.
    of_torch = _compat.names_of_torch() if unknown else frozenset()
    for name in unknown:
        if name not in of_torch:
            offered = sorted(other for other in of_torch if not _for_debugging_torch(other))
            raise UnknownBackendError(
                f"There is no backend {name!r}.{suggest(name, [EAGER, *installed, *offered])} "
                f"Installed: {', '.join(installed) or 'none'}. Torch's own: {', '.join(offered)}. "
                "`aot doctor` tells of packages that are broken."
            )


def choose_contenders(
    names: Sequence[str] | None = None, *, advance: Callable[[str, int], None] = lambda what, probes: None
) -> list[Contender]:
    """Return eager and the backends named, by default all that are installed, in that order.

    Probes run side by side, each in a process of its own. Torch's own backends have no probe: whether one
    is usable shows when it trains.

    Args:
        names: Names for ``torch.compile``, or ``"eager"``, which takes part in any case.
        advance: Called with the name of a backend and 1 when its probe has answered.

    Raises:
        UnknownBackendError: a name is no backend's.
    """
    installed = _installed()
    chosen = [name for name in dict.fromkeys(names or installed) if name != EAGER]
    check_backend_names(chosen)
    with concurrent.futures.ThreadPoolExecutor(CONCURRENT_PROBES) as pool:
        answers = {name: pool.submit(aot_registry.probe, name) for name in chosen if name in installed}
        for name, answer in answers.items():
            answer.result()
            advance(name, 1)
    usable = Availability(True)
    return [
        Contender(EAGER, usable),
        *(Contender(name, answers[name].result() if name in answers else usable) for name in chosen),
    ]


def _installed() -> list[str]:
    return list(aot_registry.list_backends(exclude_tags=()))


def _for_debugging_torch(name: str) -> bool:
    return name.endswith("_TESTING_ONLY") or "minifier" in name
