"""``nvprims_aten`` through the conformance kit."""

from __future__ import annotations

from aot_core.testing import parametrize_backend_checks
from aot_partition.nvprims_backends import aot_nvprims_aten

AOT_AUTOGRAD = {
    "double_backward": "AOTAutograd compiles one backward; differentiating it raises",
}


@parametrize_backend_checks(aot_nvprims_aten, expected_failures=AOT_AUTOGRAD)
def test_nvprims_aten(check):
    check()
