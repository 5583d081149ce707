# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# Generated from shared/surfaces by `python -m ci.stubs write`: change nothing here.
"""What accel_npu.accelerator.NPU_Accelerator asks of torch_npu.npu: mypy checks it, nothing runs it."""

from typing import Any

import torch_npu.npu as module


def calls(_: Any) -> None:
    module.Event
    module.Stream
    module._lazy_call(_)
    module.current_device()
    module.current_stream(_)
    module.default_generators
    module.default_stream(_)
    module.device_count()
    module.empty_cache()
    module.get_device_properties(_)
    module.get_rng_state()
    module.get_rng_state(_)
    module.initial_seed()
    module.is_available()
    module.is_bf16_supported()
    module.manual_seed(_)
    module.manual_seed_all(_)
    module.max_memory_allocated(_)
    module.max_memory_reserved(_)
    module.mem_get_info(_)
    module.memory_allocated(_)
    module.memory_reserved(_)
    module.memory_stats(_)
    module.reset_peak_memory_stats(_)
    module.set_device(_)
    module.set_rng_state(_)
    module.set_rng_state(_, _)
    module.stream(_)
    module.synchronize(_)
