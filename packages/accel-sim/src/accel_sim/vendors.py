# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The table of simulated vendors, those described in a file, and the devices that a variable leaves visible."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from accel_core.errors import DOCUMENTATION, InvalidInput
from accel_core.vendor import VisibleDevices, known_device
from accel_sim import settings


@dataclass(frozen=True)
class SimVendor:
    """One vendor's device and how its PyTorch runtime presents it.

    key:           what users call it; also torch's device type, where that has no other name.
    device_type:   torch's device type, if it is not the key.
    claims:        the runtime takes torch's PrivateUse1 slot under the key.
    surface:       surfaces/<surface>.json lists the names of its module.
    module:        the prefix of the device module's names there.
    packages:      the real top-level packages, which a stub replaces; none where torch has the module.
    distribution:  the stub's name and version for importlib.metadata.
    entry_point:   what `import torch` calls, in the group torch.backends.
    collectives:   its backend of torch.distributed.
    device_name:   what it calls its hardware.
    visible:       how it reads the variable that restricts the devices; own_order: devices keep the machine's order,
                   whatever the variable's; uuid: the name of a device in it, {} is its number.
    device_nodes:  device files, {} is the number of the device.
    generators:    default generators: 0 is one a device.
    one_device:    a process has one device, whichever index it sets.
    orders_data:   work on the same memory runs in the order of the calls, whatever its streams.
    fails_once:    a failed operator's error is raised once, and the device's later work is dropped without another.
    state_bytes:   of a generator's state that is a seed and an offset; 0: it is the CPU's.
    padding:       bytes that its allocator adds to each request.
    arena:         its allocator is a pool of growing ranges of addresses, in place of segments.
    torch_build:   fields of torch.version that its build of torch has; other builds serve vendors with packages.
    properties:    fields of its device properties in addition to name and total_memory.
    environment:   variables that the vendor's installation sets; {sysroot} is the simulated machine's root.
    """

    key: str
    surface: str
    module: str
    collectives: str
    device_name: str
    device_type: str = ""
    claims: bool = False
    packages: tuple[str, ...] = ()
    distribution: tuple[str, str] = ("", "")
    entry_point: tuple[str, str] = ("", "")
    visible: VisibleDevices = field(default_factory=lambda: VisibleDevices(()))
    own_order: bool = False
    uuid: str = ""
    device_nodes: tuple[str, ...] = ()
    generators: int = 0
    max_devices: int = 64
    one_device: bool = False
    orders_data: bool = False
    fails_once: bool = False
    state_bytes: int = 0
    padding: int = 0
    arena: bool = False
    torch_build: dict[str, str] = field(default_factory=dict)
    properties: dict[str, object] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """Return torch's device type."""
        return self.device_type or self.key


#: For devices whose module is torch's own: nothing but `import torch` activates them.
_IN_TORCH = ("accel_sim", "accel_sim.stub_import:activate_in_torch")


def _known(key: str, module: str, collectives: str, device_name: str, **fields: Any) -> SimVendor:
    """Return the vendor of a device whose runtime and files core's table names."""
    device = known_device(key, "native" if key == "xpu" else "")
    fields["device_nodes"] = (re.sub(r"(\[0-9\])?\*", "{}", device.files[0]),)
    fields["packages"] = tuple(filter(None, [device.runtime.partition(".")[0]]))
    fields["claims"] = bool(device.privateuse1)
    return SimVendor(key, module.rpartition(".")[2], module, collectives, device_name, **fields)


