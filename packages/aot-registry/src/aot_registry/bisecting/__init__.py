"""Find out which stage of a compile, which graph and which node breaks a model: the machinery of ``aot bisect``.

The flow, each arrow a module::

    model, inputs ──copies──> a copy for each run ──observation──> Observation
    eager, float64 and compiled observations ──tolerance──> Failure*
    stages in order ──stages, trial──> the first that fails
    that stage ──blame──> graph, node, cause          by halving, or by looking at values
    that graph ──reproducer──> one runnable file

Importing it does not import torch.
"""

from __future__ import annotations
