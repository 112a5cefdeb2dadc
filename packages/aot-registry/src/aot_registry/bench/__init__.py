"""Train real models under each backend and compare with eager: the machinery of ``aot bench``.

The flow, each arrow a module::

    WORKLOAD ──workloads──> Workload(model, batches, loss_fn)
    --backend ──contenders──> Contender(name, availability)
    both ──compare──> TrainingRun each, in turns ──> WorkloadResult ──table──> text

Importing it imports neither torch nor a data set.
"""

from __future__ import annotations
