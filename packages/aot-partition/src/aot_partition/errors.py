"""Every error that this package raises, each with a page of its own in the documentation."""

from __future__ import annotations

from aot_core.errors import AotError

__all__ = [
    "BudgetTooLargeError",
    "BudgetTooSmallError",
    "ContradictoryTagsError",
    "InvalidBudgetError",
    "MissingExtraError",
    "MissingMetadataError",
    "NotDifferentiableError",
    "RanksDisagreeError",
    "RegionFailedError",
    "TangentOutputError",
    "UnboundedCutError",
    "UnknownExecutorError",
    "UnknownOperatorError",
    "UnusableExecutorError",
]


# --- the partitioner ---------------------------------------------------------------------------------------


class MissingMetadataError(AotError, ValueError):
    """A node of the joint graph has no ``meta["val"]``, so that nothing is known about its size."""


class ContradictoryTagsError(AotError, ValueError):
    """A value is tagged to be saved, and tagged to be recomputed."""


class UnknownOperatorError(AotError, ValueError):
    """``recomputable_ops`` holds something that is not an operator of torch."""


class NotDifferentiableError(AotError, ValueError):
    """The joint graph has no backward: no output of it depends on a tangent."""


class TangentOutputError(AotError, ValueError):
    """An output of the forward depends on a tangent, which only the backward knows."""


class UnboundedCutError(AotError, RuntimeError):
    """The backward needs a value that can be neither saved nor recomputed."""


# --- budgets -----------------------------------------------------------------------------------------------


class InvalidBudgetError(AotError, ValueError):
    """A budget that can't be read, is negative, or is above the peak of a step without a plan."""


class BudgetTooLargeError(InvalidBudgetError):
    """A budget in bytes above what the step takes without a plan: there is nothing to plan."""


class BudgetTooSmallError(AotError, ValueError):
    """No plan within the budget was found, or none can exist; the message says which."""


class MissingExtraError(AotError, ImportError):
    """A function needs a package that an extra of this one would have installed."""


class RanksDisagreeError(AotError, RuntimeError):
    """The ranks of a distributed step plan different graphs."""


# --- executors ---------------------------------------------------------------------------------------------


class UnknownExecutorError(AotError, ValueError):
    """``executor=`` names nothing, or something that is no executor."""


class UnusableExecutorError(AotError, RuntimeError):
    """An executor can't run on this machine, and strictness was asked for."""


class RegionFailedError(AotError, RuntimeError):
    """An executor failed to compile or to run a region, and strictness was asked for."""
