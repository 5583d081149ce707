# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The three interfaces that a port can be written for, as texts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from accel_port.expressions import words

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
    name: f"accelerator.{name}"
    for name in words(
        "is_available device_count synchronize current_stream empty_cache memory_allocated max_memory_allocated"
        " memory_reserved max_memory_reserved memory_stats reset_peak_memory_stats"
    )
} | {
    "current_device": "accelerator.current_device_index",
    "set_device": "accelerator.set_device_index",
    "mem_get_info": "accelerator.get_memory_info",
    "Stream": "Stream",
    "Event": "Event",
}
#: Functions that do nothing on the CPU in torch.cuda, and raise there in torch.accelerator.
RAISE_WITHOUT_DEVICE = words(
    "empty_cache memory_allocated max_memory_allocated memory_reserved max_memory_reserved "
    "memory_stats reset_peak_memory_stats manual_seed manual_seed_all"
)


@dataclass(frozen=True)
class PortTarget:
    """One interface, as texts. `torch` and `accelerator` are what the module to be ported calls them."""

    torch: str
    accelerator: str
    import_line: str  # that the texts need
    device: str  # its name, for an argument that takes a string or a torch.device
    device_or_cpu: str  # the same where there may be none
    index: str  # the device of an index, which stands for the null character
    current_device: str  # with its index
    has_device: str  # a condition that is false on the CPU, as torch.cuda.is_available() is
    device_index: str  # the context for the current device by index; empty if there is none
    communication_backend: str
    is_torch: bool

    @staticmethod
    def of(name: str, torch: str, get_accelerator: str) -> PortTarget:
        """Return the target deepspeed, accel or torch."""
        own = f"{get_accelerator}()"
        if name != "torch":
            package = {"deepspeed": "deepspeed.accelerator", "accel": "accel_core"}[name]
            renamed = "" if get_accelerator == "get_accelerator" else f" as {get_accelerator}"
            return PortTarget(
                torch,
                own,
                import_line=f"from {package} import get_accelerator{renamed}",
                device=f"{own}.device_name()",
                device_or_cpu=f"{own}.device_name()",
                index=f"{own}.device_name(\0)",
                current_device=f"{own}.current_device_name()",
                has_device=f'{own}.device_name() != "cpu"',
                device_index="accel_core.device_index" if name == "accel" else "",
                communication_backend=f"{own}.communication_backend_name()",
                is_torch=False,
            )
        module = f"{torch}.accelerator"
        device, has_device = f"{module}.current_accelerator().type", f"{module}.is_available()"
        return PortTarget(
            torch,
            own,
            import_line="",
            device=device,
            device_or_cpu=f'{device} if {has_device} else "cpu"',
            index=f"{torch}.device({device}, \0)",
            current_device=f"{torch}.device({device}, {module}.current_device_index())",
            has_device=has_device,
            device_index=f"{module}.device_index",
            communication_backend=f"{torch}.distributed.get_default_backend_for_device({device})",
            is_torch=True,
        )

    def function(self, name: str) -> str | None:
        """Return how a function of torch.cuda is named, None if there is none that means the same."""
        name = RENAMED.get(name, name)
        if not self.is_torch:
            known = name in SAME_NAME or name in RENAMED.values()
            return f"{self.accelerator}.{name}" if known else None
        if name in TORCH_NAMES:
            return f"{self.torch}.{TORCH_NAMES[name]}"
        module = name in ("manual_seed", "manual_seed_all", "get_rng_state", "set_rng_state")
        return f"{self.torch}.get_device_module().{name}" if module else None

    @property
    def anywhere(self) -> PortTarget:
        """The target with devices that may be made without one, as "cuda" may: torch.accelerator has no name there."""
        texts = {name: getattr(self, name) for name in ("device", "index", "communication_backend")}
        texts = {name: text.replace(self.device, self.device_or_cpu) for name, text in texts.items()}
        return replace(self, **texts)

    def indexed(self, index: str) -> str:
        """Return the device of an index."""
        return self.index.replace("\0", index)
