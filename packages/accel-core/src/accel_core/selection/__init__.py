# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Selection: discover, evidence, confirm, choose, construct. Private; `accel_core.api` has the public functions."""
