"""What a function does to its inputs, once inputs that share memory have been merged.

AOTAutograd first runs the function and notes what it does to each input and how each output relates to the
inputs: torch calls that record ``ViewAndMutationMeta``. Everything after that works on a function in which no
two inputs share written memory. Getting there takes two steps, each of which changes the list of inputs, and
with it everything in the record that counts or names an input::

    f(a, b, a)              three inputs, two of them one tensor
      │ remove_dupe_metadata
    f(a, b)                 a and b are views of one storage, and f writes to a
      │ compute_overlapping_inputs: do they overlap at all?
      │ create_synthetic_base_metadata
    f(base)                 a and b are taken from base inside the function

`create_graph_signature` names the inputs and outputs of what comes out at the end, and
`find_input_mutations` reads from any graph of ATen operations which inputs it writes.

These have the call signatures of torch's own functions and work on the running torch's own records, and they
are right where torch's are wrong; `install` puts them in their place, for Inductor and every other backend in
the process. Importing this package does not import torch; using it does.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aot_core.lazy import lazy_names

if TYPE_CHECKING:
    from aot_core.analysis.duplicates import remove_dupe_metadata as remove_dupe_metadata
    from aot_core.analysis.installation import Installation as Installation
    from aot_core.analysis.installation import install as install
    from aot_core.analysis.installation import is_installed as is_installed
    from aot_core.analysis.installation import uninstall as uninstall
    from aot_core.analysis.mutation import InputMutation as InputMutation
    from aot_core.analysis.mutation import find_input_mutations as find_input_mutations
    from aot_core.analysis.mutation import find_written_tensors as find_written_tensors
    from aot_core.analysis.overlap import compute_overlapping_inputs as compute_overlapping_inputs
    from aot_core.analysis.signature import create_graph_signature as create_graph_signature
    from aot_core.analysis.synthetic_base import (
        create_synthetic_base_metadata as create_synthetic_base_metadata,
    )

_HOMES = {
    "duplicates": ("remove_dupe_metadata",),
    "installation": ("Installation", "install", "is_installed", "uninstall"),
    "mutation": ("InputMutation", "find_input_mutations", "find_written_tensors"),
    "overlap": ("compute_overlapping_inputs",),
    "signature": ("create_graph_signature",),
    "synthetic_base": ("create_synthetic_base_metadata",),
}
__all__ = sorted(itertools.chain(*_HOMES.values()))

__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
