# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Methods of DeepSpeed that are replaced for speed or to fix them; accel-core finds `table` by its entry point."""
