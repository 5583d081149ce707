// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Reductions over the ranks' copies of the same elements.
#pragma once

#include <cstdint>

namespace accel_shm {

// Bytes of an element; 0 for a type that cannot be reduced.
int64_t element_size(int32_t type);

// Whether elements of the type can be reduced with the operation: integers have no average.
bool reducible(int32_t type, int32_t operation);

// output[i] = sources[0][i] op sources[1][i] op …, for the elements from `begin` to `end`; in that order on every rank,
// so that all get the same bits. Half types are accumulated in float and rounded once. output may be one of the
// sources. The result is also written to `also`, unless that is null.
void reduce(
    int32_t type, int32_t operation, const uint8_t* const* sources, int32_t ranks, void* output, void* also,
    int64_t begin, int64_t end);

} // namespace accel_shm
