# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Quantizer ops: integers, and floating-point formats of few bits."""
