# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Python imports this as a process below a watched one starts; then the environment's own, if there is one."""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from accel_testkit.mutation.reach import in_started_process

_HERE = str(Path(__file__).parent)
_own = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if entry != _HERE])
if _own is not None and _own.loader is not None:
    _own.loader.exec_module(importlib.util.module_from_spec(_own))
in_started_process()
