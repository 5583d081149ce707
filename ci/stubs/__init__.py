# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Makes mypy see the vendors' modules, which are not installed here: stubs from shared/surfaces, and what core asks."""
