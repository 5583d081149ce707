# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0

"""The conformance suite and the simulated devices; see README.md."""
