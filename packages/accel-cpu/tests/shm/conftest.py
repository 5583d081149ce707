# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a job run has to be importable in their processes, which inherit this path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("ranks")))
