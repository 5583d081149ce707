# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel compare`: where two runs of one program begin to compute different numbers."""
