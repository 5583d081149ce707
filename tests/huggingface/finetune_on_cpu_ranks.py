# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""finetune_and_tell.py on several CPU ranks: accelerate has to be given the collectives' backend first.

torchrun --nproc-per-node 2 finetune_on_cpu_ranks.py … --accelerator_config '{"use_configured_state": true}'
"""

import os

from accelerate import PartialState
from deepspeed.accelerator import get_accelerator

os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
PartialState(backend=get_accelerator().communication_backend_name())

import finetune_and_tell  # noqa: E402, F401  (trains on import)
