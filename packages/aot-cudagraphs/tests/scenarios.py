"""What must hold of captured graphs, each in a function that fails if it does not.

They are tests of the backend, and what `test_faults` runs against a broken one.
"""

from __future__ import annotations

import copy
import gc
import threading

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from training import assert_identical

import aot_cudagraphs
from aot_cudagraphs import (
    ArgumentCountError,
    CapturedGraph,
    CaptureSettings,
    CudaGraphModule,
    RequiresGradientError,
    apply_cuda_graphs,
    partition,
)
from aot_cudagraphs.cache import State
from aot_cudagraphs.lanes import lanes_for
from aot_cudagraphs.simulator import SimulatedEngine, held_bytes

SIMULATED = {"capture": "simulated"}


def module(function, *inputs, **options):
    """Capture a function as one island."""
    gm = make_fx(function, tracing_mode="fake")(*inputs)
    return CudaGraphModule(gm, {**SIMULATED, **options})


def same(function, captured, *inputs):
    """Call both with inputs that are equal and apart, and compare outputs and what became of the inputs."""
    twins = [copy.deepcopy(x.detach()) if isinstance(x, torch.Tensor) else x for x in inputs]
    state = torch.get_rng_state()
    expected = function(*twins)
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    got = captured(*inputs)
    assert torch.equal(torch.get_rng_state(), after), "another number of random numbers was drawn"
    tensors = [
        (a, b) for a, b in zip([*got, *inputs], [*expected, *twins], strict=True) if torch.is_tensor(a)
    ]
    assert_identical([a for a, _ in tensors], [b for _, b in tensors])
    for one, other in tensors[: len(got)]:
        assert one.stride() == other.stride() and one.dtype == other.dtype
    return got


def values_change():
    def f(x, w):
        return [torch.relu(x @ w)]

    w = torch.randn(4, 4)
    run = module(f, torch.randn(3, 4), w)
    for _ in range(5):
        same(f, run, torch.randn(3, 4), w)
    assert run.num_graphs == 1


def kept_outputs_stay():
    run = module(lambda x: [x * 2, x.sum()], torch.randn(4))
    kept = []
    for i in range(6):
        x = torch.full((4,), float(i))
        kept.append((run(x), [x * 2, x.sum()]))
    for got, expected in kept:
        assert_identical(got, expected)


def kept_outputs_of_the_pool_stay():
    run = module(lambda x: [x * 2, x.sum()], torch.randn(4), outputs="pool")
    kept = []
    for i in range(12):
        x = torch.full((4,), float(i))
        kept.append((run(x), [x * 2, x.sum()]))
    for got, expected in kept:
        assert_identical(got, expected)


def outputs_outlive_the_graph():
    for outputs in ("clone", "pool"):
        run = module(lambda x: [x * 2, x.sum()], torch.randn(4), outputs=outputs)
        for i in range(3):
            got = run(torch.full((4,), float(i)))
        del run
        gc.collect()
        other = module(lambda x: [x - 1, x.exp()], torch.randn(4), outputs=outputs)
        for _ in range(3):
            other(torch.randn(4))
        assert_identical(got, [torch.full((4,), 4.0), torch.tensor(8.0)])


def writes_reach_inputs():
    def f(x, buffer):
        buffer.add_(x)
        return [buffer * 2]

    run = module(f, torch.randn(4), torch.randn(4))
    buffer = torch.zeros(4)
    for _ in range(4):
        same(f, run, torch.randn(4), buffer)  # at one address
    for _ in range(4):
        same(f, run, torch.randn(4), torch.randn(4))  # at others


def writes_are_counted():
    def f(x):
        x.add_(1)
        return [x * 2]

    x = torch.zeros(4)
    run = module(f, torch.randn(4))
    for _ in range(4):
        before = x._version
        run(x)
        assert x._version > before


def each_call_runs_once():
    def f(x, total):
        total.add_(x)
        return [torch.rand(3) + x]

    for warmup in (0, 1, 3):
        run = module(f, torch.randn(3), torch.randn(3), warmup=warmup)
        total = torch.zeros(3)
        for _ in range(6):
            same(f, run, torch.randn(3), total)


