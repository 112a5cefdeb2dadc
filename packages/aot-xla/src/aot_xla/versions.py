"""Does the installed torch_xla fit the installed torch? Read from metadata, before either is imported.

torch_xla is built for one minor version of torch. With another, importing it ends in an undefined symbol of the
dynamic linker, which names neither package.
"""

from __future__ import annotations

import importlib.metadata

from aot_xla.errors import MismatchedTorchXlaError, MissingTorchXlaError

__all__ = ["INSTALL_PAIR", "require_fitting_pair"]

INSTALL_PAIR = 'python -m pip install "torch>=2.9,<2.10" torch_xla==2.9.0'
"""What brings a pair that fits. There is no other: torch_xla 2.9.0 is the last release."""


def require_fitting_pair() -> str:
    """Check that torch_xla is installed and made for the torch that is.

    Returns:
        Both, as text for people: ``"torch 2.9.1, torch_xla 2.9.0"``.

    Raises:
        MissingTorchXlaError: torch_xla is not installed.
        MismatchedTorchXlaError: it was built for another minor version of torch.
    """
    torch, torch_xla = _installed("torch"), _installed("torch_xla")
    if torch_xla is None:
        raise MissingTorchXlaError(
            f"The backends of aot-xla need torch_xla, which is not installed; torch is {torch or 'neither'}. "
            f"A pair that fits, for Python 3.10 to 3.13 on Linux: {INSTALL_PAIR}."
        )
    if torch is None or _minor(torch) != _minor(torch_xla):
        raise MismatchedTorchXlaError(
            f"torch_xla {torch_xla} is built for torch {_minor(torch_xla)}, and torch {torch or 'is not there'} is "
            f"installed: importing it would end in an undefined symbol. A pair that fits: {INSTALL_PAIR}."
        )
    return f"torch {torch}, torch_xla {torch_xla}"


def _installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
