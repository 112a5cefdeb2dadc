"""Torch's own database of operators, with sample inputs for each: what a backend can be held against, op by op.

It comes with torch, as a part of its tests, and needs the package ``expecttest``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from aot_core import _compat

__all__ = ["op_database", "operators_not_seeded"]


def op_database() -> list[Any]:
    """Return the entries, each an ``OpInfo`` of ``torch.testing``.

    Raises:
        ModuleNotFoundError: names the package that torch's tests need and that is not installed.
    """
    return list(_compat.op_database_module().op_db)


@contextlib.contextmanager
def operators_not_seeded() -> Iterator[None]:
    """Let the database's random operators draw on: by themselves they seed the generator at every call."""
    module = _compat.op_database_module()
    seeding = module.wrapper_set_seed
    module.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    try:
        yield
    finally:
        module.wrapper_set_seed = seeding
