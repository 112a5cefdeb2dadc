"""The op set and the rules for nvFuser agree: what the one claims, the other can say."""

from __future__ import annotations

import operator

import pytest
import torch

from aot_partition.nvfuser.definition import Operations
from aot_partition.nvfuser.rules import FAMILIES, rule, rules
from aot_partition.nvprims import NVPRIMS, nvprim_of


@pytest.mark.parametrize("name", NVPRIMS)
def test_every_operator_of_the_op_set_has_a_rule(name):
    assert [target for target in NVPRIMS[name].targets if target not in rules()] == []


def test_every_rule_has_an_entry_of_the_op_set():
    assert [op for op in rules() if op is not operator.getitem and nvprim_of(op) is None] == []


def test_an_operator_has_one_rule():
    with pytest.raises(ValueError, match=r"aten\.exp\.default has two rules"):
        rule(torch.ops.aten.exp.default)(lambda e, x: None)


def test_every_family_has_rules():
    homes = {each.emit.__module__.rpartition(".")[2] for each in rules().values()}
    assert homes == set(FAMILIES)


def test_operations_are_called_by_name():
    said = []
    operations = Operations(lambda *call: said.append(call))
    operations.add(1, 2)
    operations("add", 1, 2)
    assert said == [("ops.add", 1, 2)] * 2
