# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DS_ACCELERATOR=cuda is not checked, and the program fails later with an error that does not name it."""

import os

os.environ |= {"DS_ACCELERATOR": "cuda", "CUDA_VISIBLE_DEVICES": ""}

from deepspeed.accelerator import get_accelerator

accelerator = get_accelerator()
print("chosen:", accelerator._name, "- available:", accelerator.is_available())