def random_numbers_advance():
    def f(x):
        return [torch.nn.functional.dropout(x, 0.5), torch.rand_like(x)]

    run = module(f, torch.randn(64))
    x = torch.ones(64)
    drawn = [same(f, run, x)[1] for _ in range(5)]
    assert not any(torch.equal(drawn[i], drawn[i + 1]) for i in range(4))


def inputs_move():
    def f(x, w):
        return [x @ w]

    w = torch.randn(4, 4)
    run = module(f, torch.randn(3, 4), w)
    x = torch.randn(3, 4)
    for _ in range(3):
        same(f, run, x, w)
    for _ in range(3):
        w = torch.randn(4, 4)  # where all have been read in place
        same(f, run, torch.randn(3, 4), w)
    parameter = torch.nn.Parameter(torch.randn(4, 4))
    with torch.no_grad():
        for _ in range(3):
            same(f, run, x, parameter)
            parameter.data = torch.randn(4, 4)


def moving_inputs_come_to_be_copied():
    engine, recorded = SimulatedEngine(), []

    class Counting:
        def __getattr__(self, name):
            return getattr(engine, name)

        def record(self, *args):
            recorded.append(1)
            return engine.record(*args)

    gm = make_fx(lambda x, w: [x @ w], tracing_mode="fake")(torch.randn(4, 4), torch.randn(4, 4))
    for warmup in (0, 1):
        run = CudaGraphModule(gm, {**SIMULATED, "warmup": warmup}, engine=Counting())
        kept = [torch.randn(4, 4) for _ in range(12)]
        w = torch.nn.Parameter(torch.randn(4, 4), requires_grad=False)
        for x in kept:
            same(lambda x, w: [x @ w], run, x, w)
        (plan,) = run.input_plans
        assert set(plan.stand_ins) == {0} and set(plan.in_place) == {1}
    assert len(recorded) <= 3


def shapes_dtypes_and_strides_differ():
    def f(x, y):
        return [x + y, x.sum()]

    run = module(f, torch.randn(4, 8), torch.randn(4, 8))
    y = torch.randn(4, 8)
    for _ in range(3):
        same(f, run, torch.randn(4, 8), y)
        same(f, run, torch.randn(1, 8), y)  # would broadcast
        same(f, run, torch.randn(8), y)
        same(f, run, torch.randn(4, 8, dtype=torch.float64), y)  # would be cast
        same(f, run, torch.randint(5, (4, 8)), y)
        same(f, run, torch.randn(8, 4).T, y)
        same(f, run, torch.randn(4, 16)[:, ::2], y)
        same(f, run, torch.randn(4, 1).expand(4, 8), y)


def numbers_differ():
    gm = torch.fx.symbolic_trace(_scaled)
    run = CudaGraphModule(gm, SIMULATED)
    for _ in range(3):
        for number in (2, 2.0, 3, 0.0, -0.0, True):
            x = torch.ones(3)
            (got,) = run(x, number)
            expected = torch.div(x, torch.mul(x, number))
            assert torch.equal(got, expected) and got.dtype == expected.dtype, number


def _scaled(x, number):
    return [torch.ops.aten.div.Tensor(x, torch.ops.aten.mul.Scalar(x, number))]


def inputs_overlap():
    def f(x, y):
        x.mul_(2)
        return [x + y]

    run = module(f, torch.randn(4), torch.randn(4))

    def apart():
        return torch.randn(4), torch.randn(4)

    def alike():
        x = torch.randn(4)
        return x, x

    def shifted():
        memory = torch.randn(5)
        return memory[:4], memory[1:]

    def shifted_back():
        memory = torch.randn(5)
        return memory[1:], memory[:4]

    # Each pattern is met by a recording of the one before, at addresses where all is read in place or copied.
    for make in (apart, alike, shifted, shifted_back, apart, alike, shifted, apart) * 3:
        state = torch.get_rng_state()
        expected_inputs = make()
        torch.set_rng_state(state)
        inputs = make()
        expected, got = f(*expected_inputs), run(*inputs)
        assert_identical([*got, *inputs], [*expected, *expected_inputs])


