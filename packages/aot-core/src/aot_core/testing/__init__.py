"""Conformance kit: does a ``torch.compile`` backend do what eager PyTorch does?

For a test suite::

    from aot_core.testing import parametrize_backend_checks

    @parametrize_backend_checks("my_backend", expected_failures={"double_backward": "not supported"})
    def test_conformance(check):
        check()

For people and programs: ``python -m aot_core.testing my_backend [--json]``, or `capability_table`.
"""

from __future__ import annotations

from aot_core.testing.check import Check as Check
from aot_core.testing.check import UnknownCheckError as UnknownCheckError
from aot_core.testing.check import all_checks as all_checks
from aot_core.testing.parametrize import parametrize_backend_checks as parametrize_backend_checks
from aot_core.testing.table import Capability as Capability
from aot_core.testing.table import CapabilityTable as CapabilityTable
from aot_core.testing.table import capability_table as capability_table

__all__ = [
    "Capability",
    "CapabilityTable",
    "Check",
    "UnknownCheckError",
    "all_checks",
    "capability_table",
    "parametrize_backend_checks",
]
