// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "order/race.h"

#include <algorithm>

namespace accel_sim {

namespace {

constexpr size_t kSmall = 1 << 20;  // torch's allocator has one pool for blocks up to this size and one for larger

bool fits(size_t wanted, size_t there) {
  return wanted <= there && (wanted <= kSmall) == (there <= kSmall);
}

bool recorded(const Block& block, const Access& access) {
  for (const auto id : block.recorded) {
    const c10::Stream stream(c10::Stream::UNSAFE, c10::Device(config().type, block.device), id);
    if (order().line_of(stream) == access.epoch.line) return true;
  }
  return false;
}

} // namespace

void FreedMemory::add(const Block& block, std::vector<Access> accesses) {
  // The allocator itself waits for recorded streams, and a collective keeps its tensors.
  const auto gone = [&](const Access& access) {
    return access.kept || recorded(block, access) || order().seen_by_host().knows(access.epoch);
  };
  accesses.erase(std::remove_if(accesses.begin(), accesses.end(), gone), accesses.end());
  if (!accesses.empty()) pieces_[{block.device, block.stream}].push_back({block.bytes, std::move(accesses)});
}

std::optional<Access> FreedMemory::in_use(size_t bytes, const c10::Stream& stream) {
  const auto& seen = order().seen_by(stream);
  for (auto& piece : pieces_[{stream.device_index(), stream.id()}]) {
    if (!fits(bytes, piece.bytes)) continue;
    const auto under_way = [&](const Access& access) { return !seen.knows(access.epoch); };
    const auto found = std::find_if(piece.accesses.begin(), piece.accesses.end(), under_way);
    if (found == piece.accesses.end()) continue;
    auto access = std::move(*found);
    piece.accesses.erase(found);
    return access;
  }
  return std::nullopt;
}

std::vector<Access> FreedMemory::hand_out(size_t bytes, const c10::Stream& stream) {
  auto& pieces = pieces_[{stream.device_index(), stream.id()}];
  const auto done = [&](const Piece& piece) {
    return std::all_of(piece.accesses.begin(), piece.accesses.end(), [](const Access& access) {
      return order().seen_by_host().knows(access.epoch);
    });
  };
  pieces.erase(std::remove_if(pieces.begin(), pieces.end(), done), pieces.end());
  auto best = pieces.end();
  for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
    if (fits(bytes, piece->bytes) && (best == pieces.end() || piece->bytes < best->bytes)) best = piece;
  }
  if (best == pieces.end()) return {};
  auto found = std::move(best->accesses);
  pieces.erase(best);
  for (auto& access : found) {
    access.span = Span(0, static_cast<int64_t>(bytes));
    access.write = true;
    access.argument += "` of a tensor that was freed, whose memory this is, `";
  }
  return found;
}

void FreedMemory::clear(c10::DeviceIndex device) {
  for (auto& [key, pieces] : pieces_) {
    if (key.first == device) pieces.clear();
  }
}

} // namespace accel_sim