VENDORS = (
    _known(
        "npu", "torch.npu", "hccl", "Ascend910B2 (simulated)", distribution=("torch_npu", "2.13.0"),
        entry_point=("torch_npu", "torch_npu:_autoload"), state_bytes=16,
        visible=VisibleDevices(
            ("ASCEND_RT_VISIBLE_DEVICES",), number=r"(\d+)(?P<rest>.*)", exclusive=True, ascending=True,
            container="ASCEND_VISIBLE_DEVICES",
        ),
        padding=32, fails_once=True,  # NPUCachingAllocator.cpp and NPUQueue.cpp of torch_npu
        properties={"multi_processor_count": 48, "cube_core_num": 24, "vector_core_num": 48, "L2_cache_size": 192 << 20,
                    **dict.fromkeys(("major", "minor", "warp_size", "gcnArchName", "is_integrated",
                                     "is_multi_gpu_board", "max_threads_per_multi_processor",
                                     "regs_per_multiprocessor"))},
        environment={"ASCEND_HOME_PATH": "{sysroot}/usr/local/Ascend/ascend-toolkit/latest",
                     "ASCEND_OPP_PATH": "{sysroot}/usr/local/Ascend/ascend-toolkit/latest/opp"},
    ),
    _known(
        "mlu", "torch.mlu", "cncl", "MLU590 (simulated)", distribution=("torch_mlu", "1.25.0"),
        visible=VisibleDevices(
            ("CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"), name=r"[0-9a-fA-F]{8}-",
            exclusive=True, container="CAMBRICON_VISIBLE_DEVICES",
        ),
        uuid="{:08x}-2154-0000-0000-000000000000", state_bytes=16,  # MLUGeneratorImpl of torch_mlu
        properties={"multi_processor_count": 48, "cluster_count": 12, "core_num_per_cluster": 4,
                    "isa_version": 592, "major": 5, "minor": 0, "supports_linear_memory": True},
    ),
    _known(
        "sdaa", "torch.sdaa", "tccl", "TECO_AICARD_01 (simulated)",
        distribution=("torch_sdaa", "3.2.0"), visible=VisibleDevices(("SDAA_VISIBLE_DEVICES",)),
        properties={"major": 3, "minor": 0, "multi_processor_count": 32},
    ),
    _known(
        "hpu", "habana_frameworks.torch.hpu", "hccl", "GAUDI3 (simulated)",
        distribution=("habana_torch_plugin", "1.19.0"), generators=1, one_device=True, arena=True,
        entry_point=("device_backend", "habana_frameworks.autoload:__autoload"),
        visible=VisibleDevices(("HABANA_VISIBLE_MODULES",), container="HABANA_VISIBLE_DEVICES"),
        orders_data=True,  # resolves_data_dependency() of DeepSpeed's class for hpu
    ),
    _known(
        "xpu", "torch.xpu", "xccl", "Intel(R) Data Center GPU Max 1550 (simulated)",
        distribution=("accel_sim_xpu", "0"), entry_point=_IN_TORCH,
        visible=VisibleDevices(
            ("ZE_AFFINITY_MASK",), number=r"\s*([+-]?\d+)(?![\d.])", name=r"\d+(\.\d+)+$", skips=True,
            unset_if_empty=True, later=("ONEAPI_DEVICE_SELECTOR",),
        ),
        own_order=True, state_bytes=16, torch_build={"xpu": "20250302"},
        properties={"platform_name": "simulated", "max_compute_units": 448, "gpu_eu_count": 448, "has_fp64": True,
                    "has_fp16": True, "has_atomic64": True, "has_bfloat16_conversions": True,
                    "has_subgroup_matrix_multiply_accumulate": True, "max_work_group_size": 1024,
                    "max_num_sub_groups": 64, "sub_group_sizes": [16, 32], "gpu_subslice_count": 56,
                    "has_subgroup_matrix_multiply_accumulate_tensor_float32": True, "has_subgroup_2d_block_io": True,
                    "device_id": 0x0BD5, "version": "12.60.7", "architecture": 13136561920, "is_integrated_gpu": False,
                    "memory_clock_rate": 3200, "memory_bus_width": 64, "local_mem_size": 128 << 10,
                    "last_level_cache_size": 408 << 20,
                    "vendor": "Intel(R) Corporation", "type": "gpu", "driver_version": "simulated"},
    ),
    _known(
        "cuda", "torch.cuda", "nccl", "NVIDIA H100 (simulated)",
        distribution=("accel_sim_cuda", "0"), entry_point=_IN_TORCH,
        visible=VisibleDevices(
            ("CUDA_VISIBLE_DEVICES",), number=r"\s*([+-]?\d+)", name="(GPU|MIG)-", exclusive=True,
            container="NVIDIA_VISIBLE_DEVICES",
        ),
        uuid="GPU-{:08x}-0000-4000-8000-000000000000", state_bytes=16, torch_build={"cuda": "12.8"},
        properties={"multi_processor_count": 132, "major": 9, "minor": 0, "warp_size": 32, "is_integrated": 0,
                    "is_multi_gpu_board": 0, "max_threads_per_multi_processor": 2048, "gcnArchName": "NVIDIA H100",
                    "regs_per_multiprocessor": 65536, "L2_cache_size": 50 << 20, "clock_rate": 1980000,
                    "memory_clock_rate": 2619000, "memory_bus_width": 5120, "shared_memory_per_block": 48 << 10,
                    "shared_memory_per_block_optin": 227 << 10, "shared_memory_per_multiprocessor": 228 << 10},
    ),
    _known(
        "supa", "torch.supa", "bccl", "BR200 (simulated)", distribution=("torch_supa", "1.0.0"),
        entry_point=("torch_supa", "torch_supa:_autoload"), state_bytes=16,  # SUPAGeneratorImpl of torch_supa
        visible=VisibleDevices(("SUPA_VISIBLE_DEVICES",)),
        properties={"multi_processor_count": 32, "major": 1, "minor": 0, "warp_size": 32, "is_integrated": 0,
                    "is_multi_gpu_board": 0, "max_threads_per_multi_processor": 2048, "max_threads_per_block": 1024,
                    "gcnArchName": "BR200", "regs_per_multiprocessor": 65536, "L2_cache_size": 256 << 20},
    ),
    _known(
        "klxpu", "torch.cuda", "nccl", "P800 (simulated)", distribution=("torch_xmlir", "0"), device_type="cuda",
        visible=VisibleDevices(("CUDA_VISIBLE_DEVICES",)), state_bytes=16, torch_build={"cuda": "12.1"},
        uuid="{:08x}-0000-4000-8000-000000000000",
        properties={"multi_processor_count": 12, "major": 8, "minor": 0, "warp_size": 32, "is_integrated": 0,
                    "is_multi_gpu_board": 0, "max_threads_per_multi_processor": 2048, "gcnArchName": "P800",
                    "regs_per_multiprocessor": 65536, "L2_cache_size": 64 << 20},
    ),
    SimVendor(
        "mps", "mps", "torch.mps", "gloo", "Apple M (simulated)",
        distribution=("accel_sim_mps", "0"), entry_point=_IN_TORCH, max_devices=1,
        device_nodes=("System/Library/Frameworks/Metal.framework",), state_bytes=36,  # MPSGeneratorImpl.mm
    ),
)  # fmt: skip


