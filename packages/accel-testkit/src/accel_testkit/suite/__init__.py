# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The conformance suite, one file a capability: the list of files is the list of what a backend has to do.

    pytest --pyargs accel_testkit.suite --accel KEY [--tier host|device|multi] [--results FILE]

The docstring of a check is the sentence of what a backend must do. All checks always run. One is skipped
only where the vendor declares a trait for it, or where it does not apply; the reason is printed and recorded.
"""
