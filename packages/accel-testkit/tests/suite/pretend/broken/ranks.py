# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Two ranks and the engine: operations that move nothing, devices that are not set."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from accel_good.accelerator import GOOD_Accelerator

from broken import Site, answers, breaks

answers(
    {"communication_backend_name": None},
    "answers.answer_has_its_type[communication_backend_name]",
    "collectives.backend_is_registered",
    "environment.exports_have_what_ranks_need",
)
answers(
    {"communication_backend_name": "goodccl"},
    "collectives.backend_is_registered",
)


class _Done:
    def wait(self) -> None:
        pass


def _nothing(*args: Any, **kwargs: Any) -> Any:
    """An operation that leaves every tensor as it is."""
    return _Done() if kwargs.get("async_op") else None


def _without(*names: str) -> type[GOOD_Accelerator]:
    """A class whose runtime replaces operations of torch.distributed in the ranks, as some runtimes do."""

    class Deaf(GOOD_Accelerator):
        def __init__(self) -> None:
            super().__init__()
            if "RANK" in os.environ:
                for name in names:
                    setattr(dist, name, _nothing)

    return Deaf


def _register(variant: str, operations: tuple[str, ...], *fails: str) -> None:
    kind = _without(*operations)
    kind.__name__ = kind.__qualname__ = variant
    globals()[variant] = kind  # the ranks find it by its dotted name
    breaks(*(f"collectives.{check}" for check in fails), started="answers", name=variant)(kind)


_register(
    "CollectiveIsNotReduced",
    ("all_reduce",),
    "all_reduce_sums",
    "operation_moves_data[all_reduce_max]",
    "operation_moves_data[asynchronous_all_reduce]",
)
_register("BroadcastIsNotSent", ("broadcast",), "operation_moves_data[broadcast]")
_register("NothingIsGathered", ("all_gather_into_tensor",), "operation_moves_data[all_gather_into_tensor]")
_register("NothingIsScattered", ("reduce_scatter_tensor",), "operation_moves_data[reduce_scatter_tensor]")
_register(
    "NothingIsExchanged",
    ("all_to_all_single", "send", "recv", "all_gather_object"),
    "operation_moves_data[all_to_all_single]",
    "operation_moves_data[send_and_receive]",
    "operation_moves_data[all_gather_object]",
)
_register("BarrierLetsThrough", ("barrier",), "barrier_holds_back")


@breaks("collectives.gloo_takes_device_tensors", started="answers")
class DeviceTensorsAreNotScattered(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        scatter, calls = dist.scatter, itertools.count()

        def of_the_host(*arguments: Any, **options: Any) -> Any:
            # The check takes the host's tensor first; those of the pretended devices are on the host, too.
            return None if next(calls) % 2 else scatter(*arguments, **options)

        if "RANK" in os.environ:
            dist.scatter = of_the_host


class _SharedMemory:
    def initialize(self, size: int, rank: int) -> None:
        pass

    def vector_kernel_level(self) -> int:
        return 0

    def inference_all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.inference_all_reduce_(tensor)  # a new one is promised

    def inference_all_reduce_(self, tensor: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(tensor)
        return tensor


@breaks("collectives.shared_memory_adds_up", started="of_the_ops")
class SumIsAlwaysInPlace(GOOD_Accelerator):
    def get_op_builder(self, class_name: str) -> Any:
        if class_name != "ShareMemCommBuilder":
            return super().get_op_builder(class_name)
        methods = {"load": lambda builder: _SharedMemory(), "is_compatible": lambda builder: True}
        return type(class_name, (), {"NAME": "deepspeed_shm_comm", **methods})


@breaks("collectives.ranks_join_on_their_devices", started="answers")
class RanksShareADevice(GOOD_Accelerator):
    def set_device(self, device_index: int) -> None:
        pass


_TRAINING = "training.losses_are_those_of_plain_torch"


@breaks("training.two_ranks_train_like_one", started="pair")
class GradientsAreNotReduced(_without("all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor")):  # type: ignore[misc]
    pass


@breaks(f"{_TRAINING}[3]", started="alone")
class EngineCanNotNameItsDevice(GOOD_Accelerator):
    def set_device(self, device_index: int) -> None:
        super().set_device(device_index + 0)


@breaks("training.bfloat16_trains", started="alone")
class EngineHasNoBfloat16(GOOD_Accelerator):
    def is_bf16_supported(self) -> bool:
        return False


@breaks(_TRAINING, "training.bfloat16_trains training.training_goes_on_from_a_checkpoint", started="alone")
class EngineIsElsewhere(GOOD_Accelerator):
    def device(self, device_index: int | None = None) -> torch.device:
        return torch.device("meta")

    def device_name(self, device_index: int | None = None) -> str:
        return "meta"


@breaks("training.deepspeed_chooses_the_accelerator", started="alone")
def deepspeed_trains_on_another(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    other = '\n\nif "RANK" in os.environ:\n    GOOD_Accelerator = type("OTHER_Accelerator", (GOOD_Accelerator,), {})\n'
    site.edit("accelerator.py", "from contextlib", "import os\nfrom contextlib")
    site.edit("accelerator.py", "", other)
