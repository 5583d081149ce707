# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch optimizers on the host kernels, for models in host memory. DeepSpeed is not needed.

AdamW and Adagrad are subclasses of torch's own with another `step`: options are the same, and state dicts can be
exchanged in both directions.
"""

from accel_ops.optim.adagrad import Adagrad
from accel_ops.optim.adamw import AdamW
from accel_ops.optim.lion import Lion

__all__ = ["Adagrad", "AdamW", "Lion"]
