# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A hostfile that is named and does not exist is a warning, and one node is trained on."""

from deepspeed.launcher.runner import fetch_hostfile

print("hosts:", fetch_hostfile("/no/such/hostfile"))
