# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Seeds: whoever seeds a device, and with whatever number torch takes, its generator is then in the same state."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect

pytestmark = pytest.mark.tier("device")

#: Small, the largest of 64 bits, and negative ones, which torch takes for numbers of 64 bits without a sign.
_SEEDS = (0, 77, 2**64 - 1, -1, -(2**40))


def _ways(accelerator: DeepSpeedAccelerator) -> dict[str, Callable[[int], object]]:
    generator = accelerator.default_generator(accelerator.current_device())
    return {
        "default_generator(i).manual_seed()": generator.manual_seed,
        "manual_seed()": accelerator.manual_seed,
        "manual_seed_all()": accelerator.manual_seed_all,
    }


@pytest.mark.parametrize("seed", _SEEDS)
def test_every_way_to_seed_gives_one_state(accelerator: DeepSpeedAccelerator, seed: int) -> None:
    """`manual_seed`, `manual_seed_all` and the generator's own `manual_seed` leave the same state and initial seed."""
    found = {}
    for name, seeding in _ways(accelerator).items():
        accelerator.manual_seed(12345)
        torch.rand(3, device=accelerator.device())
        seeding(seed)
        found[name] = (accelerator.initial_seed(), accelerator.get_rng_state().tolist())
    first = next(iter(found.values()))
    wrong = {name: state for name, state in found.items() if state != first}
    expect(
        not wrong,
        "a device is in another state by another way to seed it",
        found=", ".join(
            f"initial seed {state[0]} by {name}, state alike: {state[1] == first[1]}"
            for name, state in wrong.items()
        ),
        expected=f"initial seed {first[0]} and the state that the generator's manual_seed({seed}) gives",
        do="pass the number on as it is, and draw nothing afterwards",
    )
