"""What can be seen from metadata alone to be wrong: names taken twice, groups that disagree, files gone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from aot_registry.discovery import INFO_GROUP, TARGET_GROUP, Declaration, Package
from aot_registry.problems import Problem
from aot_registry.requirements import check_torch

__all__ = ["find_conflicts", "find_override_conflicts", "find_package_problems"]


def find_conflicts(
    packages: Iterable[Package], torch_names: Collection[str]
) -> dict[Declaration, list[Problem]]:
    """Compare every declaration with the others, with its twin in the other group, and with torch's names.

    Args:
        packages: What is installed, in the order in which torch reads it.
        torch_names: Names that torch registers itself.

    Returns:
        For each declaration that has any, its problems: ``duplicate-name``, ``shadowed-by-torch``,
        ``groups-disagree`` or ``missing-metadata``.
    """
    claims: dict[str, list[Declaration]] = {}
    for package in packages:
        for declaration in package.declarations:
            claims.setdefault(declaration.name, []).append(declaration)

    problems: dict[Declaration, list[Problem]] = {}
    for name, rivals in claims.items():
        for declaration in rivals:
            found = [
                *_duplicate(declaration, rivals),
                *_shadowed(declaration, name in torch_names),
                *_one_group_only(declaration),
            ]
            if found:
                problems[declaration] = found
    return problems


def find_package_problems(package: Package, torch: str | None) -> list[Problem]:
    """Return what is wrong with an installed distribution as a whole, and so with each of its backends.

    Args:
        package: The distribution, discovered with ``check_files=True``.
        torch: Version of the installed torch, or None.
    """
    problems = list(package.problems)
    if package.missing_files:
        first, *others = package.missing_files
        problems.append(
            Problem(
                "half-uninstalled",
                f"{first}{f' and {len(others)} more' if others else ''}, which {package.name} installed, "
                f"{'are' if others else 'is'} gone",
                f"Finish what was begun: pip uninstall {package.name}, or "
                f"pip install --force-reinstall {package.name}.",
            )
        )
    mismatch = check_torch(package.requires, distribution=f"{package.name} {package.version}", torch=torch)
    if mismatch is not None:
        problems.append(mismatch)
    return problems


def find_override_conflicts(overrides: Mapping[Declaration, str]) -> dict[Declaration, Problem]:
    """Return a problem for each backend whose override another backend wants too.

    Args:
        overrides: Per declaration, the name of torch's that its `BackendInfo.overrides` gives.
    """
    problems = {}
    for declaration, name in overrides.items():
        rivals = [other for other in overrides if overrides[other] == name and other.name != declaration.name]
        if rivals:
            problems[declaration] = Problem(
                "override-conflict",
                f"{rivals[0].name!r} of {rivals[0].owner} wants to stand under torch's name {name!r} as well",
                f"Uninstall one: pip uninstall {rivals[0].distribution}, or pip uninstall "
                f"{declaration.distribution}; until then aot_registry.activate() refuses {name!r}.",
            )
    return problems


def _duplicate(declaration: Declaration, rivals: list[Declaration]) -> Iterable[Problem]:
    if len(rivals) > 1:
        owners = " and ".join(rival.owner for rival in rivals)
        losers = " or ".join(f"pip uninstall {rival.distribution}" for rival in rivals)
        yield Problem(
            "duplicate-name",
            f"{owners} both declare {declaration.name!r}; torch takes that of {rivals[0].owner} and says "
            "nothing",
            f"Uninstall one: {losers}.",
        )


def _shadowed(declaration: Declaration, owned: bool) -> Iterable[Problem]:
    if owned and declaration.target is not None:
        yield Problem(
            "shadowed-by-torch",
            f"torch has a backend {declaration.name!r} of its own and never looks at that of "
            f"{declaration.owner}",
            f"Pass the object: torch.compile(model, backend=aot_registry.get_backend({declaration.name!r})). "
            "Its authors should rename it, or declare the name as BackendInfo.overrides.",
        )


def _one_group_only(declaration: Declaration) -> Iterable[Problem]:
    if declaration.target is None:
        yield Problem(
            "groups-disagree",
            f"{declaration.owner} declares {declaration.name!r} in group {INFO_GROUP} and not in "
            f"{TARGET_GROUP}, so torch.compile(backend={declaration.name!r}) does not find it",
            f"Upgrade {declaration.distribution}, or report it to its authors.",
        )
    elif declaration.info is None:
        yield Problem(
            "missing-metadata",
            f"{declaration.distribution} describes it in no entry point of group {INFO_GROUP}: its tags are "
            "unknown, and importing it is the only probe",
            severity="info",
        )
