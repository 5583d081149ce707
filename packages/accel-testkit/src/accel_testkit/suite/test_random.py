# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Random numbers: seeds, states and generators, each device with its own."""

from __future__ import annotations

import random as python_random
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import torch
import torch.utils.checkpoint

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import Holds, expect_equal
from accel_testkit.suite.needs import two_devices

pytestmark = pytest.mark.tier("device")

#: Small, more than 32 bits, the largest, and negative ones, which torch takes for numbers of 64 bits without a sign.
_SEEDS = (0, 77, 2**32 + 11, 2**63 - 1, 2**64 - 1, -1, -(2**40))


def _draw(accelerator: DeepSpeedAccelerator) -> list[float]:
    numbers: list[float] = torch.rand(4, device=accelerator.device()).cpu().tolist()
    return numbers


def test_state_is_a_byte_tensor_on_the_host(accelerator: DeepSpeedAccelerator) -> None:
    """`get_rng_state` gives a uint8 tensor on the CPU. A draw moves the device's state, and not that tensor."""
    state, holds = accelerator.get_rng_state(), Holds()
    found = type(state), getattr(state, "dtype", None), str(getattr(state, "device", ""))
    holds.equal("the kind of the random state", found, (torch.Tensor, torch.uint8, "cpu"))
    kept = state.clone()
    _draw(accelerator)
    now = accelerator.get_rng_state()
    holds["the tensor stays"] = torch.equal(state, kept)
    holds["the state moves"] = not torch.equal(now, kept)
    do = "return a copy of what the runtime's get_rng_state returns, at each call: checkpoints store it"
    holds.expect("a random state that was read", do)


@pytest.mark.parametrize("form", ["current", "index"])
def test_restored_state_repeats_the_numbers(accelerator: DeepSpeedAccelerator, form: str) -> None:
    """After `set_rng_state` the device draws the same numbers again, with its index and without.

    A tensor that is not a state is rejected, and changes nothing.
    """
    index = [accelerator.current_device()] if form == "index" else []
    state = accelerator.get_rng_state(*index)
    first = _draw(accelerator)
    accelerator.set_rng_state(state, *index)
    with suppress(Exception):
        accelerator.set_rng_state(torch.zeros(3, dtype=torch.uint8), *index)
    do = "restore the state of the generator which torch.rand(device=device()) uses"
    expect_equal("what is drawn after set_rng_state()", _draw(accelerator), first, do)


@pytest.mark.parametrize("seed", _SEEDS)
def test_every_way_to_seed_gives_one_state(accelerator: DeepSpeedAccelerator, seed: int) -> None:
    """`manual_seed`, `manual_seed_all` and the generator's own keep all 64 bits, and leave the same state."""
    generator = accelerator.default_generator(accelerator.current_device())
    ways: dict[str, Callable[[int], object]] = {
        "default_generator(i).manual_seed()": generator.manual_seed,
        "manual_seed()": accelerator.manual_seed,
        "manual_seed_all()": accelerator.manual_seed_all,
    }
    holds, states, seeds = Holds(), [], []
    for name, seeding in ways.items():
        accelerator.manual_seed(12345)
        torch.rand(3, device=accelerator.device())
        seeding(seed)
        seeds.append(accelerator.initial_seed())
        states.append(accelerator.get_rng_state().tolist())
        # torch itself may keep the other numbers with a sign or without.
        wanted = seed if 0 <= seed < 2**63 else seeds[0]
        holds.equal(f"initial_seed() after {name} with {seed}", seeds[-1], wanted)
        holds[f"the state that {name} leaves"] = states[-1] == states[0]
    holds.expect("a seeded device", "pass the number on as it is, and draw nothing afterwards")


def test_default_generator_is_the_one_in_use(accelerator: DeepSpeedAccelerator) -> None:
    """`default_generator(i)` is the generator that draws on device i."""
    index, holds = accelerator.current_device(), Holds()
    generator = accelerator.default_generator(index)
    holds[f"a torch.Generator: {generator!r}"] = isinstance(generator, torch.Generator)
    state = generator.get_state() if isinstance(generator, torch.Generator) else None
    holds.same("its state, as get_rng_state(i)", state, accelerator.get_rng_state(index))
    torch.rand(3, device=accelerator.device())
    holds["it draws"] = state is None or not torch.equal(state, generator.get_state())
    holds.expect("default_generator(i)", "return the runtime's default_generators[i]")


