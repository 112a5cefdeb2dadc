"""Which dotted names a Python file reaches, followed through its imports and aliases.

For example these lines, with ``roots={"torch"}``, reach ``torch``, ``torch._C`` and ``torch.fx._compat.x``::

    import torch as t
    t._C
    from torch.fx._compat import x
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

_MODULE_PATH = re.compile(r"\A[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z")
_LOOKUPS = {"getattr", "hasattr", "setattr", "delattr"}


class Use(NamedTuple):
    """A dotted name, and the line that reaches it."""

    line: int
    name: str


def is_private(name: str) -> bool:
    """Tell whether a part of a dotted name starts with an underscore; ``__version__`` and the like don't count."""
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def uses(source: str, roots: Collection[str]) -> list[Use]:
    """Return the dotted names under any of ``roots`` that a file reaches.

    Seen are imports, attributes of imported names, ``getattr`` and its kin with a literal name, and strings
    that read like a module's path (``importlib.import_module("torch._C")``). Docstrings are not.
    """
    tree = ast.parse(source)
    aliases = _aliases(tree)
    docstrings = _docstrings(tree)
    found = []
    for node in ast.walk(tree):
        for name in _reached(node, aliases, docstrings):
            if name.split(".")[0] in roots:
                found.append(Use(node.lineno, name))
    return found


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Map each name that an import binds, anywhere in the file, to what it stands for."""
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                top = item.name.split(".")[0]
                aliases[item.asname or top] = item.name if item.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for item in node.names:
                aliases[item.asname or item.name] = f"{node.module}.{item.name}"
    return aliases


def _docstrings(tree: ast.AST) -> set[int]:
    """Return the identities of string nodes that stand as statements of their own."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _reached(node: ast.AST, aliases: dict[str, str], docstrings: set[int]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (item.name for item in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from (f"{node.module}.{item.name}" for item in node.names)
    elif isinstance(node, ast.Attribute):
        name = _resolve(node, aliases)
        if name:
            yield name
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _LOOKUPS:
        if len(node.args) >= 2 and isinstance(node.args[1], ast.Constant):
            owner = _resolve(node.args[0], aliases)
            if owner:
                yield f"{owner}.{node.args[1].value}"
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
        yield from _MODULE_PATH.findall(node.value)


def _resolve(node: ast.AST, aliases: dict[str, str]) -> str | None:
    """Return the full dotted name of ``a.b.c`` if ``a`` was imported."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _resolve(node.value, aliases)
        return owner and f"{owner}.{node.attr}"
    return None
