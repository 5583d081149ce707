# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel doctor`: every accelerator, the one that a run would use, and what is wrong here."""
