"""``torch.compile`` backends that run on XLA: models on an XLA device, and models on CPU moved there and back.

Importing this package imports neither torch nor torch_xla; compiling does.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aot_core import lazy_names
from aot_xla.__about__ import __version__ as __version__

if TYPE_CHECKING:
    from aot_xla.backends import aot_torchxla_trace_once as aot_torchxla_trace_once
    from aot_xla.backends import aot_torchxla_trivial as aot_torchxla_trivial
    from aot_xla.backends import torchxla_trace_once as torchxla_trace_once
    from aot_xla.backends import torchxla_trivial as torchxla_trivial
    from aot_xla.errors import InferenceOnlyError as InferenceOnlyError
    from aot_xla.errors import MismatchedTorchXlaError as MismatchedTorchXlaError
    from aot_xla.errors import MissingTorchXlaError as MissingTorchXlaError
    from aot_xla.errors import UnsupportedDtypeError as UnsupportedDtypeError
    from aot_xla.errors import UnusableXlaError as UnusableXlaError
    from aot_xla.settings import XlaSettings as XlaSettings
    from aot_xla.tally import Activity as Activity
    from aot_xla.tally import activity as activity

_HOMES = {
    "tally": ("Activity", "activity"),
    "backends": (
        "aot_torchxla_trace_once",
        "aot_torchxla_trivial",
        "torchxla_trace_once",
        "torchxla_trivial",
    ),
    "errors": (
        "InferenceOnlyError",
        "MismatchedTorchXlaError",
        "MissingTorchXlaError",
        "UnsupportedDtypeError",
        "UnusableXlaError",
    ),
    "settings": ("XlaSettings",),
}
__all__ = sorted(["__version__", *itertools.chain(*_HOMES.values())])

__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
