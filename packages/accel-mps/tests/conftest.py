# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import torch

#: Where there is no GPU of Apple's, test_simulated.py runs them.
collect_ignore = [] if torch.backends.mps.is_available() else ["device"]
