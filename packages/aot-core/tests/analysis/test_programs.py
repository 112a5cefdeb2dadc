"""Random programs with inputs that share memory: right in every respect, and with the metadata torch would collect."""

from __future__ import annotations

import hypothesis
import pytest
import torch
from functorch.compile import aot_function, nop
from programs import Program, differences, observe, programs

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

REFUSALS = "does not yet handle"


def expected(program: Program) -> dict:
    try:
        return observe(program, *program.inputs())
    except RuntimeError:
        hypothesis.reject()


def compiled(program: Program, function) -> dict:
    try:
        return observe(function, *program.inputs())
    except AssertionError as error:
        # What torch refuses before it comes to these analyses is not theirs to repair.
        hypothesis.assume(REFUSALS not in str(error))
        raise


def is_about_parts(program: Program) -> bool:
    # Results of one unbind() are cut off from their base on purpose where autograd forbids writing to them
    # (torch 2.10 to 2.14), aliased inputs or not.
    return program.training and any(name == "parts" for name, _ in program.outputs)


@pytest.mark.skipif(
    torch.__version__.startswith("2.9."),
    reason="waits for torch 2.10: aot_function counts the inputs that a graph writes itself as returned, and asserts",
)
@hypothesis.given(programs())
def test_aot_function_agrees_with_eager(installed, metadata_checked, program):
    hypothesis.assume(not is_about_parts(program))
    reference = expected(program)
    # Not the program itself: AOTAutograd keeps what it compiled on the function.
    function = aot_function(
        lambda *inputs: program(*inputs),
        fw_compiler=nop,
        bw_compiler=nop,
        keep_inference_input_mutations=True,
    )
    assert differences(reference, compiled(program, function)) == []


@hypothesis.settings(max_examples=10)
@hypothesis.given(programs(repeated=False))
def test_torch_compile_agrees_with_eager(installed, metadata_checked, program):
    hypothesis.assume(not is_about_parts(program))
    reference = expected(program)
    torch.compiler.reset()
    function = torch.compile(lambda *inputs: program(*inputs), backend="aot_eager", dynamic=False)
    try:
        got = compiled(program, function)
    except Exception as error:
        hypothesis.assume(REFUSALS not in str(error))
        raise
    assert differences(reference, got) == []


@hypothesis.settings(max_examples=10)
@hypothesis.given(programs())
def test_metadata_of_parts_is_what_torch_would_collect(installed, metadata_checked, program):
    program = Program(program.views, program.writes, (*program.outputs, ("parts", 0)), program.repeated, True)
    expected(program)
    function = aot_function(lambda *inputs: program(*inputs), fw_compiler=nop, bw_compiler=nop)
    try:
        compiled(program, function)
    except RuntimeError as error:
        # Loud, and of the same origin as the comment above.
        if "is a view and" not in str(error):
            raise
