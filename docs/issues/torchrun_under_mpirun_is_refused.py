# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A rank of torchrun under mpirun cannot construct an engine."""

import os

from deepspeed.runtime.engine import DeepSpeedEngine

os.environ.update(LOCAL_RANK="1", OMPI_COMM_WORLD_LOCAL_RANK="0")
try:
    DeepSpeedEngine._configure_with_arguments(object.__new__(DeepSpeedEngine), None, None)
except AssertionError as error:
    print(error)
