# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch optimizers over the host kernels, for models in host memory; no DeepSpeed needed.

AdamW and Adagrad are torch's own classes with another `step`: options and state dicts are theirs, both ways.
"""

from accel_host.optim.adagrad import Adagrad
from accel_host.optim.adamw import AdamW
from accel_host.optim.lion import Lion

__all__ = ["Adagrad", "AdamW", "Lion"]
