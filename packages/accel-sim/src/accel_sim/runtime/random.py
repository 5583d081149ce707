# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Random numbers: one generator a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from accel_sim.runtime.device import Indices
from accel_sim.simulation import Simulation


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names that this module adds to the vendor's module."""
    native, count = simulation.native, simulation.vendor.generators or simulation.devices
    indices = Indices(simulation)

    def generator(device: Any = None) -> torch.Generator:
        return native.default_generator(indices.drawn(device))  # type: ignore[no-any-return]

    def all_generators() -> list[torch.Generator]:
        return [native.default_generator(index) for index in range(count)]

    def manual_seed(seed: int) -> None:
        generator().manual_seed(int(seed))

    def manual_seed_all(seed: int) -> None:
        for each in all_generators():
            each.manual_seed(int(seed))

    def seed_all() -> None:
        manual_seed_all(generator(0).seed())

    def set_rng_state(new_state: torch.Tensor, device: Any = simulation.type) -> None:
        generator(device).set_state(new_state)

    def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
        for each, state in zip(all_generators(), new_states, strict=True):
            each.set_state(state)

    seeds = {"manual_seed": manual_seed, "manual_seed_all": manual_seed_all, "seed_all": seed_all,
             "initial_seed": lambda: generator().initial_seed()}  # fmt: skip
    return {
        **seeds,
        "default_generators": (),
        "seed": lambda: generator().seed(),
        "get_rng_state": lambda device=simulation.type: generator(device).get_state(),
        "get_rng_state_all": lambda: [each.get_state() for each in all_generators()],
        "set_rng_state": set_rng_state,
        "set_rng_state_all": set_rng_state_all,
    }