def strided_and_lazy_inputs():
    def f(x):
        return [x * 2, x + 1]

    run = module(f, torch.randn(4, 4))
    for _ in range(3):
        same(f, run, torch.randn(4, 1).expand(4, 4))
        same(f, run, torch.randn(7).as_strided((4, 4), (1, 1)))
        same(f, run, torch.randn(8, 8)[::2, 1::2])
        same(f, run, torch.randn(4, 4, dtype=torch.complex64).conj())
        same(f, run, torch.randn(4, 4, dtype=torch.complex64).conj().imag)
        same(f, run, torch.randn(0, 4))


def relations_of_outputs():
    def f(x, w):
        y = torch.relu(x @ w)
        return [x, x.view(-1), w.t(), y, y.view(-1), y[1:], x[1]]

    w = torch.randn(4, 4)
    run = module(f, torch.randn(3, 4), w)
    for _ in range(4):
        x = torch.randn(3, 4)
        got = same(f, run, x, w)
        assert got[0] is x
        got[1].zero_()  # reaches x, and what else is of x
        assert x.eq(0).all() and got[6].eq(0).all()
        assert got[2].data_ptr() == w.data_ptr()
        got[3].fill_(7.0)
        assert got[4].eq(7).all() and got[5].eq(7).all()


def outputs_keep_strides():
    def f(x):
        return [(x + 1).sum(0, keepdim=True).expand(4, 4), (x + 1).t(), (x + 1)[::2]]

    run = module(f, torch.randn(4, 4))
    for _ in range(4):
        for one, other in zip(same(f, run, torch.randn(4, 4)), f(torch.randn(4, 4)), strict=True):
            assert one.stride() == other.stride()


def wrong_calls_raise():
    run = module(lambda x: [x * 2], torch.randn(4))
    x = torch.randn(4)
    for _ in range(3):
        run(x)
    for args in ((), (x, x)):
        try:
            run(*args)
        except ArgumentCountError:
            continue
        raise AssertionError(f"{len(args)} arguments were accepted")
    try:
        run(x.requires_grad_())
    except RequiresGradientError:
        return
    raise AssertionError("a gradient was lost silently")


def refused_captures_leave_no_trace():
    """One refused operation that the table of nodes is not asked about, since the whole is one island."""
    decisions = []
    gm = make_fx(lambda x: [torch.rand(3) + x * 2, x[x > 0].sum()], tracing_mode="real")(torch.randn(3))
    run = CudaGraphModule(gm, SIMULATED, decide=decisions.append)
    for _ in range(5):
        same(lambda x: [torch.rand(3) + x * 2, x[x > 0].sum()], run, torch.randn(3))
    assert run.states == [State.UNCAPTURED]
    assert len(decisions) == 1 and decisions[0].action == "fallback" and decisions[0].code == "mask-index"
    # Others can still be captured.
    values_change()


def graphs_are_limited():
    def f(x):
        return [x * 2]

    run = module(f, torch.randn(1), max_graphs=3, warmup=0)
    for n in (*range(1, 6), 5, 4, 3, 5):
        same(f, run, torch.randn(n))
        assert run.num_graphs <= 3


def memory_is_limited():
    def f(x):
        return [x * 2]

    decisions = []
    gm = make_fx(f, tracing_mode="fake")(torch.randn(4))
    run = CudaGraphModule(gm, {**SIMULATED, "memory_budget": 1 << 10}, decide=decisions.append)
    for _ in range(4):
        same(f, run, torch.randn(4))
    assert run.held_bytes <= 1 << 10
    assert [decision.code for decision in decisions] == ["memory-budget"]


def memory_is_given_back():
    for outputs in ("clone", "pool"):
        run = module(lambda x: [x * 2, x.sum()], torch.randn(4), outputs=outputs)
        for _ in range(3):
            run(torch.randn(4))
        assert run.held_bytes > 0
        run.reset()
        assert run.held_bytes == 0
        same(lambda x: [x * 2, x.sum()], run, torch.randn(4))
        same(lambda x: [x * 2, x.sum()], run, torch.randn(4))
        del run
        gc.collect()
        assert aot_cudagraphs.held_bytes() == 0 and held_bytes() == 0


