"""``aot_mem_efficient``: its options, what it reports, and that it is eager PyTorch in less memory."""

from __future__ import annotations

import pytest
import torch

import aot_core


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Dropout(0.3), torch.nn.Linear(64, 4)
    )


def step(model, function, seed=1):
    model.zero_grad()
    torch.manual_seed(seed)
    loss = function(torch.ones(8, 16)).square().mean()
    loss.backward()
    return loss.detach(), [p.grad.clone() for p in model.parameters()]


@pytest.mark.usefixtures("quick_search")
@pytest.mark.parametrize("decompositions", ["none", "core"])
@pytest.mark.parametrize("budget", [None, 1.0, 0.9, "minimum"])
def test_a_step_is_eagers(budget, decompositions):
    model = make_model()
    options = {"budget": budget, "decompositions": decompositions}
    compiled = torch.compile(model, backend="aot_mem_efficient", options=options)
    if decompositions == "none":
        torch.testing.assert_close(step(model, compiled), step(model, model))
    else:
        # Decomposed, dropout draws other numbers than its kernel.
        model[2].p = 0.0
        torch.testing.assert_close(step(model, compiled), step(model, model))


def test_what_it_decided_is_reported():
    model = make_model()
    with aot_core.record_reports() as (reports):
        step(model, torch.compile(model, backend="aot_mem_efficient"))
    (report,) = reports
    codes = [decision.code for decision in report.decisions if decision.stage == "partition"]
    assert codes == ["partitioned"]


def test_a_fraction_that_a_graph_cannot_keep():
    model = torch.nn.Linear(4, 1)
    with aot_core.record_reports() as reports:
        compiled = torch.compile(model, backend="aot_mem_efficient", options={"budget": 0.01})
        compiled(torch.ones(2, 4)).sum().backward()
    assert "budget-too-small" in {decision.code for decision in reports[0].decisions}


def test_a_graph_that_takes_less_than_the_budget_is_not_planned():
    with aot_core.record_reports() as reports:
        compiled = torch.compile(
            torch.nn.Linear(4, 1), backend="aot_mem_efficient", options={"budget": "1GiB"}
        )
        compiled(torch.ones(2, 4)).sum().backward()
    assert reports[0].status == "ok"
    (decision,) = [d for d in reports[0].decisions if d.code == "fits-without-a-plan"]
    assert "BudgetTooLarge" not in decision.detail and "1073741824 bytes" in decision.detail


@pytest.mark.parametrize("options", [{"budget": 0.01, "strict": True}, {"budget": 3}])
def test_a_promise_that_cannot_be_kept_is_an_error(options):
    compiled = torch.compile(torch.nn.Linear(4, 1), backend="aot_mem_efficient", options=options)
    with pytest.raises(Exception, match="BudgetTooSmallError"):
        compiled(torch.ones(2, 4)).sum().backward()


@pytest.mark.parametrize(
    "options", [{"budget": -1}, {"budget": "many"}, {"cost_model": "guess"}, {"buget": 1.0}]
)
def test_options_are_checked(options):
    with pytest.raises(Exception, match=r"InvalidOptionValueError|UnknownOptionError"):
        torch.compile(torch.nn.Linear(4, 1), backend="aot_mem_efficient", options=options)(torch.ones(2, 4))
