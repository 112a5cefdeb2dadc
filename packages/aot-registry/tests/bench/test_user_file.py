"""``FILE.py:build``: what works, and one message for each thing that can be wrong."""

import textwrap

import pytest
import torch

from aot_registry.bench.errors import WorkloadBuildError, WorkloadContractError, WorkloadFileError
from aot_registry.bench.training import TrainingRun
from aot_registry.bench.workloads import build_workload, check_workload_name

GOOD = """
import torch
from torch import nn

def build():
    batches = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(5)]
    return nn.Linear(3, 1), batches, nn.functional.mse_loss
"""


@pytest.fixture
def write(tmp_path):
    def write(source, name="mine.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(source))
        return str(path)

    return write


def returning(expression):
    return f"""
    import torch
    from torch import nn

    model, pair, loss = nn.Linear(3, 1), (torch.zeros(4, 3), torch.zeros(4, 1)), nn.functional.mse_loss

    def build():
        return {expression}
    """


def test_a_good_file_trains(write):
    workload = build_workload(f"{write(GOOD)}:build", seed=0)
    assert len(workload.batches) == 5
    run = TrainingRun(workload, lambda model: model, seed=0)
    run.take_steps(7)
    assert len(run.losses) == 7


def test_the_seed_reaches_it(write):
    reference = f"{write(GOOD)}:build"
    first, second, other = (build_workload(reference, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.batches[0][0], second.batches[0][0])
    assert torch.equal(first.model.weight, second.model.weight)
    assert not torch.equal(first.batches[0][0], other.batches[0][0])


def test_it_may_import_its_neighbours_and_yield_its_batches(write):
    write("import torch\nmodel = torch.nn.Linear(3, 1)\n", "a_neighbour.py")
    reference = write("""
        import torch, a_neighbour

        def build():
            batches = ((torch.zeros(2, 3), torch.zeros(2, 1)) for _ in range(3))
            return a_neighbour.model, batches, torch.nn.functional.mse_loss
    """)
    assert len(build_workload(f"{reference}:build", seed=0).batches) == 3


def test_tuple_and_dict_inputs_train(write):
    reference = write("""
        import torch
        from torch import nn

        class Sum(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))

            def forward(self, x, y):
                return (x + y) @ self.weight

        def build():
            x, y = torch.randn(4, 3), torch.randn(4, 3)
            batches = [((x, y), torch.zeros(4)), ({"y": y, "x": x}, torch.zeros(4))]
            return Sum(), batches, nn.functional.mse_loss
    """)
    run = TrainingRun(build_workload(f"{reference}:build", seed=0), lambda model: model, seed=0)
    run.take_steps(2)
    assert run.losses[1] == pytest.approx(run.losses[0], rel=0.02)


def test_missing_file_names_a_neighbour(write, tmp_path):
    write(GOOD, "mine.py")
    with pytest.raises(WorkloadFileError, match=r"There is no file '.*mime\.py'.*Did you mean '.*mine\.py'"):
        check_workload_name(f"{tmp_path / 'mime.py'}:build")


@pytest.mark.parametrize("reference", ["mine.py", "mine.py:", "mine.py:not a name"])
def test_no_function_named(reference):
    with pytest.raises(WorkloadFileError, match=r"names no function\. Expected FILE\.py:build"):
        check_workload_name(reference)


def test_missing_function_names_the_close_one(write):
    with pytest.raises(WorkloadFileError, match=r"has no function 'biuld'\. Did you mean 'build'"):
        build_workload(f"{write(GOOD)}:biuld", seed=0)


def test_not_a_function(write):
    with pytest.raises(WorkloadFileError, match="holds a int, not a function, named 'build'"):
        build_workload(f"{write('build = 3')}:build", seed=0)


@pytest.mark.parametrize(
    ("source", "what"),
    [("import no_such_module_at_all", "ModuleNotFoundError"), ("def build(:", "SyntaxError")],
)
def test_a_file_that_raises(write, source, what):
    with pytest.raises(WorkloadFileError, match=f"Executing .* raised {what}.*Run `python ") as caught:
        build_workload(f"{write(source)}:build", seed=0)
    assert type(caught.value.__cause__).__name__ == what


def test_a_file_that_is_not_python(write):
    with pytest.raises(WorkloadFileError, match="is not a Python file"):
        build_workload(f"{write('hello', 'mine.txt')}:build", seed=0)


def test_build_that_raises(write):
    with pytest.raises(WorkloadBuildError, match=r"mine\.py:build raised ZeroDivisionError") as caught:
        build_workload(f"{write('def build(): return 1 / 0')}:build", seed=0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_batches_that_raise(write):
    with pytest.raises(WorkloadBuildError, match=r"Iterating over the batches .* raised ZeroDivisionError"):
        build_workload(f"{write(returning('model, (1 / 0 for _ in [1]), loss'))}:build", seed=0)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("model", "got a Linear"),
        ("(model, [pair])", "got a tuple of 2"),
        ("(loss, [pair], loss)", "model must be a torch.nn.Module, got a function"),
        ("(nn.ReLU(), [pair], loss)", "has no parameter with requires_grad=True"),
        ("(model, [pair], 3)", r"loss_fn must be callable as loss_fn\(output, target\), got a int"),
        ("(model, 3, loss)", r"batches must be a list of \(inputs, target\), got a int"),
        ("(model, torch.zeros(3), loss)", "batches must be a list .*, got a Tensor"),
        ("(model, [], loss)", "batches is empty"),
        (
            "(model, iter(lambda: pair, None), loss)",
            "goes on after 10000 items; cut it with itertools.islice",
        ),
        ("(model, [pair, 1], loss)", r"batches\[1\] must be \(inputs, target\), got a int"),
        ("(model, [(1.0, 2.0)], loss)", r"inputs of batches\[0\] must be a tensor, a tuple .*, got a float"),
    ],
)
def test_wrong_return(write, expression, problem):
    pattern = r"build\(\) must return \(model, batches, loss_fn\); .*" + problem
    with pytest.raises(WorkloadContractError, match=pattern):
        build_workload(f"{write(returning(expression))}:build", seed=0)


def test_a_model_that_cannot_be_copied(write):
    reference = write("""
        import threading, torch

        def build():
            model = torch.nn.Linear(3, 1)
            model.lock = threading.Lock()
            return model, [(torch.zeros(2, 3), torch.zeros(2, 1))], torch.nn.functional.mse_loss
    """)
    with pytest.raises(WorkloadContractError, match=r"must survive copy\.deepcopy.*TypeError"):
        build_workload(f"{reference}:build", seed=0)


def test_a_loss_with_many_elements(write):
    reference = write(returning("model, [pair], lambda output, target: output - target"))
    run = TrainingRun(build_workload(f"{reference}:build", seed=0), lambda model: model, seed=0)
    with pytest.raises(WorkloadContractError, match=r"one element, got shape \[4, 1\]. Reduce it"):
        run.take_steps(1)
