"""A fault of each kind is found at its stage and node, and its reproducer shows it."""

import runpy

import pytest
import torch
from faulty_backends import KINDS, manifest_fault
from small_models import build

import aot_registry

# torch looks at .grad of every input it makes a fake tensor for; behind a graph break an input is no leaf.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")

SEED = 0
OF_PARAMETERS = 78
"""A partition that is wrong in what it recomputes of a parameter; another tensor's view would be saved."""
NUMBERS = [*range(SEED * len(KINDS), (SEED + 1) * len(KINDS)), OF_PARAMETERS]


@pytest.mark.parametrize(
    "number", NUMBERS, ids=lambda number: f"{number}-{KINDS[number % len(KINDS)].replace(' ', '-')}"
)
def test_fault_is_found(number, tmp_path, capsys):
    fault = manifest_fault(number)
    print(f"fault {fault.name} in {fault.model}")
    model, inputs = build(fault.model)
    path = tmp_path / "repro.py"
    result = aot_registry.bisect(model, inputs, f"faulty_backends:{fault.name}", reproducer_path=path)
    assert result.stage == fault.stage, str(result)
    if fault.kind == "wrong decomposition":
        assert (result.culprit.operator, result.culprit.source) == (fault.operator, fault.source), str(result)
    else:
        assert (result.culprit.role, result.culprit.node) == (fault.role, fault.nodes[0]), str(result)
    assert result.reproduces
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    assert end.value.code == 1
    assert "FAULT" in capsys.readouterr().out

    path.write_text(
        "\n".join(
            'BACKEND = "aot_eager"' if line.endswith("as BACKEND") else line
            for line in path.read_text().splitlines()
        )
    )
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    assert end.value.code == 0, "with a right backend there is nothing to show"


@pytest.mark.parametrize("backend", ["aot_eager", "aot_core_eager"])
@pytest.mark.parametrize("name", ["convolution", "dropped", "broken", "writes_input"])
def test_right_backends_raise_no_alarm(name, backend):
    model, inputs = build(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    given = inputs.clone()
    state = torch.get_rng_state()
    result = aot_registry.bisect(model, inputs, backend)
    assert result.stage is None, str(result)
    assert [stage.status for stage in result.stages] == ["ok"] * 6
    assert torch.equal(inputs, given) and torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_inference_has_one_graph():
    def wrong(gm, example_inputs):
        for node in gm.graph.nodes:
            if node.target is torch.ops.aten.tanh.default:
                node.target = torch.ops.aten.sigmoid.default
        gm.recompile()
        return aot_core.boxed_code(gm)

    import aot_core

    backend = aot_core.aot_autograd(name="wrong", fw_compiler=wrong)
    model, inputs = build("dropped")
    with torch.no_grad():
        result = aot_registry.bisect(model.eval(), inputs, backend)
    assert (result.stage, result.culprit.role, result.culprit.node) == ("backend", "inference", "tanh")
