# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Random numbers: states that are not restored, seeds that reach too few or too many devices."""

from __future__ import annotations

import random as python_random
from typing import Any

import numpy
import torch
from accel_good.accelerator import GOOD_Accelerator

from broken import SHAPES, breaks

_SEEDS = "random.every_way_to_seed_gives_one_state"


@breaks(
    "random.default_generator_is_the_one_in_use",
    "random.restored_state_repeats_the_numbers",
    "random.seed_reaches_its_devices",
    "random.state_is_a_byte_tensor_on_the_host",
    "device_index.state_is_restored_on_one_device",
    "random.seeding_the_device_leaves_the_host_alone",
    "random.state_that_was_read_stays",
)
class StateIsAList(GOOD_Accelerator):
    def get_rng_state(self, device_index: int | None = None) -> Any:
        return super().get_rng_state(device_index).tolist()


@breaks(
    "random.restored_state_repeats_the_numbers",
    "device_index.state_is_restored_on_one_device",
)
class StateIsNotRestored(GOOD_Accelerator):
    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        pass


@breaks(
    "random.restored_state_repeats_the_numbers",
    "device_index.state_is_restored_on_one_device",
    "random.seeding_the_device_leaves_the_host_alone",
)
class StateTakesNoIndex(GOOD_Accelerator):
    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        torch.set_rng_state(new_state, device_index)  # type: ignore[call-arg]


@breaks("device_index.state_is_restored_on_one_device")
class RestoringIgnoresTheIndex(GOOD_Accelerator):
    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        super().set_rng_state(new_state)


@breaks("random.seed_reaches_its_devices", "device_index.state_is_restored_on_one_device")
class ReadingIgnoresTheIndex(GOOD_Accelerator):
    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        return super().get_rng_state()


@breaks(
    "random.seed_repeats_the_numbers",
    "random.every_way_to_seed_gives_one_state",
)
class SeedIsConstant(GOOD_Accelerator):
    def manual_seed(self, seed: int) -> None:
        super().manual_seed(0)


@breaks(
    "random.seed_reaches_its_devices",
    "random.seed_repeats_the_numbers",
    "random.every_way_to_seed_gives_one_state",
)
class SeedIsIgnored(GOOD_Accelerator):
    def manual_seed(self, seed: int) -> None:
        pass


@breaks("random.seed_reaches_its_devices")
class SeedReachesAll(GOOD_Accelerator):
    def manual_seed(self, seed: int) -> None:
        self.manual_seed_all(seed)


@breaks("random.seed_reaches_its_devices")
class SeedingAllSeedsOne(GOOD_Accelerator):
    def manual_seed_all(self, seed: int) -> None:
        self.manual_seed(seed)


@breaks("random.seed_repeats_the_numbers")
class SeedingAllSeedsTheOthers(GOOD_Accelerator):
    def manual_seed_all(self, seed: int) -> None:
        self.default_generator(1).manual_seed(seed)


@breaks("answers.answer_has_its_type[initial_seed]", "random.every_way_to_seed_gives_one_state")
class InitialSeedIsNone(GOOD_Accelerator):
    def initial_seed(self) -> Any:
        return None


@breaks(*SHAPES, "answers.answer_has_its_type[initial_seed]", "random.every_way_to_seed_gives_one_state")
class InitialSeedDemandsASeed(GOOD_Accelerator):
    def initial_seed(self, seed: int) -> int:  # type: ignore[override]
        return seed


@breaks(
    "device_index.index_chooses_the_device[default_generator]", "device_index.state_is_restored_on_one_device"
)
class OneGenerator(GOOD_Accelerator):
    def default_generator(self, device_index: int) -> torch.Generator:
        return torch.default_generator


@breaks(
    "random.default_generator_is_the_one_in_use",
    "device_index.index_chooses_the_device[default_generator]",
    "device_index.state_is_restored_on_one_device",
)
class GeneratorOfItsOwn(GOOD_Accelerator):
    def default_generator(self, device_index: int) -> torch.Generator:
        return torch.Generator()


@breaks("random.random_module_can_fork")
class RandomModuleIsPythons(GOOD_Accelerator):
    def random(self) -> Any:
        import random

        return random


@breaks("random.every_way_to_seed_gives_one_state")
class SeedsAreCut(GOOD_Accelerator):
    def manual_seed(self, seed: int) -> None:
        super().manual_seed(seed % 2**32)


@breaks("random.every_way_to_seed_gives_one_state")
class SeedsForAllAreCut(GOOD_Accelerator):
    def manual_seed_all(self, seed: int) -> None:
        super().manual_seed_all(seed % 2**32)


@breaks("random.seeding_the_device_leaves_the_host_alone")
class SeedsPythonToo(GOOD_Accelerator):
    def manual_seed(self, seed: int) -> None:
        python_random.seed(seed)
        super().manual_seed(seed)


@breaks("random.seeding_the_device_leaves_the_host_alone")
class SeedsNumpyToo(GOOD_Accelerator):
    def manual_seed_all(self, seed: int) -> None:
        numpy.random.seed(seed % 2**32)
        super().manual_seed_all(seed)


@breaks(
    "random.state_that_was_read_stays",
    "random.seed_reaches_its_devices",
)
class StateIsReadIntoOneBuffer(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._buffers: dict[int, torch.Tensor] = {}

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        index = self.current_device() if device_index is None else device_index
        state = super().get_rng_state(index)
        return self._buffers.setdefault(index, state).copy_(state)


@breaks(f"{_SEEDS}[-1]", f"{_SEEDS}[-1099511627776]")
class SeedsLoseTheirSign(GOOD_Accelerator):
    def manual_seed(self, seed: int) -> None:
        super().manual_seed(abs(seed))


@breaks(_SEEDS)
class SeedingDraws(GOOD_Accelerator):
    def manual_seed_all(self, seed: int) -> None:
        super().manual_seed_all(seed)
        torch.rand(1)
