"""From ``"module:attribute"`` to a backend, or to a `Problem` that says why not and what to do.

An import fails in a dozen ways that look alike to whoever reads the exception. Here each gets a code of its
own::

    ModuleNotFoundError of the package itself     half-uninstalled
    ModuleNotFoundError of one of its modules     missing-module
    ModuleNotFoundError of torch                  torch-missing
    a module or name that torch does not have     wrong-torch
    ModuleNotFoundError of another package        missing-dependency
    "libx.so.1: cannot open shared object file"   missing-library
    "undefined symbol: ..."                       abi-mismatch
    any other exception                           import-error
    the module lacks the attribute                missing-attribute
    the attribute can't be called                 not-callable

The exceptions are read here both in the subprocess of a probe and in the process that loads for good.
"""

from __future__ import annotations

import difflib
import importlib
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from aot_core.protocol import PROTOCOL_VERSION, BackendInfo
from aot_registry.discovery import INFO_GROUP, TARGET_GROUP, Declaration
from aot_registry.problems import Problem

__all__ = ["LoadError", "check_info", "load_backend", "load_info", "resolve", "target_of"]

_LIBRARY = re.compile(r"[\w+.-]+\.(?:so(?:\.\d+)*|dylib|dll)\b", re.IGNORECASE)
_LIBRARY_SIGNS = (
    "cannot open shared object file",
    "library not loaded",
    "dll load failed",
    "image not found",
)


class LoadError(Exception):
    """Carries the `Problem` that a failed load is explained by. Internal: never reaches a user."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.reason)
        self.problem = problem


def load_backend(declaration: Declaration, target: str) -> Callable[..., Any]:
    """Import a backend object.

    Args:
        declaration: Who declares it.
        target: ``"module:attribute"``.

    Raises:
        LoadError: whatever went wrong, explained.
    """
    backend = resolve(target, declaration)
    if not callable(backend):
        raise LoadError(
            Problem(
                "not-callable",
                f"{target} is {_article(backend)}, which can't be called",
                f"A backend is called with a graph and its inputs. Upgrade {declaration.distribution}, or "
                "report it to its authors.",
            )
        )
    return backend  # type: ignore[no-any-return]


def load_info(declaration: Declaration) -> BackendInfo | None:
    """Import the description of a backend; None if its distribution gives none.

    Raises:
        LoadError: whatever went wrong, explained.
    """
    if declaration.info is None:
        return None
    info = resolve(declaration.info, declaration)
    if not isinstance(info, BackendInfo):
        raise LoadError(
            Problem(
                "broken-metadata",
                f"{declaration.info} in group {INFO_GROUP} is {_article(info)}, expected a BackendInfo",
                f"Upgrade {declaration.distribution}, or report it to its authors.",
            )
        )
    return info


def target_of(declaration: Declaration, info: BackendInfo | None) -> str:
    """Return what to load: what torch would, or what the description says where torch was told nothing."""
    if declaration.target is not None:
        return declaration.target
    if info is not None:
        return info.target
    raise LoadError(
        Problem(
            "broken-metadata",
            f"{declaration.owner} declares {declaration.name!r} in group {INFO_GROUP} alone, and what it "
            "declares there can't be read",
            f"Upgrade {declaration.distribution}, or report it to its authors.",
        )
    )


def check_info(declaration: Declaration, info: BackendInfo) -> Iterator[Problem]:
    """Compare a description with the entry points under which it stands."""
    upgrade = f"Upgrade {declaration.distribution}, or report it to its authors."
    if info.name != declaration.name:
        yield Problem(
            "groups-disagree",
            f"The entry point is called {declaration.name!r} and the BackendInfo behind it {info.name!r}",
            upgrade,
        )
    if declaration.target is not None and _plain(declaration.target) != _plain(info.target):
        yield Problem(
            "groups-disagree",
            f"Group {TARGET_GROUP} says {declaration.target}, and the BackendInfo in {INFO_GROUP} "
            f"{info.target}",
            upgrade,
        )
    if info.protocol > PROTOCOL_VERSION:
        yield Problem(
            "newer-protocol",
            f"It is written against protocol {info.protocol}, and aot-core knows protocols up to "
            f"{PROTOCOL_VERSION}",
            "Upgrade aot-core: pip install --upgrade aot-core.",
        )


def resolve(reference: str, declaration: Declaration) -> Any:
    """Import a module and take an attribute of it, as ``EntryPoint.load`` does.

    Raises:
        LoadError: whatever went wrong, explained; the exception of the import is chained.
    """
    module_name, colon, attributes = _plain(reference).partition(":")
    names = attributes.split(".") if colon else []
    if not all(part.isidentifier() for part in [*module_name.split("."), *names]):
        raise LoadError(
            Problem(
                "broken-metadata",
                f"The entry point {declaration.name!r} reads {reference!r}, expected 'module:attribute'",
                f"Upgrade {declaration.distribution}, or report it to its authors.",
            )
        )
    try:
        value: Any = importlib.import_module(module_name)
    # SystemExit too: a module that ends the process on import must not end the one that looks at it.
    except (Exception, SystemExit) as error:
        raise LoadError(_explain(error, module_name, declaration)) from error
    where = module_name
    for name in names:
        try:
            value = getattr(value, name)
        except AttributeError as error:
            close = difflib.get_close_matches(name, dir(value), n=1)
            hint = f"; it has {close[0]!r}" if close else ""
            raise LoadError(
                Problem(
                    "missing-attribute",
                    f"{where} has no attribute {name!r}{hint}",
                    f"Upgrade {declaration.distribution}, or report it to its authors.",
                )
            ) from error
        except (Exception, SystemExit) as error:
            raise LoadError(_explain(error, module_name, declaration)) from error
        where = f"{where}.{name}"
    return value


def _plain(reference: str) -> str:
    """Return an entry point's value without its extras and blanks: ``"a : b [cli]"`` → ``"a:b"``."""
    return re.sub(r"\s+", "", reference.partition("[")[0])


