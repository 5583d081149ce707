# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A pretend accelerator in the style of DeepSpeed's own."""