def numbers_on_the_host_are_read():
    def f(x, s):
        return [torch.relu(x * s) + s]

    gm = make_fx(f, tracing_mode="fake")(torch.randn(8), torch.tensor(1.0))
    run = apply_cuda_graphs(gm, options=SIMULATED, is_host=lambda tensor: tensor.dim() == 0)
    assert run.partition.moved
    for value in (1.0, 2.0, 3.0, 4.0):
        same(f, run, torch.randn(8), aot_cudagraphs.simulator.as_host(torch.tensor(value)))


# --- forward and backward ----------------------------------------------------------------------------------


class Step:
    """A forward and a backward, cut and captured as the backend does it."""

    def __init__(self, outputs="clone", warmup=1):
        def forward(x, w):
            h = torch.tanh(x @ w)
            g = h * torch.sigmoid(h)
            return [g.sum(), h, x, g]

        def backward(h, x, g, tangent):
            t = tangent * (torch.sigmoid(h) + g * (1 - torch.sigmoid(h))) * (1 - h * h)
            return [x.t() @ t, (t * 2).sum(0), g + 1]

        x, w = torch.randn(4, 4), torch.randn(4, 4)
        engine, settings = (
            SimulatedEngine(),
            CaptureSettings(outputs=outputs, warmup=warmup, capture="simulated"),
        )
        self.forward, self.backward = forward, backward
        gm = make_fx(forward, tracing_mode="fake")(x, w)
        part = partition(gm)
        self.lanes = lanes_for(engine, part.device)
        self.begin = CapturedGraph(
            gm,
            settings,
            part,
            self.lanes,
            destinations=["caller", "passed", "passed", "passed"],
            engine=engine,
            name="forward",
        )
        _, *saved = forward(x, w)
        gm = make_fx(backward, tracing_mode="fake")(*saved, torch.tensor(1.0))
        self.end = CapturedGraph(
            gm, settings, partition(gm), self.lanes, continues=True, engine=engine, name="backward"
        )


def _begin(step, w):
    x = torch.randn(4, 4)
    loss, *saved = step.begin.run([x, w])
    expected_loss, *expected_saved = step.forward(x, w)
    assert_identical([loss], [expected_loss])
    return loss, saved, expected_saved


def _end(step, saved, expected_saved):
    tangent = torch.randn(())
    assert_identical(step.end.run([*saved, tangent]), step.backward(*expected_saved, tangent))


def steps_one_after_another():
    for outputs in ("clone", "pool"):
        step, w = Step(outputs), torch.randn(4, 4)
        for _ in range(6):
            _, saved, expected = _begin(step, w)
            _end(step, saved, expected)
            del saved


def steps_in_flight():
    for depth in (2, 3):
        step, w = Step(), torch.randn(4, 4)
        for _ in range(4):
            begun = [_begin(step, w) for _ in range(depth)]
            for _, saved, expected in begun:
                _end(step, saved, expected)
            del begun, saved


def backwards_that_run_twice():
    """What ``retain_graph=True`` asks for: outside a backward of autograd, nothing saved is overwritten."""
    step, w = Step(), torch.randn(4, 4)
    for _ in range(5):
        _, saved, expected = _begin(step, w)
        _end(step, saved, expected)
        _end(step, saved, expected)
        del saved


def backwards_of_several_kinds():
    """The same saved values, read by recordings for tangents of several dtypes, in any order."""
    step, w = Step(), torch.randn(4, 4)
    for i in range(12):
        _, saved, expected = _begin(step, w)
        tangent = torch.randn((), dtype=torch.float64 if i % 3 == 2 else torch.float32)
        assert_identical(step.end.run([*saved, tangent]), step.backward(*expected, tangent))
        del saved


