# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders of the classic device; its accelerator and DeepSpeed look every file here through."""
