# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The first event that its inputs do not explain is named, and no other."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_compare import difference
from accel_compare.digest import Digest, digest
from accel_compare.record import (
    BACKWARD,
    COLLECTIVE,
    FORWARD,
    GRADIENT_OF_PARAMETER,
    GRADIENT_OF_RESULT,
    PARAMETER,
    STEP,
    Key,
    OpCall,
    RankRecord,
)
from accel_core.errors import InvalidInput

BASE = torch.randn(40, 50, generator=torch.Generator().manual_seed(0))
OTHER = torch.randn(40, 50, generator=torch.Generator().manual_seed(1))


def value(error: float = 0.0, size: float = 1.0) -> Digest:
    """A tensor with a relative error."""
    return digest((BASE + error * OTHER) * size)


def run(*events: tuple[Any, ...], rank: int = 0, world: int = 1) -> RankRecord:
    """(phase, where, name, inputs, results[, inside]) as a rank's record."""
    made, counts = [], Counter[Any]()
    for phase, where, name, inputs, results, *inside in events:
        key = Key(0, phase, where, name, counts[phase, where, name])
        counts[phase, where, name] += 1
        made.append(OpCall(key, tuple(inputs), tuple(results), *inside))
    return RankRecord(rank, world, "npu", made, True)


def chain(*errors: float) -> RankRecord:
    """Modules m0, m1, … each of which reads what the one before has computed; the data have the first error."""
    values = [[value(error)] for error in errors]
    return run(*((FORWARD, f"m{n}", "Linear", values[n], values[n + 1]) for n in range(len(errors) - 1)))


def first(reference: RankRecord, found: RankRecord) -> tuple[str, str] | None:
    one = difference.compare([reference], [found]).first
    return one and (one.key.where, one.what)


@pytest.mark.parametrize(
    ("errors", "blamed"),
    [
        pytest.param((0, 0, 0), None, id="equal runs"),
        pytest.param((0, 0, 1e-3, 1e-3), ("m1", "result"), id="a module that adds an error"),
        pytest.param((0, 1e-7, 1e-6, 8e-6, 5e-5), None, id="rounding that grows from module to module"),
        pytest.param((1e-2, 1e-2), ("m0", "input"), id="data that differ"),
    ],
)
def test_of_modules_the_one_that_adds_an_error_is_named(errors, blamed) -> None:
    assert first(chain(*[0] * len(errors)), chain(*errors)) == blamed


def test_difference_below_its_bound_is_said_to_be_below_and_not_equal() -> None:
    nearest = difference.compare([chain(0, 0, 0)], [chain(0, 1e-7, 3e-7)]).nearest
    assert nearest is not None
    assert nearest.key.where == "m1"
    assert 0 < nearest.error < nearest.bound
    assert "a fault that is smaller than its bound is not seen" in difference.describe_nearest(nearest)
    assert difference.compare([chain(0, 0)], [chain(0, 0)]).nearest is None


def bias_gradient(error: float) -> Any:
    return ((BACKWARD, "a", "aten.sum.dim_IntList", [value()], [digest((1e-7 + error) * OTHER[0] * 6)]),)


def derivative(error: float) -> Any:
    given = [value(size=1e-3), value()]
    return ((BACKWARD, "a", "aten.gelu_backward.default", given, [value(error, 1e-3)]),)


def loss_derivative(error: float) -> Any:
    """The loss of two tensors that are nearly the same."""
    given = [digest(torch.ones(())), value(error), value(1e-3)]
    return ((BACKWARD, "a", "aten.mse_loss_backward.default", given, [digest(error * BASE + 1e-3 * OTHER)]),)


