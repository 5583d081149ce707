# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Random numbers: states that are not restored, seeds that reach too few or too many devices."""

from typing import Any

import numpy
import torch
from accel_good.accelerator import GOOD_Accelerator

from broken import breaks, broken

broken(
    "StateIsAList",
    "random.default_generator_is_the_one_in_use random.restored_state_repeats_the_numbers",
    "random.seed_reaches_its_devices random.state_is_a_byte_tensor_on_the_host",
    "device_index.state_is_restored_on_one_device random.seeding_the_device_leaves_the_host_alone",
    "random.state_that_was_read_stays",
    get_rng_state=lambda self, device_index=None: GOOD_Accelerator.get_rng_state(self, device_index).tolist(),
)
broken(
    "StateIsNotRestored",
    "random.restored_state_repeats_the_numbers device_index.state_is_restored_on_one_device",
    set_rng_state=lambda self, new_state, device_index=None: None,
)
broken(
    "SeedIsConstant",
    "random.seed_repeats_the_numbers random.every_way_to_seed_gives_one_state",
    manual_seed=lambda self, seed: GOOD_Accelerator.manual_seed(self, 0),
)
broken(
    "SeedReachesAll",
    "random.seed_reaches_its_devices",
    manual_seed=lambda self, seed: self.manual_seed_all(seed),
)
broken(
    "SeedingAllSeedsOne",
    "random.seed_reaches_its_devices",
    manual_seed_all=lambda self, seed: self.manual_seed(seed),
)
broken(
    "GeneratorOfItsOwn",
    "random.default_generator_is_the_one_in_use device_index.index_chooses_the_device[default_generator]",
    "device_index.state_is_restored_on_one_device",
    default_generator=lambda self, device_index: torch.Generator(),
)


@breaks("random.random_module_can_fork")
class RandomModuleIsPythons(GOOD_Accelerator):
    def random(self) -> Any:
        import random

        return random


@breaks("random.seeding_the_device_leaves_the_host_alone")
class SeedsNumpyToo(GOOD_Accelerator):
    def manual_seed_all(self, seed: int) -> None:
        numpy.random.seed(seed % 2**32)
        super().manual_seed_all(seed)


@breaks("random.state_that_was_read_stays random.seed_reaches_its_devices")
class StateIsReadIntoOneBuffer(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._buffers: dict[int, torch.Tensor] = {}

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        index = self.current_device() if device_index is None else device_index
        state = super().get_rng_state(index)
        return self._buffers.setdefault(index, state).copy_(state)