def _explain(error: BaseException, module: str, declaration: Declaration) -> Problem:
    distribution = declaration.distribution
    for cause in _chain(error):
        text = str(cause)
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            return _explain_missing_module(cause.name, module, declaration)
        if isinstance(cause, ImportError) and (cause.name or "").partition(".")[0] == "torch":
            return _wrong_torch(text, distribution)
        if isinstance(cause, (ImportError, OSError)):
            if any(sign in text.lower() for sign in _LIBRARY_SIGNS):
                # Windows does not say which.
                match = _LIBRARY.search(text)
                library = match[0] if match else "one that it links to"
                return Problem(
                    "missing-library",
                    f"Shared library {library} is missing ({text})",
                    f"Install the package that ships {library}, or put its folder on the loader's path "
                    "(LD_LIBRARY_PATH on Linux); then run `aot doctor` again.",
                )
            if "undefined symbol" in text or "symbol not found" in text.lower():
                return Problem(
                    "abi-mismatch",
                    f"A compiled module of it does not fit the libraries installed ({text})",
                    f"{distribution} was built against another torch. Install the build made for this one, "
                    f"or rebuild it: pip install --force-reinstall --no-cache-dir {distribution}.",
                )
    if isinstance(error, SystemExit):
        what = f"it called sys.exit({error.code!r})"
    else:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Problem(
        "import-error",
        f"Importing {module} failed: {what}{_location(error)}",
        f"Upgrade {distribution}, or report it to its authors.",
    )


def _explain_missing_module(missing: str, module: str, declaration: Declaration) -> Problem:
    distribution = declaration.distribution
    package = module.partition(".")[0]
    if missing == package:
        return Problem(
            "half-uninstalled",
            f"{distribution} is installed, say its metadata, but module {missing!r} is not there",
            f"Finish what was begun: pip uninstall {distribution}, or pip install --force-reinstall "
            f"{distribution}.",
        )
    if module == missing or module.startswith(f"{missing}."):
        return Problem(
            "missing-module",
            f"Package {package!r} is there, but the entry point names module {missing!r}, which it lacks",
            f"Upgrade {distribution} or install it again: pip install --force-reinstall {distribution}.",
        )
    if missing.partition(".")[0] == "torch":
        if missing == "torch":
            return Problem("torch-missing", "torch is not installed", "Install it: pip install torch.")
        return _wrong_torch(f"No module named {missing!r}", distribution)
    return Problem(
        "missing-dependency",
        f"It imports {missing!r}, which is not installed",
        f"Install the package that provides {missing!r}; pip install --force-reinstall {distribution} brings "
        "what it declares.",
    )


def _wrong_torch(found: str, distribution: str) -> Problem:
    return Problem(
        "wrong-torch",
        f"It imports what this torch does not have ({found})",
        f"Install the torch that {distribution} is made for, or another version of {distribution}.",
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what caused it: packages like to wrap an ImportError in one of their own."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _location(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno})"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _article(value: object) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
