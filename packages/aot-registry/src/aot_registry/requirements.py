"""Does the installed torch satisfy what a distribution declares in its metadata?

The smallest part of PEP 440 (versions), PEP 508 (requirements) and its environment markers that answers this,
so that the registry needs no package at run time beyond its own family. What it can't parse it lets pass: the
installer is the judge of that, not a diagnosis.
"""

from __future__ import annotations

import ast
import importlib.metadata
import operator
import os
import platform
import re
import sys
from collections.abc import Iterable

from aot_registry.discovery import normalize
from aot_registry.problems import Problem

__all__ = ["check_torch", "installed_version", "satisfies"]

_REQUIREMENT = re.compile(
    r"\s*(?P<name>[A-Za-z0-9][\w.-]*)\s*(\[[^\]]*\])?\s*(?P<specifier>[^;@]*)(;(?P<marker>.*))?$"
)
_CLAUSE = re.compile(r"\s*(?P<operator>===|~=|==|!=|<=|>=|<|>)\s*(?P<version>\S+)\s*$")
_VERSION = re.compile(
    r"""v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)
        (?:[-_.]?(?P<phase>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<phase_number>\d*))?
        (?P<post>-(?P<bare_post>\d+)|[-_.]?(?:post|rev|r)[-_.]?(?P<post_number>\d*))?
        (?P<dev>[-_.]?dev[-_.]?(?P<dev_number>\d*))?
        (?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?$""",
    re.VERBOSE | re.IGNORECASE,
)
_PHASES = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_INFINITY = float("inf")


class _Version:
    """A PEP 440 version, without its local part."""

    def __init__(self, text: str) -> None:
        match = _VERSION.match(text.strip())
        if match is None:
            raise ValueError(f"not a version: {text!r}")
        self.release = tuple(int(part) for part in match["release"].split("."))
        self.local = match["local"]
        self.is_post = match["post"] is not None
        self.is_dev = match["dev"] is not None
        self.is_prerelease = match["phase"] is not None or self.is_dev
        phase: tuple[float, int] = (_INFINITY, 0)
        if match["phase"] is not None:
            phase = (_PHASES[match["phase"].lower()], int(match["phase_number"] or 0))
        elif self.is_dev and not self.is_post:
            phase = (-_INFINITY, 0)
        post = int(match["bare_post"] or match["post_number"] or 0) if self.is_post else -1
        dev = int(match["dev_number"] or 0) if self.is_dev else _INFINITY
        self.base = (int(match["epoch"] or 0), _strip_zeros(self.release))
        self.key = (*self.base, phase, post, dev)


def _strip_zeros(release: tuple[int, ...]) -> tuple[int, ...]:
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    return release


def satisfies(version: str, specifier: str) -> bool:
    """Tell whether a version fits a PEP 440 specifier such as ``">=2.10,<2.16"``.

    A pre-release fits where its order says so: what is installed is not a candidate to be chosen. A clause or
    version that can't be parsed fits.
    """
    return all(_fits(version, clause) for clause in specifier.split(",") if clause.strip())


def _fits(installed: str, clause: str) -> bool:
    match = _CLAUSE.match(clause)
    if match is None:
        return True
    symbol, text = match["operator"], match["version"]
    if symbol == "===":
        return installed.lower() == text.lower()
    try:
        version = _Version(installed)
        if text.endswith(".*"):
            wanted = _Version(text[:-2])
            return _has_prefix(version, wanted, wanted.release) == (symbol == "==")
        wanted = _Version(text)
    except ValueError:
        return True
    if symbol == "~=":
        return version.key >= wanted.key and _has_prefix(version, wanted, wanted.release[:-1])
    if symbol in ("==", "!="):
        same = version.key == wanted.key and (wanted.local is None or wanted.local == version.local)
        return same == (symbol == "==")
    if symbol == "<":
        # "<2.16" means before any pre-release of 2.16 too.
        bound = wanted if wanted.is_prerelease else _Version(f"{text}.dev0")
        return version.key < bound.key
    if symbol == ">":
        # ">2.10" means after any post-release of 2.10 too.
        plain = not (wanted.is_post or wanted.is_dev)
        late = plain and version.is_post and version.key[:3] == wanted.key[:3]
        return version.key > wanted.key and not late
    return version.key <= wanted.key if symbol == "<=" else version.key >= wanted.key


def _has_prefix(version: _Version, wanted: _Version, prefix: tuple[int, ...]) -> bool:
    padded = version.release + (0,) * (len(prefix) - len(version.release))
    return version.base[0] == wanted.base[0] and padded[: len(prefix)] == prefix


def check_torch(requires: Iterable[str], *, distribution: str, torch: str | None) -> Problem | None:
    """Compare what a distribution requires of torch with what is installed.

    Args:
        requires: The distribution's requirements, as in its metadata.
        distribution: Its name and version, for the message.
        torch: Version of the installed torch, or None if there is none.

    Returns:
        None if the distribution requires nothing of torch or gets it; else problem ``torch-missing`` or
        ``wrong-torch``.
    """
    for requirement in requires:
        match = _REQUIREMENT.match(requirement)
        if match is None or normalize(match["name"]) != "torch" or not _applies(match["marker"]):
            continue
        specifier = match["specifier"].strip().strip("()")
        wanted = f"torch{specifier}"
        if torch is None:
            return Problem(
                "torch-missing",
                f"{distribution} requires {wanted}, and torch is not installed",
                f'Install it: pip install "{wanted}".',
            )
        if not satisfies(torch, specifier):
            return Problem(
                "wrong-torch",
                f"{distribution} requires {wanted}, and torch {torch} is installed",
                f'Install the torch that it needs, pip install "{wanted}", or another version of it.',
            )
    return None


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution without importing it, or None."""
    try:
        return importlib.metadata.version(distribution) or None
    except Exception:
        return None


def _applies(marker: str | None) -> bool:
    """Tell whether a requirement with this marker counts here. Those of extras do not."""
    if marker is None:
        return True
    try:
        # A PEP 508 marker is a Python expression of names, strings and comparisons.
        return _evaluate(ast.parse(marker.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        return True


def _evaluate(node: ast.expr) -> bool:
    if isinstance(node, ast.BoolOp):
        results = [_evaluate(value) for value in node.values]
        return all(results) if isinstance(node.op, ast.And) else any(results)
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        raise ValueError("not a marker")
    left, right = node.left, node.comparators[0]
    if isinstance(node.ops[0], ast.In):
        return _value(left) in _value(right)
    if isinstance(node.ops[0], ast.NotIn):
        return _value(left) not in _value(right)
    symbol, compare = _COMPARISONS[type(node.ops[0])]
    if any(isinstance(side, ast.Name) and side.id in _VERSIONS for side in (left, right)):
        if isinstance(left, ast.Constant):
            symbol = symbol.translate(str.maketrans("<>", "><"))
            left, right = right, left
        return satisfies(_value(left), f"{symbol}{_value(right)}")
    return bool(compare(_value(left), _value(right)))


_COMPARISONS = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_VERSIONS = ("python_version", "python_full_version", "implementation_version")


def _value(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.Name):
        raise ValueError("not a marker")
    environment = {
        "extra": "",
        "implementation_name": sys.implementation.name,
        "implementation_version": platform.python_version(),
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "sys_platform": sys.platform,
    }
    if node.id not in environment:
        raise ValueError("not a marker")
    return environment[node.id]
