# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Names of the vendors' modules: what their surfaces offer, and what the packages use. ci.check_names compares them."""
