# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The bridge to stock DeepSpeed: the only run-time code of this project that imports deepspeed.

docs/upstream-hooks.md lists each access to it, with the reason, and when it can be removed.
"""
