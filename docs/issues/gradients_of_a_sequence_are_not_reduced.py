# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""With a mesh, the group in which gradients are reduced has the data-parallel ranks alone."""

from types import SimpleNamespace

import _engine  # noqa: F401 - makes this process the only rank
import deepspeed
from deepspeed.utils import groups

deepspeed.init_distributed()
groups.mesh_device = SimpleNamespace(get_group=lambda mesh_dim: mesh_dim)
print("gradients are reduced over:", groups._get_sequence_data_parallel_group())