_RESULT = ("a", "result")
_FAULT_ALONE: dict[float, Any] = {1e-7: None, 1e-3: _RESULT}
#: What a run has of the error that one of its parts adds, and what is blamed for each error.
ONE_ERROR: dict[str, tuple[Callable[[float], Any], dict[float, tuple[str, str] | None]]] = {
    "code between modules, at the next one's input": (
        lambda error: (
            (FORWARD, "a", "Linear", [value()], [value()]),
            (FORWARD, "b", "Linear", [value(error, 3)], [value(error)]),
        ), {0.1: ("b", "input")},
    ),
    "what is inside of a module, and not the module": (
        lambda error: (
            (FORWARD, "outer.inner", "Linear", [value()], [value(error)]),
            (FORWARD, "outer", "Block", [value()], [value(error, 2)], 1),
        ), {1e-3: ("outer.inner", "result")},
    ),
    "a gradient that counts": (
        lambda error: (
            (BACKWARD, "a", GRADIENT_OF_RESULT, [], [value()]),
            (BACKWARD, "a.weight", GRADIENT_OF_PARAMETER, [value()], [value(error)]),
        ), {1e-2: ("a.weight", "result")},
    ),
    "a gradient that is rounding, whose parameter may go anywhere": (
        lambda error: (
            (BACKWARD, "a", GRADIENT_OF_RESULT, [], [value()]),
            (BACKWARD, "a.bias", GRADIENT_OF_PARAMETER, [value()], [value(error, 1e-9)]),
            (FORWARD, "a.bias", PARAMETER, [], [value(error / 100)]),
        ), {1: None},
    ),
    "a gradient of a bias that cancels, and what it sums": (bias_gradient, _FAULT_ALONE),
    "the derivative of gelu of a large activation": (derivative, _FAULT_ALONE),
    "the derivative of a loss, which may cancel": (loss_derivative, {1e-7: None, 1e-3: ("a", "input")}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "error"), [(case, error) for case, (_, errors) in ONE_ERROR.items() for error in errors]
)
def test_what_adds_an_error_beyond_rounding_is_named(case: str, error: float) -> None:
    events, blamed = ONE_ERROR[case]
    assert first(run(*events(0.0)), run(*events(error))) == blamed[error]


def test_factor_widens_the_bounds() -> None:
    reference, found = chain(0, 0), chain(0, 1e-3)
    assert difference.compare([reference], [found]).first is not None
    assert difference.compare([reference], [found], factor=10_000).first is None


def test_index_may_jump_where_its_inputs_differ_by_rounding() -> None:
    def run_with(error: float, index: int) -> RankRecord:
        return run((FORWARD, "a", "aten.argmax.default", [value(error)], [digest(torch.tensor(index))]))

    assert first(run_with(0, 3), run_with(0, 4)) == ("a", "result")
    assert first(run_with(0, 3), run_with(1e-7, 4)) is None


def test_memory_that_is_moved_is_not_blamed_for_what_is_rounding_beside_the_gradients() -> None:
    def run_with(piece: float, size: float, *before: tuple[Any, ...]) -> RankRecord:
        moved = digest(torch.full((4,), piece))
        return run(
            *before,
            (FORWARD, "program", "aten.cat.default", [value(size=size), moved], [value(size=size)]),
            (STEP, "a.weight", "AdamW", [value(), value(size=0.1)], [value()]),
        )

    assert first(run_with(1e-29, 0.1), run_with(0, 0.1)) is None
    # Gradients of a bias before a normalization, which differ in every element; data that do are named.
    backward = (BACKWARD, "a", GRADIENT_OF_RESULT, [], [value()])
    assert first(run_with(1e-5, 0.1, backward), run_with(-1e-5, 0.1, backward)) is None
    assert first(run_with(1e-5, 0.1), run_with(-1e-5, 0.1)) == ("program", "input")
    assert first(run_with(1, 0.1), run_with(2, 0.1)) == ("program", "input")
    assert first(run_with(1e-5, 0.1), run_with(2, 0.1)) == ("program", "input")


@pytest.mark.parametrize("size", [0.1, 0.0], ids=["bias", "bias of zeros"])
@pytest.mark.parametrize(("error", "blamed"), [(1e-3, None), (0.1, ("a", "result"))], ids=["noise", "fault"])
def test_bias_that_is_stepped_at_random_does_not_hide_a_wrong_result(error, blamed, size) -> None:
    def run_with(noise: float, error: float) -> RankRecord:
        bias = digest(size * BASE[0] + noise * OTHER[0])
        return run(
            (BACKWARD, "a", GRADIENT_OF_RESULT, [], [value()]),
            (BACKWARD, "a.bias", GRADIENT_OF_PARAMETER, [value()], [value(noise, 1e-9)]),
            (FORWARD, "a", "aten.convolution.default", [value(), bias], [value(error, 10)]),
            (FORWARD, "a.bias", PARAMETER, [], [bias]),
        )

    assert first(run_with(0, 0), run_with(0.01, error)) == blamed


def test_parameter_that_is_not_what_its_step_has_left_is_named_beside_larger_errors() -> None:
    def run_with(noise: float, shown: float) -> RankRecord:
        return run(
            (FORWARD, "m", "Linear", [value(noise)], [value(noise)]),
            (STEP, "a.weight", "AdamW", [value()], [value(size=2)]),
            (FORWARD, "a.weight", PARAMETER, [], [value(shown, 2)]),
        )

    reference, stale = run_with(0, 0), run_with(1e-6, 1e-5)
    one = difference.compare([reference], [stale]).first
    assert one is not None
    assert (one.key.where, one.key.name) == ("a.weight", PARAMETER)
    assert difference.compare([reference], [run_with(1e-6, 0)]).first is None


