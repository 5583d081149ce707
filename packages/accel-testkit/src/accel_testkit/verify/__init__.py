# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel verify`: what works on this machine, step by step, as a report that its user and the vendor can act on."""
