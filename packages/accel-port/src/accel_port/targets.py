# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The three interfaces that a port can be written for, as texts."""

from __future__ import annotations

from dataclasses import dataclass

from accel_port.syntax import words

#: Functions of torch.cuda that an accelerator of DeepSpeed has under the same name, called with the same index.
SAME_NAME = words(
    "is_available device_count current_device set_device synchronize manual_seed manual_seed_all "
    "initial_seed get_rng_state set_rng_state empty_cache memory_allocated max_memory_allocated "
    "reset_max_memory_allocated memory_cached max_memory_cached reset_max_memory_cached memory_stats "
    "reset_peak_memory_stats memory_reserved max_memory_reserved current_stream default_stream stream "
    "Stream Event is_bf16_supported"
)
#: Names that an accelerator of DeepSpeed has under another name.
RENAMED = {
    "nvtx.range_push": "range_push",
    "nvtx.range_pop": "range_pop",
    "_lazy_call": "lazy_call",
    "random.get_rng_state": "get_rng_state",
    "random.set_rng_state": "set_rng_state",
    "random.manual_seed": "manual_seed",
    "random.manual_seed_all": "manual_seed_all",
    "streams.Stream": "Stream",
    "streams.Event": "Event",
} | {f"memory.{name}": name for name in SAME_NAME if "memory" in name or name == "empty_cache"}
#: What torch.accelerator calls them; the value is read from the module `torch`.
TORCH_NAMES = {
    "is_available": "accelerator.is_available",
    "device_count": "accelerator.device_count",
    "current_device": "accelerator.current_device_index",
    "set_device": "accelerator.set_device_index",
    "synchronize": "accelerator.synchronize",
    "current_stream": "accelerator.current_stream",
    "empty_cache": "accelerator.empty_cache",
    "memory_allocated": "accelerator.memory_allocated",
    "max_memory_allocated": "accelerator.max_memory_allocated",
    "memory_reserved": "accelerator.memory_reserved",
    "max_memory_reserved": "accelerator.max_memory_reserved",
    "memory_stats": "accelerator.memory_stats",
    "mem_get_info": "accelerator.get_memory_info",
    "reset_peak_memory_stats": "accelerator.reset_peak_memory_stats",
    "Stream": "Stream",
    "Event": "Event",
}
#: Functions that do nothing on the CPU in torch.cuda, and raise there in torch.accelerator.
RAISE_WITHOUT_DEVICE = words(
    "empty_cache memory_allocated max_memory_allocated memory_reserved max_memory_reserved "
    "memory_stats reset_peak_memory_stats manual_seed manual_seed_all"
)


@dataclass(frozen=True)
class Target:
    """One interface. `torch` is the name under which the module to be ported knows torch."""

    name: str
    torch: str = "torch"
    accelerator: str = "get_accelerator()"

    @property
    def is_torch(self) -> bool:
        """Whether torch.accelerator is the target."""
        return self.name == "torch"

    @property
    def import_line(self) -> str:
        """The import that the texts need; empty for torch."""
        package = {"deepspeed": "deepspeed.accelerator", "accel": "accel_core"}.get(self.name)
        return f"from {package} import get_accelerator" if package else ""

    def function(self, name: str) -> str | None:
        """Return how a function of torch.cuda is named, None if there is none that means the same."""
        name = RENAMED.get(name, name)
        if self.is_torch:
            if name in TORCH_NAMES:
                return f"{self.torch}.{TORCH_NAMES[name]}"
            if name in ("manual_seed", "manual_seed_all", "get_rng_state", "set_rng_state"):
                return f"{self.torch}.get_device_module().{name}"
            return None
        if name in SAME_NAME or name in RENAMED.values():
            return f"{self.accelerator}.{name}"
        return None

    @property
    def device(self) -> str:
        """The device's name, for an argument that takes a string or a torch.device."""
        if self.is_torch:
            return f"{self.torch}.accelerator.current_accelerator().type"
        return f"{self.accelerator}.device_name()"

    @property
    def device_or_cpu(self) -> str:
        """The device's name where there may be none: torch.accelerator has no name for the CPU."""
        return f'{self.device} if {self.has_device} else "cpu"' if self.is_torch else self.device

    def indexed(self, index: str) -> str:
        """Return the device of an index."""
        if self.is_torch:
            return f"{self.torch}.device({self.torch}.accelerator.current_accelerator().type, {index})"
        return f"{self.accelerator}.device_name({index})"

    @property
    def current_device(self) -> str:
        """The current device with its index."""
        if self.is_torch:
            return self.indexed(f"{self.torch}.accelerator.current_device_index()")
        return f"{self.accelerator}.current_device_name()"

    @property
    def has_device(self) -> str:
        """A condition that is false on the CPU, as torch.cuda.is_available() is."""
        if self.is_torch:
            return f"{self.torch}.accelerator.is_available()"
        return f'{self.accelerator}.device_name() != "cpu"'

    @property
    def device_index(self) -> str:
        """The context for the current device by index; empty for DeepSpeed, which has none."""
        return {"accel": "accel_core.device_index", "torch": f"{self.torch}.accelerator.device_index"}.get(
            self.name, ""
        )

    def communication_backend(self) -> str:
        """Return the name of the backend of collectives."""
        if self.is_torch:
            return f"{self.torch}.distributed.get_default_backend_for_device({self.device})"
        return f"{self.accelerator}.communication_backend_name()"