def memory_that_is_read_later():
    """Between islands: what is given away is read by nothing that comes after, under whatever name."""

    def f(x, w):
        a = (x @ w).relu()
        v = a.view(-1)
        n = torch.nonzero(w).sum()
        b = a.sin().exp().cos()
        m = torch.nonzero(w).sum()
        return [(b + v.view(8, 8)).cos() + n + m]

    x, w = torch.randn(8, 8), torch.randn(8, 8)
    run = apply_cuda_graphs(make_fx(f, tracing_mode="real")(x, w), [x, w], options=SIMULATED)
    for _ in range(5):
        same(f, run, torch.randn(8, 8), w)


def values_between_islands():
    def f(x, w):
        a = (x @ w).relu()
        b = torch.linalg.eigvals(a).real.sort().values
        return [a, b + a, a.view(-1), (a * b).sum()]

    for outputs in ("clone", "pool"):
        x, w = torch.randn(4, 4), torch.randn(4, 4)
        gm = make_fx(f, tracing_mode="fake")(x, w)
        run = apply_cuda_graphs(gm, options={**SIMULATED, "outputs": outputs})
        kept = []
        for _ in range(6):
            x = torch.randn(4, 4)
            kept.append((run(x, w), f(x, w)))
        for got, expected in kept:
            assert_identical(got, expected)
            assert got[0].data_ptr() == got[2].data_ptr()
        if outputs == "clone":
            assert len(list(run.lanes)) == 1


def steps_take_other_paths():
    """An island that reads nothing of the one before it, after recordings of several shapes of that one."""

    def f(x, y, w):
        a = (x @ w).relu()
        m = torch.linalg.eigvals(w).real.sum()
        b = (y * 2).exp() + m
        n = torch.linalg.eigvals(w).real.sum()
        c = (a.sin().exp().cos().tanh() * 2 - 1).exp() + n
        return [b, c]

    x, y, w = torch.randn(8, 8), torch.randn(8), torch.randn(8, 8)
    run = apply_cuda_graphs(make_fx(f, tracing_mode="fake")(x, y, w), options=SIMULATED)
    assert len(run.islands) == 3
    for size in (8, 8, 200, 200, 8, 200, 1000, 8, 1000, 1000, 200, 8):
        same(f, run, torch.randn(8, 8), torch.randn(size), w)


def gradients_of_the_pool_from_two_backwards():
    """The results of the first are held while the second runs."""
    step, w = Step("pool"), torch.randn(4, 4)
    for _ in range(5):
        _, saved, expected = _begin(step, w)
        tangents = torch.randn(()), torch.randn(())
        got = [step.end.run([*saved, tangent]) for tangent in tangents]
        for one, tangent in zip(got, tangents, strict=True):
            assert_identical(one, step.backward(*expected, tangent))
        del saved, got, one


def threads_do_not_meet():
    def f(x, w):
        return [torch.relu(x @ w), x.sum()]

    w = torch.randn(16, 16)
    run = module(f, torch.randn(8, 16), w)
    failures = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(30):
            x = torch.randn(8, 16, generator=generator)
            for one, other in zip(run(x, w), f(x, w), strict=True):
                if not torch.equal(one, other):
                    failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    lanes = lanes_for(SimulatedEngine(), torch.device("cpu"))
    assert lanes.enter() is not lanes.enter()


SCENARIOS = [
    values_change,
    kept_outputs_stay,
    kept_outputs_of_the_pool_stay,
    outputs_outlive_the_graph,
    writes_reach_inputs,
    writes_are_counted,
    each_call_runs_once,
    random_numbers_advance,
    inputs_move,
    moving_inputs_come_to_be_copied,
    shapes_dtypes_and_strides_differ,
    numbers_differ,
    inputs_overlap,
    strided_and_lazy_inputs,
    relations_of_outputs,
    outputs_keep_strides,
    wrong_calls_raise,
    refused_captures_leave_no_trace,
    graphs_are_limited,
    memory_is_limited,
    memory_is_given_back,
    numbers_on_the_host_are_read,
    steps_one_after_another,
    steps_in_flight,
    backwards_that_run_twice,
    backwards_of_several_kinds,
    memory_that_is_read_later,
    values_between_islands,
    steps_take_other_paths,
    gradients_of_the_pool_from_two_backwards,
    threads_do_not_meet,
]
