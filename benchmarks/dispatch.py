# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a call through the accelerator costs over the direct torch call: ours and upstream's, interleaved.

A device module whose functions return at once stands in as `torch.mlu`, so that what is timed is the
dispatch alone. Upstream's MLU_Accelerator and our TorchDeviceAccelerator call the same functions.
"""

import sys
import timeit
import types
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from accel_core import OpTable, TorchDeviceAccelerator, get_accelerator, set_accelerator
from accel_testkit import timing
from benchmarks import results

#: method, call on the accelerator, the same call on torch.
CALLS = (
    ("current_device", "accel.current_device()", "torch.mlu.current_device()"),
    ("current_stream", "accel.current_stream()", "torch.mlu.current_stream()"),
    ("stream", "accel.stream(None)", "torch.mlu.stream(None)"),
    ("synchronize", "accel.synchronize()", "torch.mlu.synchronize()"),
    ("set_device", "accel.set_device(0)", "torch.mlu.set_device(0)"),
    ("Event", "accel.Event", "torch.mlu.Event"),
    ("Stream", "accel.Stream", "torch.mlu.Stream"),
    ("memory_allocated", "accel.memory_allocated()", "torch.mlu.memory_allocated()"),
    ("max_memory_allocated", "accel.max_memory_allocated()", "torch.mlu.max_memory_allocated()"),
    ("memory_reserved", "accel.memory_reserved()", "torch.mlu.memory_reserved()"),
    ("empty_cache", "accel.empty_cache()", "torch.mlu.empty_cache()"),
    ("is_available", "accel.is_available()", "torch.mlu.is_available()"),
    ("device_name", "accel.device_name()", None),
    ("current_device_name", "accel.current_device_name()", None),
    ("communication_backend_name", "accel.communication_backend_name()", None),
    ("is_synchronized_device", "accel.is_synchronized_device()", None),
    ("resolves_data_dependency", "accel.resolves_data_dependency()", None),
    ("on_accelerator", "accel.on_accelerator(tensor)", None),
)
LOOPS = 20_000
GOAL_NS = 60.0


class Ours(TorchDeviceAccelerator):
    """The base alone: nothing is overridden but what is abstract."""

    def visible_devices_envs(self) -> list[str]:
        return ["MLU_VISIBLE_DEVICES"]


def quick_device() -> types.ModuleType:
    """A device module whose functions do nothing."""
    device = types.ModuleType("torch.mlu")

    def answers(value: Any) -> Any:
        return lambda device=None: value

    for name in ("current_stream", "default_stream", "synchronize", "set_device", "empty_cache"):
        setattr(device, name, answers(None))
    for name in (
        "memory_allocated",
        "max_memory_allocated",
        "memory_reserved",
        "current_device",
        "device_count",
    ):
        setattr(device, name, answers(0))
    device.is_available = answers(True)  # type: ignore[attr-defined]
    device.stream = lambda stream: nullcontext()  # type: ignore[attr-defined]
    device.Stream, device.Event = torch.Stream, torch.Event  # type: ignore[attr-defined]
    return device


def median_ns(timers: dict[str, timeit.Timer], rounds: int) -> dict[str, float]:
    """Median ns a call of each statement, in turns."""
    measures = {name: lambda timer=timer: timer.timeit(LOOPS) / LOOPS * 1e9 for name, timer in timers.items()}
    return timing.medians(timing.turns(measures, rounds))


def row(method: str, call: str, direct: str | None, ours: Any, theirs: Any, rounds: int) -> dict[str, Any]:
    """Time one method three ways."""
    tensor = torch.zeros(1)
    timers = {
        "ours": timeit.Timer(call, globals={"accel": ours, "tensor": tensor}),
        "upstream": timeit.Timer(call, globals={"accel": theirs, "tensor": tensor}),
    }
    if direct is not None:
        timers["direct"] = timeit.Timer(direct, globals={"torch": torch})
    ns = median_ns(timers, rounds)
    over = ns["ours"] - ns["direct"] if direct else "—"
    met = "—" if direct is None else ("yes" if ns["ours"] - ns["direct"] <= GOAL_NS else "no")
    return {
        "method": method,
        "direct ns": ns.get("direct", "—"),
        "ours ns": ns["ours"],
        "upstream ns": ns["upstream"],
        "ours − direct ns": over,
        "upstream ÷ ours": ns["upstream"] / ns["ours"],
        f"within {GOAL_NS:.0f} ns": met,
    }


def get_accelerator_row(ours: Any, rounds: int) -> dict[str, Any]:
    """Our get_accelerator() against upstream's own function, both with an accelerator set."""
    namespace: dict[str, Any] = {"ds_accelerator": ours}
    # Upstream's fast path, run from its own source: the bridge has replaced the function itself.
    import deepspeed.accelerator.real_accelerator as real

    source = Path(str(real.__file__)).read_text(encoding="utf-8")
    exec(compile(source, str(real.__file__), "exec"), namespace)
    namespace["ds_accelerator"] = ours
    set_accelerator(ours)
    timers = {
        "ours": timeit.Timer("get()", globals={"get": get_accelerator}),
        "upstream": timeit.Timer("get()", globals={"get": namespace["get_accelerator"]}),
    }
    ns = median_ns(timers, rounds)
    return {
        "method": "get_accelerator()",
        "direct ns": "—",
        "ours ns": ns["ours"],
        "upstream ns": ns["upstream"],
        "ours − direct ns": "—",
        "upstream ÷ ours": ns["upstream"] / ns["ours"],
        f"within {GOAL_NS:.0f} ns": "—",
    }


def main() -> int:
    """Measure and write docs/results/dispatch.{md,json}."""
    options = results.parser(__doc__).parse_args()
    torch.mlu = quick_device()  # type: ignore[attr-defined]
    from deepspeed.accelerator.mlu_accelerator import MLU_Accelerator

    theirs = MLU_Accelerator()
    ours = Ours("mlu", collectives="cncl", ops=OpTable("none", {}))
    rows = [get_accelerator_row(ours, options.rounds)]
    rows += [row(*call, ours, theirs, options.rounds) for call in CALLS]
    text = (
        f"Medians of {options.rounds} interleaved rounds of {LOOPS:,} calls. The device module's functions return at "
        "once, so the columns show dispatch alone. Goals: `get_accelerator()` no slower than upstream's, each "
        f"pass-through within {GOAL_NS:.0f} ns of the direct torch call, `on_accelerator` at least 3 times faster."
    )
    results.write("dispatch", "Cost of a call through the accelerator", text, rows, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
