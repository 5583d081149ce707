# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Replaced methods of DeepSpeed's ZeRO-Offload and of its checkpoint writer; accel-core finds them by entry points."""
