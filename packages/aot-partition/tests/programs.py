"""Random functions of tensors: chains, branches, views, products, reductions, several outputs."""

from __future__ import annotations

import random

import torch

UNARY = [
    torch.sin, torch.exp, torch.tanh, torch.sigmoid, torch.relu, torch.neg,
    lambda x: x.t(), lambda x: x * 2, lambda x: x.clone(), lambda x: x.reshape(-1).view(4, 4),
    lambda x: x.softmax(-1), lambda x: x.to(torch.float64).to(torch.float32), lambda x: x + 1,
    lambda x: torch.nn.functional.gelu(x), lambda x: x[:, :2].repeat(1, 2), lambda x: x.cumsum(0),
    lambda x: torch.nn.functional.layer_norm(x, (4,)), lambda x: x.detach() * x,
]  # fmt: skip
BINARY = [
    torch.mul, torch.add, torch.sub, torch.matmul, torch.maximum,
    lambda a, b: a * b.sum(0, keepdim=True), lambda a, b: torch.cat((a, b), 0)[:4],
    lambda a, b: torch.where(a > 0, a, b), lambda a, b: (a @ b).relu() @ a,
]  # fmt: skip
RANDOM = [
    lambda x: torch.nn.functional.dropout(x, 0.4, training=True),
    lambda x: x * torch.rand_like(x),
    lambda x: x * torch.bernoulli(x.sigmoid()),
    lambda x: x + torch.randn_like(x) * x,
    lambda x: x * torch.rand(4, 4),
    lambda x: x * torch.normal(x.detach(), 1.0),
    lambda x: x[torch.multinomial(torch.ones(4), 4)] * x,
]


def random_program(rng: random.Random, *, random_ops: bool = False, steps: int | None = None):
    """Return a function and inputs for it: 4x4 matrices, most of which require a gradient."""
    recipe = []
    count = rng.randrange(1, 4)
    values = count
    for _ in range(steps or rng.randrange(2, 14)):
        draw = rng.random()
        if random_ops and draw < 0.3:
            recipe.append((rng.choice(RANDOM), (rng.randrange(values),)))
        elif draw < 0.65:
            recipe.append((rng.choice(UNARY), (max(0, values - 1 - rng.randrange(3)),)))
        else:
            recipe.append(
                (rng.choice(BINARY), (rng.randrange(values), max(0, values - 1 - rng.randrange(3))))
            )
        values += 1
    returned = sorted(
        {values - 1, *(rng.randrange(values) for _ in range(rng.randrange(3)))} - set(range(count))
    )

    def function(*inputs):
        made = list(inputs)
        for operation, arguments in recipe:
            made.append(operation(*(made[i] for i in arguments)))
        return [made[i] + made[0].sum() * 0 for i in returned]

    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    inputs = [torch.randn(4, 4, generator=generator) * 0.5 for _ in range(count)]
    for number, x in enumerate(inputs):
        x.requires_grad_(number == 0 or rng.random() < 0.7)
    return function, inputs
