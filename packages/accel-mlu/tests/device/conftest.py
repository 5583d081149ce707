# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""These tests need an MLU: a real one, or the simulated one that `test_on_simulated_device.py` runs them on."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch_mlu") else ["test_*"]
