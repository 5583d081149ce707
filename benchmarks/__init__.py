# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Side by side with the peers, one command each; results are written to docs/results."""
