"""Copies share memory as the originals do, in any precision."""

import pytest
import torch
from torch import nn

from aot_registry.bisecting.copies import Subject, Unconvertible, copied, laid_out_copy, working_dtype
from aot_registry.bisecting.observation import observe, observe_in_float64


def address(tensor):
    return tensor.untyped_storage().data_ptr()


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_inputs_that_overlap(dtype):
    memory = torch.arange(12.0)
    a, b = memory[:8], memory[4:].view(2, 4).t()
    copy, _ = copied(Subject(torch.add, (a, b, a)), dtype)
    one, other, again = copy.inputs
    assert again is one
    assert address(one) == address(other) != address(memory)
    assert (other.stride(), other.storage_offset()) == (b.stride(), b.storage_offset())
    assert torch.equal(other, b) and one.dtype == (dtype or torch.float32)
    one[5] = -1
    assert other[1, 0] == -1 and memory[5] == 5


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_tied_weights_and_an_input_that_is_a_buffer(dtype):
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    model.register_buffer("state", torch.zeros(3))
    copy, named = copied(Subject(model, (model.state,)), dtype)
    assert copy.model[0].weight is copy.model[1].weight is not model[0].weight
    assert copy.model.state is copy.inputs[0]
    assert [name for name, _ in named] == ["parameter 0.weight", "buffer state"]
    assert {tensor.dtype for _, tensor in named} == {dtype or torch.float32}


def test_a_view_gets_its_gradient_through_its_base():
    base = torch.ones(4, requires_grad=True)
    copy, named = copied(Subject(torch.sin, base[:2]))
    copy.inputs.sum().backward()
    ((name, tensor), _) = named
    assert name == "base of input"
    assert tensor.grad.tolist() == [1, 1, 0, 0]
    assert base.grad is None


def test_two_types_in_one_memory():
    memory = torch.zeros(4)
    inputs = (memory, memory.detach().view(torch.int32))
    copy, _ = copied(Subject(torch.add, inputs))
    copy.inputs[1][0] = 1
    assert copy.inputs[0][0] != 0
    with pytest.raises(Unconvertible):
        copied(Subject(torch.add, inputs), torch.float64)


def test_working_dtype_is_that_of_most_elements():
    assert working_dtype(Subject(nn.Linear(9, 9).bfloat16(), torch.ones(2))) == torch.bfloat16
    assert working_dtype(Subject(torch.add, torch.tensor(1))) == torch.float32


def test_laid_out_copy_of_an_expanded_tensor():
    expanded = torch.arange(3.0).expand(2, 3)
    copy = laid_out_copy(expanded)
    assert copy.stride() == (0, 1)
    assert torch.equal(copy, expanded) and address(copy) != address(expanded)


@pytest.mark.parametrize("inplace", [False, True])
def test_float64_draws_the_numbers_of_float32(inplace):
    def model(x):
        noise = torch.empty_like(x).uniform_() if inplace else torch.rand_like(x)
        return x * noise + torch.rand(4)

    subject = Subject(model, torch.ones(3, 4))
    narrow = observe(subject, lambda model: model, seed=3)["output"].value
    wide = observe_in_float64(subject, seed=3, drawn_as=torch.float32)["output"].value
    assert wide.dtype == torch.float64
    torch.testing.assert_close(narrow.double(), wide, rtol=1e-6, atol=0)