#: What a description need not say: a back end that claims PrivateUse1 has torch.cuda's names.
_DESCRIBED = {"surface": "cuda", "module": "torch.cuda"}
_SUFFIX = ".json"


def find(name: str) -> SimVendor:
    """Return the vendor of a key, or the one described in a JSON file. Raises `InvalidInput`."""
    if name.endswith(_SUFFIX):
        return _read(Path(name).absolute())
    for vendor in _all():
        if vendor.key == name:
            return vendor
    raise InvalidInput(
        f"this device cannot be simulated: {name!r}; expected one of "
        f"{', '.join(vendor.key for vendor in VENDORS)}, or a file *{_SUFFIX} that describes one",
        do=f"choose one of these, or describe one: {DOCUMENTATION}/simulated-devices.md",
    )


def of_package(name: str) -> SimVendor:
    """Return the vendor whose runtime has this top-level package."""
    return next(v for v in _all() if name in {package.partition(".")[0] for package in v.packages})


def setting(name: str) -> str:
    """Return the value of ACCEL_SIM for child processes: a key, or an absolute path."""
    return str(Path(name).absolute()) if name.endswith(_SUFFIX) else name


def _all() -> tuple[SimVendor, ...]:
    name = settings.DEVICE.get()
    return (find(name), *VENDORS) if name.endswith(_SUFFIX) else VENDORS


@cache
def _read(path: Path) -> SimVendor:
    try:
        fields: dict[str, Any] = dict(json.loads(path.read_text(encoding="utf-8")).items())
        visible = VisibleDevices(tuple(fields.pop("visible", ())))
        return SimVendor(
            **_DESCRIBED | {name: _frozen(value) for name, value in fields.items()}, visible=visible
        )
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"a simulated device cannot be made from its description: {path}: {type(error).__name__}: "
            f"{error}; expected a JSON object with key, collectives, device_name and other fields of "
            "SimVendor",
            do=f"correct the file; an example is in {DOCUMENTATION}/simulated-devices.md",
        ) from error


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def visible_devices(vendor: SimVendor, present: int, environment: Mapping[str, str]) -> tuple[int, ...]:
    """Return the machine's numbers of the visible devices."""
    variable = vendor.visible.decides(environment)
    if not variable:
        return tuple(range(present))
    names = {vendor.uuid.format(number): number for number in range(present)} if vendor.uuid else {}
    found = [int(number) for number in vendor.visible.read(environment[variable], present, names).values()]
    return tuple(sorted(found) if vendor.own_order else found)
