"""Compare the public names of packages with those of their last release, and refuse a break that nobody meant.

python tools/api_gate.py packages/aot-core packages/aot-xla

A package's last release is the newest tag ``PACKAGE-v*`` that the commit at hand descends from. Public are the
names of the package itself and what the pages in docs/reference document, as both were at that tag: where else among
its modules a name lies may change. A break that is meant is waived in the package's ``api-waivers.toml``, which is
emptied after a release::

    [[waiver]]
    object = "aot_core.boxed(function)"
    kind = "parameter-removed"
    reason = "Nobody passed it by name."
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WAIVERS = "api-waivers.toml"
REFERENCE = "docs/reference"


@dataclasses.dataclass(frozen=True)
class Break:
    """A change that may break who uses a package.

    Args:
        object: The public name, with the parameter in parentheses if it is about one.
        kind: What happened, in kebab case: ``"object-removed"``, ``"parameter-added-required"``, …
        was: The old value, where there is one.
        now: The new value, where there is one.
    """

    object: str
    kind: str
    was: str = ""
    now: str = ""

    def __str__(self) -> str:
        values = f": {self.was or 'nothing'} → {self.now or 'nothing'}" if self.was or self.now else ""
        return f"{self.object} [{self.kind}]{values}"


def main(argv: list[str] | None = None) -> int:
    """Compare the packages named on the command line; return 1 if one breaks its users."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="a package's, in its repository"
    )
    broken = False
    for folder in parser.parse_args(argv).folders:
        complaints, passed = judge(folder.resolve())
        broken = broken or bool(complaints)
        for line in [*passed, *complaints]:
            print(f"{folder.name}: {line}")
    return 1 if broken else 0


def judge(folder: Path) -> tuple[list[str], list[str]]:
    """Compare one package with its last release.

    Args:
        folder: ``packages/NAME`` of a git repository.

    Returns:
        What has to be changed or waived, and what is worth telling besides.

    Raises:
        ValueError: the waivers can't be read.
    """
    repository = folder.parents[1]
    waivers = read_waivers(folder / WAIVERS)
    tag = last_release(repository, folder.name)
    breaks = list(find_breaks(repository, folder, tag)) if tag else []
    since = f"since {tag}" if tag else _no_release(repository)
    complaints = [
        f"breaks its users {since}: {each}. Undo it, or waive it with a reason in {WAIVERS}"
        for each in breaks
        if (each.object, each.kind) not in waivers
    ]
    waived = [
        f"waived: {each}. {waivers[each.object, each.kind]}"
        for each in breaks
        if (each.object, each.kind) in waivers
    ]
    stale = waivers.keys() - {(each.object, each.kind) for each in breaks}
    complaints += [
        f"{WAIVERS} waives {name} [{kind}], which is not among the breaks {since}. Take it out"
        for name, kind in sorted(stale)
    ]
    return complaints, waived or [since if tag is None else f"breaks {since}: {len(breaks)}"]


def read_waivers(path: Path) -> dict[tuple[str, str], str]:
    """Return the reason for each waived object and kind; none if there is no file.

    Raises:
        ValueError: a waiver without one of its three texts, or one that stands there twice.
    """
    waivers: dict[tuple[str, str], str] = {}
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("waiver", []) if path.exists() else []:
        texts = [entry.get(key) for key in ("object", "kind", "reason")]
        if len(entry) != 3 or not all(isinstance(text, str) and text.strip() for text in texts):
            raise ValueError(f"{path}: a waiver has an object, a kind and a reason, got {entry}")
        if (entry["object"], entry["kind"]) in waivers:
            raise ValueError(f"{path}: {entry['object']} [{entry['kind']}] is waived twice")
        waivers[entry["object"], entry["kind"]] = entry["reason"]
    return waivers


def last_release(repository: Path, package: str) -> str | None:
    """Return the newest tag of a package before the commit at hand; None if there is none, or no git."""
    newest_first = ("--sort=-v:refname", "--merged", "HEAD")
    tags = _git(repository, "tag", "--list", f"{package}-v[0-9]*", *newest_first)
    return tags[0] if tags else None


