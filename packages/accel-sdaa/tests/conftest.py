# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from importlib.util import find_spec

#: Where there is no torch_sdaa, test_simulated.py runs them.
collect_ignore = [] if find_spec("torch_sdaa") else ["device"]
