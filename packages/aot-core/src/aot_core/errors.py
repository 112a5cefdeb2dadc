"""Every error that this package raises, each with a page of its own in the documentation."""

from __future__ import annotations

import re

__all__ = [
    "AnalysisInstallationError",
    "AotError",
    "BackwardAutocastError",
    "CompilerError",
    "GraphCheckError",
    "InconsistentMetadataError",
    "InvalidCompilerResultError",
    "InvalidOptionValueError",
    "UncopyableError",
    "UnanalysedOperationError",
    "UnknownOptionError",
    "UnsafeGraphError",
    "UnsupportedAliasingError",
    "UnsupportedModeError",
]


class AotError(Exception):
    """Base of all errors of this family of packages.

    The message ends by naming the page ``errors/<slug>`` of the documentation that explains the class.
    Subclasses derive from the fitting builtin too, so that ``except ValueError`` goes on working.
    """

    def __init__(self, message: str) -> None:
        super().__init__(f"{message} See errors/{self.slug()}")
        self._message = message

    def __reduce__(self) -> tuple[type[AotError], tuple[str]]:
        # An exception is otherwise made anew from its whole text, page included.
        return type(self), (self._message,)

    @classmethod
    def slug(cls) -> str:
        """Return the page's name: ``UnknownOptionError`` → ``unknown-option``."""
        words = re.findall(r"[A-Z][a-z0-9]*", cls.__name__.removesuffix("Error"))
        return "-".join(word.lower() for word in words)


class UnknownOptionError(AotError, TypeError):
    """``options=`` holds a key that the backend does not know."""


class InvalidOptionValueError(AotError, ValueError):
    """An option has a value of the wrong type, or one that is not among the legal ones."""


class UncopyableError(AotError, TypeError):
    """A function or an argument can't be copied, so that it can't be run without leaving traces."""


class UnsupportedModeError(AotError, ValueError):
    """``mode=`` was given to a backend that has no such mode."""


class UnsafeGraphError(AotError, NotImplementedError):
    """The graph holds an operation that AOTAutograd can't run, and strictness was asked for."""


class UnsupportedAliasingError(AotError, NotImplementedError):
    """Inputs share memory in a way for which no right graph could be made."""


class CompilerError(AotError, RuntimeError):
    """A compiler of a backend failed. Names the backend, the graph and the stage; the cause is chained."""


class InvalidCompilerResultError(CompilerError, TypeError):
    """A compiler returned something that can't be called."""


class BackwardAutocastError(AotError, RuntimeError):
    """``.backward()`` ran under an autocast state for which no backward graph could be made."""


class GraphCheckError(AotError, AssertionError):
    """A node of the graph gave another dtype, size or stride than its metadata promised."""


class InconsistentMetadataError(AotError, ValueError):
    """What an analysis was told about a function's inputs or outputs contradicts itself."""


class UnanalysedOperationError(AotError, NotImplementedError):
    """A node of a graph calls something of which nothing says what it writes."""


class AnalysisInstallationError(AotError, RuntimeError):
    """The analyses can't be put in the place of torch's own, or are not there to be taken out."""
