# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a run of the testkit showed, kept small, and the page made of it. ci.feature_matrix is the program."""
