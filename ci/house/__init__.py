# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The house rules, one subject a module; ci.check_house runs them."""