@pytest.mark.parametrize(("wrong", "blamed"), [(0.0, None), (1e-3, ("group 0, parameter 0", "result"))])
def test_elements_of_one_tensor_that_are_stepped_at_random_do_not_hide_a_wrong_step(wrong, blamed) -> None:
    def run_with(noise: float, step: float) -> RankRecord:
        flat = (BASE * (1 + step)).flatten()
        flat[1:4] += noise  # between the samples
        return run(
            (BACKWARD, "a.bias", GRADIENT_OF_PARAMETER, [value()], [value(noise, 1e-9)]),
            (STEP, "group 0, parameter 0", "AdamW", [digest(BASE.flatten())] * 2, [digest(flat)]),
        )

    assert first(run_with(0, 0), run_with(0.1, wrong)) == blamed


def reducing(sent: float, received: float) -> list[RankRecord]:
    """Two ranks that reduce what a module has computed, of which the second one's has an error."""
    return [
        run(
            (FORWARD, "a", "Linear", [value()], [value(sent * rank)]),
            (COLLECTIVE, "ranks 0, 1", "all_reduce", [value(sent * rank)], [value(received)]),
            rank=rank, world=2,
        )
        for rank in range(2)
    ]  # fmt: skip


def sending(error: float) -> list[RankRecord]:
    """Rank 1 sends what a module has computed."""
    computed = (FORWARD, "a", "Linear", [value()], [value(error)])
    return [
        run((COLLECTIVE, "ranks 0, 1", "recv", [], [value(error)]), rank=0, world=2),
        run(computed, (COLLECTIVE, "ranks 0, 1", "send", [value(error)], []), rank=1, world=2),
    ]


@pytest.mark.parametrize(
    ("reference", "found", "blamed"),
    [
        pytest.param(reducing(0, 0), reducing(0.1, 0.1), (1, "a", "Linear"), id="what another rank sent"),
        pytest.param(reducing(0, 0), reducing(0, 0.5), (0, "ranks 0, 1", "all_reduce"), id="what is lost"),
        pytest.param(sending(0), sending(0.1), (1, "a", "Linear"), id="what the sender sent"),
    ],
)
def test_collective_is_blamed_for_its_own_error_alone(reference, found, blamed) -> None:
    one = difference.compare(reference, found).first
    assert one is not None
    assert (one.rank, one.key.where, one.key.name) == blamed


def test_events_of_which_one_run_has_more_are_not_compared() -> None:
    reference = run((FORWARD, "a", "Linear", [], [value()]))
    found = run((FORWARD, "a", "Linear", [], [value(1)]), (FORWARD, "a", "Linear", [], [value()]))
    outcome = difference.compare([reference], [found])
    assert (outcome.first, outcome.compared, len(outcome.unmatched)) == (None, 0, 2)


@pytest.mark.parametrize(
    ("error", "blamed"),
    [(0, None), (1e-3, ("a", "result"))],
    ids=["another order", "another order and a fault"],
)
def test_arguments_may_be_cast_in_another_order(error: float, blamed: tuple[str, str] | None) -> None:
    def cast(tensor: torch.Tensor, error: float = 0.0) -> tuple[Any, ...]:
        given = digest(tensor)
        return (FORWARD, "a", "aten._to_copy.default", [given], [digest(tensor * (1 + error))])

    weight, bias = (BASE, BASE[0])
    assert first(run(cast(weight), cast(bias)), run(cast(bias), cast(weight, error))) == blamed


def test_another_number_of_ranks_is_refused() -> None:
    with pytest.raises(InvalidInput, match="ACC-701"):
        difference.compare([chain(0, 0)], [chain(0, 0)] * 2)


def test_killed_rank_is_noted() -> None:
    found = chain(0, 0)
    found.whole = False
    assert "rank 0 of the replay" in difference.compare([chain(0, 0)], [found]).notes[0]


def _adam(gradient: torch.Tensor, wrong: float = 1.0) -> RankRecord:
    """The first step of Adam, which moves each element by the same distance; a small matrix, as of a key."""
    parameter = BASE * 0.02
    after = parameter - wrong * 1e-3 * gradient.sign()
    return run((STEP, "weight", "Adam", [digest(parameter), digest(gradient)], [digest(after)]))


def test_step_may_amplify_the_rounding_of_a_gradient_that_is_near_zero() -> None:
    gradient = OTHER.clone()
    gradient[:, :20] *= 1e-7
    noise = 1e-7 * torch.randn(40, 50, generator=torch.Generator().manual_seed(2))
    assert first(_adam(gradient), _adam(gradient + noise)) is None


def test_wrong_step_is_named_beside_rounding_of_its_gradient() -> None:
    assert first(_adam(OTHER), _adam(OTHER + 1e-7 * BASE, wrong=1.05)) == ("weight", "result")
