# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Random numbers: seeds, states and generators, each device with its own."""

from __future__ import annotations

import random as python_random
import sys
from collections.abc import Callable

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect, expect_type

pytestmark = pytest.mark.tier("device")


def _draw(accelerator: DeepSpeedAccelerator) -> list[float]:
    numbers: list[float] = torch.rand(4, device=accelerator.device()).cpu().tolist()
    return numbers


def test_state_is_a_byte_tensor_on_the_host(accelerator: DeepSpeedAccelerator) -> None:
    """`get_rng_state` gives a uint8 tensor on the CPU."""
    state = accelerator.get_rng_state()
    expect(
        isinstance(state, torch.Tensor) and state.dtype == torch.uint8 and state.device.type == "cpu",
        "the random state is no byte tensor on the host",
        found=f"{type(state).__name__} {getattr(state, 'dtype', '')} {getattr(state, 'device', '')}",
        expected="a torch.uint8 tensor on the CPU: checkpoints store it",
        do="return what the runtime's get_rng_state returns",
    )


def test_restored_state_repeats_the_numbers(accelerator: DeepSpeedAccelerator) -> None:
    """After `set_rng_state` the device draws the same numbers again."""
    state = accelerator.get_rng_state()
    first = _draw(accelerator)
    accelerator.set_rng_state(state)
    again = _draw(accelerator)
    expect(
        first == again,
        "a restored random state draws other numbers",
        found=f"{again}, before {first}",
        expected="the same numbers: activation checkpointing replays dropout so",
        do="restore the state of the generator that torch.rand(device=device()) uses",
    )


def test_state_can_be_addressed_by_index(accelerator: DeepSpeedAccelerator) -> None:
    """`get_rng_state(i)` and `set_rng_state(state, i)` serve the current device too."""
    index = accelerator.current_device()
    state = accelerator.get_rng_state(index)
    first = _draw(accelerator)
    accelerator.set_rng_state(state, index)
    again = _draw(accelerator)
    expect(
        first == again,
        "the random state of the current index is not that of the current device",
        found=f"{again}, before {first}",
        expected="the same numbers after set_rng_state(get_rng_state(i), i)",
        do="pass the index on; None is the current device",
    )


def test_seed_repeats_the_numbers(accelerator: DeepSpeedAccelerator) -> None:
    """The same `manual_seed` gives the same numbers, another seed others."""
    drawn = []
    for seed in (11, 12, 11):
        accelerator.manual_seed(seed)
        drawn.append(_draw(accelerator))
    expect(
        drawn[0] == drawn[2] != drawn[1],
        "manual_seed() does not seed the device",
        found=f"seeds 11, 12, 11 gave {drawn}",
        expected="equal numbers for equal seeds only",
        do="seed the device's generator with the number given",
    )


def test_initial_seed_is_the_seed(accelerator: DeepSpeedAccelerator) -> None:
    """`initial_seed()` takes no argument and gives the seed as an int."""
    accelerator.manual_seed(1234)
    found = accelerator.initial_seed()
    expect_type(found, int, "initial_seed()", do="return the generator's initial_seed()")
    expect(
        found == 1234,
        "initial_seed() is not the seed given",
        found=repr(found),
        expected="1234, after manual_seed(1234)",
        do="ask the generator of the current device",
    )


def test_seeding_all_seeds_the_current_device(accelerator: DeepSpeedAccelerator) -> None:
    """`manual_seed_all` seeds the current device too."""
    drawn = []
    for _ in range(2):
        accelerator.manual_seed_all(21)
        drawn.append(_draw(accelerator))
    expect(
        drawn[0] == drawn[1],
        "manual_seed_all() does not seed the current device",
        found=repr(drawn),
        expected="equal numbers after equal seeds",
        do="seed every device's generator",
    )


def test_default_generator_is_the_one_in_use(accelerator: DeepSpeedAccelerator) -> None:
    """`default_generator(i)` is the generator that draws on device i."""
    index = accelerator.current_device()
    generator = accelerator.default_generator(index)
    expect(
        isinstance(generator, torch.Generator)
        and torch.equal(generator.get_state().cpu(), accelerator.get_rng_state(index)),
        "default_generator(i) is not the generator of device i",
        found=repr(generator),
        expected="a torch.Generator whose state is get_rng_state(i)",
        do="return the runtime's default_generators[i]",
    )


def test_random_module_can_fork(accelerator: DeepSpeedAccelerator) -> None:
    """`random()` is the module with `fork_rng`: torch.random."""
    expect(
        accelerator.random() is torch.random,
        "random() is not torch.random",
        found=repr(accelerator.random()),
        expected="torch.random, whose fork_rng callers use",
        do="return torch.random; the runtime's own random module may lack fork_rng",
    )


