"""What can be wrong with what a user asks the bench for, each with a page of its own in the documentation."""

from __future__ import annotations

from aot_core.errors import AotError

__all__ = [
    "MissingWorkloadDataError",
    "UnknownWorkloadError",
    "UnusableDeviceError",
    "WorkloadBuildError",
    "WorkloadContractError",
    "WorkloadFileError",
    "WorkloadTrainingError",
]


class UnknownWorkloadError(AotError, ValueError):
    """No workload of that name ships, and it does not read ``FILE.py:function`` either."""


class UnusableDeviceError(AotError, ValueError):
    """``--device`` names a device that this torch or this machine does not have."""


class MissingWorkloadDataError(AotError, ModuleNotFoundError):
    """The data that a shipped workload trains on is not installed."""


class WorkloadFileError(AotError, ImportError):
    """``FILE.py:function`` names a file or a function that can't be loaded."""


class WorkloadBuildError(AotError, RuntimeError):
    """The user's ``build()`` raised. The cause is chained."""


class WorkloadContractError(AotError, TypeError):
    """What ``build()`` returned is not a model, batches and a loss function that can be trained."""


class WorkloadTrainingError(AotError, RuntimeError):
    """The workload fails under eager itself, so that there is nothing to compare with. The cause is chained."""
