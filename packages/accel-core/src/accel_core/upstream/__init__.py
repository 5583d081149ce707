# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The bridge to stock DeepSpeed: the only run-time code of this project that imports deepspeed.

Every reach into it is listed, with its reason and its end, in docs/upstream-hooks.md.
"""
