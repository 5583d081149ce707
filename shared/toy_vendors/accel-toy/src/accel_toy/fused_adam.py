# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The result of `FusedAdamBuilder().load()`."""


def multi_tensor_adam(*args: object) -> str:
    """Return the name of the package that served."""
    return "accel_toy"