def find_breaks(repository: Path, folder: Path, tag: str) -> Iterator[Break]:
    """Yield what changed in the public names of a package since a tag, and may break who uses them."""
    module = folder.name.replace("-", "_")
    # Siblings come along, so that what is re-exported from one is found.
    sources = [path.relative_to(repository) for path in sorted(repository.glob("packages/*/src"))]
    how: dict[str, Any] = {"allow_inspection": False, "resolve_aliases": True, "resolve_implicit": True}
    old = griffe.load_git(
        module, ref=tag, repo=repository, search_paths=sources, resolve_external=True, **how
    )
    new = griffe.load(
        module,
        search_paths=[repository / source for source in sources],
        try_relative_path=False,
        resolve_external=True,
        **how,
    )
    seen: set[tuple[str, str, str]] = set()
    for name in sorted(public_names(old, documented(repository, tag))):
        was, now = _find(old, name), _find(new, name)
        if was is None:
            continue
        if now is None:
            yield Break(name, "object-removed")
            continue
        for breakage in griffe.find_breaking_changes(_alone(was), _alone(now)):
            found = _described(breakage, name, {was.path, now.path})
            # A method that public classes inherit is reported for the first of them.
            key = (breakage.obj.path, found.kind, found.object.rpartition("(")[2])
            if key not in seen and _is_promised(breakage):
                seen.add(key)
                yield found


def public_names(package: griffe.Object | griffe.Alias, in_reference: list[str]) -> set[str]:
    """Return the dotted names that users may rely on, dunders left out."""
    names = {f"{package.path}.{name}" for name in _exported(package)}
    for name in in_reference:
        found = _find(package, name)
        if found is not None and found.is_module:
            names |= {f"{name}.{each}" for each in _exported(found)}
        elif found is not None:
            names.add(name)
    return names


def documented(repository: Path, tag: str) -> list[str]:
    """Return the dotted names that the reference documented at a tag, by Sphinx's directives."""
    directive = r"^ *\.\. auto[a-z]+:: [a-zA-Z0-9_.]+"
    lines = _git(repository, "grep", "--no-color", "-hoE", directive, tag, "--", REFERENCE)
    return [line.rpartition(":: ")[2] for line in lines]


def _exported(module: griffe.Object | griffe.Alias) -> list[str]:
    """Return the public names of a module: its ``__all__``; where that is computed, all that it has of its package.

    Packages here load their names when first used: their ``__init__`` imports them for type checkers alone.
    """
    if module.exports:
        return [str(name) for name in module.exports if not str(name).startswith("_")]
    root = module.path.partition(".")[0]
    return [
        name
        for name, member in module.members.items()
        if not name.startswith("_")
        and (
            member.target_path.partition(".")[0] == root
            if isinstance(member, griffe.Alias)
            else not member.is_module
        )
    ]


def _find(package: griffe.Object | griffe.Alias, name: str) -> griffe.Object | None:
    """Return what a dotted name stands for, looked up from its package; None if nothing is there."""
    root, _, rest = name.partition(".")
    if root != package.path:
        return None
    try:
        found = package[rest] if rest else package
        return found.final_target if isinstance(found, griffe.Alias) else found
    except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
        return None


def _alone(target: griffe.Object) -> griffe.Module:
    """Return a module with one public name: what griffe is to compare, wherever it lies."""
    module = griffe.Module("alone")
    alias = griffe.Alias("it", target)
    alias.public = True
    module.set_member("it", alias)
    return module


def _described(breakage: griffe.Breakage, name: str, paths: set[str]) -> Break:
    """Say a breakage in terms of the public name through which users reach it."""
    path = breakage.obj.path
    home = next((home for home in paths if path == home or path.startswith(f"{home}.")), None)
    public = name + path.removeprefix(home) if home else f"{name}.{breakage.obj.name}"
    values = (breakage.old_value, breakage.new_value)
    parameter = next((value.name for value in values if isinstance(value, griffe.Parameter)), None)
    kind = breakage.kind.name.lower().replace("_", "-")
    if kind == "object-removed":
        return Break(public, kind)
    return Break(f"{public}({parameter})" if parameter else public, kind, *map(_as_text, values))


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, griffe.Parameter):
        default = "" if value.default is None else f" = {value.default}"
        return f"`{value.name}{default}` ({value.kind.value if value.kind else 'parameter'})"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(getattr(value, "value", value))


def _is_promised(breakage: griffe.Breakage) -> bool:
    """Tell whether users may rely on what changed: not on a version, nor on how a value is computed."""
    if breakage.kind is griffe.BreakageKind.ATTRIBUTE_CHANGED_VALUE:
        computed = not isinstance(breakage.old_value, str) or not isinstance(breakage.new_value, str)
        return not (computed or re.fullmatch(r"__\w+__", breakage.obj.name))
    return True


def _no_release(repository: Path) -> str:
    if _git(repository, "rev-parse", "--is-shallow-repository") == ["true"]:
        return "no release is known, and this clone is shallow: `git fetch --unshallow --tags` brings them"
    return "there is no release to compare with"


def _git(repository: Path, *arguments: str) -> list[str]:
    """Return the lines that a git command prints; none if it finds nothing, or this is no repository."""
    done = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


if __name__ == "__main__":
    sys.exit(main())
