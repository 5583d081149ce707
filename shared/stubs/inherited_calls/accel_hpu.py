# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# Generated from shared/surfaces by `python -m ci.stubs write`: change nothing here.
"""What accel_hpu.accelerator.HPU_Accelerator asks of habana_frameworks.torch.hpu: mypy checks it, nothing runs it."""

from typing import Any

import habana_frameworks.torch.hpu as module


def calls(_: Any) -> None:
    module.Event
    module.Stream
    module.current_device()
    module.current_stream()
    module.default_stream()
    module.device_count()
    module.get_rng_state()
    module.initial_seed()
    module.is_available()
    module.is_bf16_supported()
    module.manual_seed(_)
    module.manual_seed_all(_)
    module.max_memory_allocated()
    module.max_memory_reserved()
    module.mem_get_info()
    module.memory_allocated()
    module.memory_reserved()
    module.memory_stats()
    module.reset_peak_memory_stats()
    module.set_device(_)
    module.set_rng_state(_)
    module.stream(_)
    module.synchronize()
