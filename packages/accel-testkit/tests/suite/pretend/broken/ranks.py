# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Two ranks, launchers and the engine: operations that move nothing, devices that are not set."""

import itertools
import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from accel_good.accelerator import GOOD_Accelerator

from broken import Site, answers, breaks, broken

answers({"communication_backend_name": "goodccl"}, "collectives.backend_is_registered")


class _Done:
    def wait(self) -> None:
        pass


def _nothing(*args: Any, **kwargs: Any) -> Any:
    """An operation that leaves every tensor as it is."""
    return _Done() if kwargs.get("async_op") else None


class _Without(GOOD_Accelerator):
    """Its runtime replaces operations of torch.distributed in the ranks, as some runtimes do."""

    operations: tuple[str, ...]

    def __init__(self) -> None:
        super().__init__()
        for name in self.operations if "RANK" in os.environ else ():
            setattr(dist, name, _nothing)


_MOVES = "collectives.operation_moves_data"


@breaks(
    f"collectives.all_reduce_sums {_MOVES}[all_reduce_max] {_MOVES}[asynchronous_all_reduce]",
    started="answers",
)
class CollectiveIsNotReduced(_Without):
    operations = ("all_reduce",)


@breaks("collectives.barrier_holds_back", started="answers")
class BarrierLetsThrough(_Without):
    operations = ("barrier",)


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


@breaks("training.two_ranks_train_like_one", started="pair")
class GradientsAreNotReduced(_Without):
    operations = ("all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor")


@breaks("training.bfloat16_trains", started="alone")
class EngineHasNoBfloat16(GOOD_Accelerator):
    def is_bf16_supported(self) -> bool:
        return False


@breaks(
    "training.losses_are_those_of_plain_torch training.bfloat16_trains training.training_goes_on_from_a_checkpoint",
    started="alone",
)
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


# --- ranges, environment, torch.compile: refused arguments, borrowed variables, things left behind

_IDS = ("two digits", "texts of two digits", "a whole machine", "names")
answers({"visible_devices_envs": []}, "environment.visible_devices_have_a_variable")
answers({"export_envs": ["GLOO_", "H"]}, "environment.exports_leave_out_what_is_a_node_s_own")
answers({"export_envs": ("GLOO_",)}, "environment.exported_prefixes_are_names")
_GIVEN = "environment.visible_devices_are_the_ids_given"


@breaks(*(f"{_GIVEN}[{shown} shown-{kind}]" for shown in ("three", "one") for kind in _IDS))
class VisibleDevicesAreThoseOfThisProcess(GOOD_Accelerator):
    """It takes the ids for places in what the process itself is shown."""

    def set_visible_devices_envs(self, current_env: Any, local_accelerator_ids: Any) -> None:
        shown = os.environ.get("GOOD_VISIBLE_DEVICES", "").split(",")
        ids = [shown[int(i) % len(shown)] if str(i).isdigit() else "?" for i in local_accelerator_ids]
        super().set_visible_devices_envs(current_env, ids if shown != [""] else local_accelerator_ids)


@breaks(
    "environment.visible_devices_of_this_process_stay memory.each_device_has_its_figures",
    "random.seed_reaches_its_devices streams.stream_is_of_the_device_named",
    "tensors.tensor_of_any_index_is_on_the_accelerator",
)
class VisibleDevicesLeak(GOOD_Accelerator):
    def set_visible_devices_envs(self, current_env: Any, local_accelerator_ids: Any) -> None:
        super().set_visible_devices_envs(current_env, local_accelerator_ids)
        super().set_visible_devices_envs(os.environ, local_accelerator_ids)


@breaks("environment.questions_leave_no_trace")
class ExportsLeak(GOOD_Accelerator):
    def export_envs(self) -> list[str]:
        os.environ["GOOD_ASKED"] = os.environ.get("GOOD_ASKED", "") + "again "
        return super().export_envs()


broken("RangesLeaveTheDomainOut", "environment.domain_gets_its_ranges", supports_nvtx_domain=True)


@breaks("environment.range_has_any_name[percent signs]")
class RangeNamesAreFormats(GOOD_Accelerator):
    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        msg % ()  # a profiler formats it


@breaks("environment.constructor_keeps_what_is_set")
class SettingsAreForced(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        os.environ["GOOD_LAZY_MODE"] = "0"
