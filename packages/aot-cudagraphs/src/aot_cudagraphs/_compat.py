"""The only file of this package that touches PyTorch's private interfaces.

What differs between torch 2.10 and 2.15 is told apart by looking for it, never by a version number. Each function
says what it stands for, so that a reader of the other files need not know torch's internals.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["TorchDispatchMode", "pytree"]

REQUIRED = (
    ("torch.utils._python_dispatch", "TorchDispatchMode"),
    ("torch._C", "_storage_Use_Count"),
    ("torch._C", "_SchemaInfo"),
)


def missing_interfaces() -> list[str]:
    """Return the names in torch that this package needs and that this torch lacks."""
    missing = []
    for module, name in REQUIRED:
        try:
            found = hasattr(importlib.import_module(module), name)
        except ImportError:
            found = False
        if not found:
            missing.append(f"{module}.{name}")
    return missing


# --- operators (refusals, simulator) -------------------------------------------------------------------------


def is_operator(target: Any) -> bool:
    """Tell whether a value is an operator of the dispatcher."""
    return isinstance(target, torch._ops.OpOverload)


def is_higher_order(target: Any) -> bool:
    """Tell whether a value is an operator that takes operators or graphs."""
    return isinstance(target, torch._ops.HigherOrderOperator)


def has_tag(op: Any, name: str) -> bool:
    """Tell whether an operator has a tag; no operator has one that this torch does not know."""
    tag = getattr(torch.Tag, name, None)
    return tag is not None and tag in op.tags


# --- capture on a device -------------------------------------------------------------------------------------
