# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# Generated from shared/surfaces by `python -m ci.stubs write`: change nothing here.
"""What accel_mps.accelerator.MPS_Accelerator asks of accel_mps.runtime: mypy checks it, nothing runs it."""

from typing import Any

import accel_mps.runtime as module


def calls(_: Any) -> None:
    module.device_count()
    module.empty_cache()
    module.get_rng_state()
    module.initial_seed()
    module.is_available()
    module.manual_seed(_)
    module.manual_seed_all(_)
    module.max_memory_allocated()
    module.max_memory_reserved()
    module.mem_get_info()
    module.memory_allocated()
    module.memory_reserved()
    module.memory_stats()
    module.reset_peak_memory_stats()
    module.set_rng_state(_)
    module.synchronize()