def test_random_module_can_fork(accelerator: DeepSpeedAccelerator) -> None:
    """`random()` is the module with `fork_rng`: torch.random."""
    do = "return torch.random; the runtime's own random module may lack fork_rng"
    expect_equal("random()", accelerator.random(), torch.random, do)


def test_seeding_the_device_leaves_the_host_alone(accelerator: DeepSpeedAccelerator) -> None:
    """`manual_seed`, `manual_seed_all` and `set_rng_state` touch no random generator of the host.

    The order of the data is drawn from these.
    """
    state, holds = accelerator.get_rng_state(), Holds()
    changes: dict[str, Callable[[], object]] = {
        "manual_seed()": lambda: accelerator.manual_seed(81),
        "manual_seed_all()": lambda: accelerator.manual_seed_all(82),
        "set_rng_state()": lambda: accelerator.set_rng_state(state),
    }
    for name, change in changes.items():
        before = _host_states(accelerator)
        change()
        after = _host_states(accelerator)
        holds.update({f"{name} leaves that of {host}": before[host] == after[host] for host in before})
    holds.expect("a random generator of the host", "seed the device's generators alone")


def _host_states(accelerator: DeepSpeedAccelerator) -> dict[str, object]:
    """Return the states of the host's generators; without torch's where the host is the device."""
    states: dict[str, object] = {"Python": python_random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states["numpy"] = str(numpy.random.get_state())
    if accelerator.device_name() != "cpu":
        states["torch"] = torch.get_rng_state().tolist()
    return states


def test_manual_seed_of_torch_seeds_the_device(accelerator: DeepSpeedAccelerator) -> None:
    """`torch.manual_seed`, which training scripts call, repeats the device's numbers, and gives others by another."""
    drawn = []
    for seed in (21, 22, 21):
        torch.manual_seed(seed)
        drawn.append(_draw(accelerator))
    holds = Holds({f"seeds 21, 22, 21 gave {drawn}": drawn[0] == drawn[2] != drawn[1]})
    do = "let the torch module of the device have `_is_in_bad_fork` and `manual_seed_all`: torch calls both"
    holds.expect("torch.manual_seed()", do)


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "non-reentrant"])
@pytest.mark.parametrize("package", ["torch", "deepspeed"])
def test_recomputation_draws_the_same_numbers(
    accelerator: DeepSpeedAccelerator, upstream: Any, package: str, reentrant: bool
) -> None:
    """Activation checkpointing repeats the numbers of the forward pass, and then goes on with later ones."""
    drawn: list[torch.Tensor] = []

    def block(rows: torch.Tensor) -> torch.Tensor:
        drawn.append(torch.rand_like(rows))
        return rows * drawn[-1]

    checkpointing = upstream.checkpointing
    ways = {
        "torch": partial(torch.utils.checkpoint.checkpoint, use_reentrant=reentrant),
        "deepspeed": checkpointing.checkpoint if reentrant else checkpointing.non_reentrant_checkpoint,
    }
    rows, holds = torch.ones(5, device=accelerator.device(), requires_grad=True), Holds()
    accelerator.manual_seed(31)
    result = ways[package](block, rows)
    torch.rand(3, device=accelerator.device())  # the forward pass goes on
    state = accelerator.get_rng_state()
    result.sum().backward()
    holds.same("the numbers of the recomputation", drawn[-1], drawn[0])
    holds.same("the gradient", rows.grad, drawn[0])
    holds.same("the state after the backward pass", accelerator.get_rng_state(), state)
    holds[f"the block runs twice, not {len(drawn)} times"] = len(drawn) == 2
    do = "let the torch module of the device have `_initialized`, `device(i)`, `get_rng_state` and `set_rng_state`"
    holds.expect("activation checkpointing with random numbers", do)


@two_devices
@pytest.mark.parametrize("name", ["manual_seed", "manual_seed_all"])
def test_seed_reaches_its_devices(accelerator: DeepSpeedAccelerator, second: int, name: str) -> None:
    """`manual_seed` seeds the current device alone, and `manual_seed_all` every device."""
    holds = Holds()
    for current in (second, 0):
        accelerator.manual_seed_all(41)
        before = {index: accelerator.get_rng_state(index) for index in (0, second)}
        accelerator.set_device(current)
        getattr(accelerator, name)(42)
        for index, state in before.items():
            seeded = not torch.equal(state, accelerator.get_rng_state(index))
            wanted = index == current or name == "manual_seed_all"
            holds.equal(f"device {index} is seeded, with {current} current", seeded, wanted)
    holds.expect(f"{name}()", "seed the generator of the current device, or that of each device")