def test_seeding_the_device_leaves_the_host_alone(accelerator: DeepSpeedAccelerator) -> None:
    """`manual_seed`, `manual_seed_all` and `set_rng_state` touch no random generator of the host."""
    state = accelerator.get_rng_state()
    changes: dict[str, Callable[[], object]] = {
        "manual_seed()": lambda: accelerator.manual_seed(81),
        "manual_seed_all()": lambda: accelerator.manual_seed_all(82),
        "set_rng_state()": lambda: accelerator.set_rng_state(state),
    }
    wrong = []
    for name, change in changes.items():
        before = _host_states(accelerator)
        change()
        after = _host_states(accelerator)
        wrong += [f"{name} changes that of {host}" for host in before if before[host] != after[host]]
    expect(
        not wrong,
        "seeding the device changes random numbers of the host",
        found="; ".join(wrong),
        expected="the host's generators as they were: the order of the data is drawn from them",
        do="seed the device's generators alone",
    )


def _host_states(accelerator: DeepSpeedAccelerator) -> dict[str, object]:
    """The states of the host's generators; without torch's where the host is the device."""
    states: dict[str, object] = {"Python": python_random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states["numpy"] = str(numpy.random.get_state())
    if accelerator.device_name() != "cpu":
        states["torch"] = torch.get_rng_state().tolist()
    return states


@pytest.mark.parametrize("seed", [0, 2**32 + 11, 2**63 - 1])
def test_seeds_have_64_bits(accelerator: DeepSpeedAccelerator, seed: int) -> None:
    """A seed of up to 64 bits is kept whole, by `manual_seed` and by `manual_seed_all`."""
    found = []
    for method in (accelerator.manual_seed, accelerator.manual_seed_all):
        method(5)
        method(seed)
        found.append(accelerator.initial_seed())
    expect(
        found == [seed] * 2,
        "a seed is cut",
        found=f"{found} after manual_seed({seed}) and manual_seed_all({seed})",
        expected=repr(seed),
        do="pass the number on as it is",
    )


def test_state_that_was_read_stays(accelerator: DeepSpeedAccelerator) -> None:
    """A draw moves the device's state, and not the tensor that `get_rng_state` gave before."""
    state = accelerator.get_rng_state()
    kept = state.clone()
    _draw(accelerator)
    now = accelerator.get_rng_state()
    found = (torch.equal(state, kept), torch.equal(now, kept))
    expect(
        found == (True, False),
        "a random state that was read moves with the device's",
        found=f"the tensor is unchanged: {found[0]}; the state has not moved: {found[1]}",
        expected="an unchanged tensor, and a state that has moved",
        do="return a copy of the generator's state, at each call",
    )


@pytest.mark.tier("multi")
@pytest.mark.needs("indexed_devices")
def test_state_of_one_device_is_not_another_s(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """`set_rng_state(state, 1)` sets the state of device 1, and of no other."""
    accelerator.manual_seed_all(31)
    first, state = accelerator.get_rng_state(0), accelerator.get_rng_state(second)
    torch.rand(4, device=accelerator.device(second), generator=accelerator.default_generator(second))
    moved = accelerator.get_rng_state(second)
    accelerator.set_rng_state(state, second)
    _expect_states(
        {
            "device 0 is untouched": torch.equal(accelerator.get_rng_state(0), first),
            "device 1 moves when it draws": not torch.equal(moved, state),
            "device 1 is restored": torch.equal(accelerator.get_rng_state(second), state),
        }
    )


@pytest.mark.tier("multi")
@pytest.mark.needs("indexed_devices")
def test_seed_reaches_the_current_device_alone(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """`manual_seed` seeds the current device and leaves the others as they are."""
    accelerator.manual_seed_all(41)
    before = [accelerator.get_rng_state(index) for index in (0, second)]
    accelerator.set_device(second)
    accelerator.manual_seed(42)
    after = [accelerator.get_rng_state(index) for index in (0, second)]
    _expect_states(
        {
            "device 0 is untouched": torch.equal(before[0], after[0]),
            "device 1 is seeded": not torch.equal(before[1], after[1]),
        }
    )


@pytest.mark.tier("multi")
@pytest.mark.needs("indexed_devices")
def test_seeding_all_seeds_every_device(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """`manual_seed_all` seeds the devices that are not current too."""
    accelerator.manual_seed_all(51)
    before = accelerator.get_rng_state(second)
    accelerator.manual_seed_all(52)
    _expect_states({"device 1 is seeded": not torch.equal(before, accelerator.get_rng_state(second))})


@pytest.mark.tier("multi")
@pytest.mark.needs("indexed_devices")
def test_each_device_has_its_generator(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """`default_generator(1)` is another generator than `default_generator(0)`."""
    accelerator.manual_seed_all(61)
    accelerator.default_generator(second).manual_seed(62)
    seeds = [accelerator.default_generator(index).initial_seed() for index in (0, second)]
    _expect_states({"the generators are two": seeds == [61, 62]})


def _expect_states(holds: dict[str, bool]) -> None:
    broken = [name for name, held in holds.items() if not held]
    expect(
        not broken,
        "random states of two devices are mixed up",
        found=f"not so: {', '.join(broken)}",
        expected=", ".join(holds),
        do="pass the device index on to the runtime; None is the current device",
    )
