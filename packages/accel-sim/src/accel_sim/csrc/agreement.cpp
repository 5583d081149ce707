// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "agreement.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <pthread.h>

#include <algorithm>
#include <cctype>
#include <thread>

namespace accel_sim {

namespace {

// Tags of the data are below it; then come those of headers, and of the receivers' answers to them.
constexpr int64_t TAGS = int64_t{1} << 29;

at::Tensor numbers(const std::vector<int64_t>& values) {
  auto tensor = at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions().dtype(at::kLong));
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

std::vector<int64_t> values(const at::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<int64_t>();
  return {data, data + tensor.numel()};
}

const char* name_of(int64_t dtype) {
  return c10::toString(static_cast<at::ScalarType>(dtype));
}

constexpr size_t FIELDS = 5;  // of a row: type, dtypes, operation, root; then what the rank gives and takes

std::string described(const std::vector<int64_t>& row) {
  auto text = lower_name(static_cast<OpType>(row[0])) + " of " + name_of(row[1]);
  if (row[2] != row[1]) text += std::string(" into ") + name_of(row[2]);
  if (row[3] >= 0) text += ", operation " + std::to_string(row[3]);
  if (row[4] >= 0) text += ", root " + std::to_string(row[4]);
  return text;
}

void compare(c10d::Backend& gloo, const Call& call) {
  const auto size = static_cast<size_t>(gloo.getSize()), rank = static_cast<size_t>(gloo.getRank());
  std::vector<int64_t> row{
      static_cast<int64_t>(call.type), static_cast<int64_t>(call.given), static_cast<int64_t>(call.taken),
      call.operation, call.root};
  row.resize(FIELDS + 2 * size);
  std::copy(call.gives.begin(), call.gives.end(), row.begin() + FIELDS);
  std::copy(call.takes.begin(), call.takes.end(), row.begin() + static_cast<int64_t>(FIELDS + size));
  Tensors mine{numbers(row)};
  std::vector<Tensors> all(1);
  for (size_t i = 0; i < size; ++i) all[0].push_back(at::empty_like(mine[0]));
  gloo.allgather(all, mine, c10d::AllgatherOptions())->wait();
  std::vector<std::vector<int64_t>> rows;
  for (const auto& each : all[0]) rows.push_back(values(each));
  for (size_t i = 0; i < size; ++i) {
    TORCH_CHECK(
        std::equal(row.begin(), row.begin() + FIELDS, rows[i].begin()), "ranks called different collectives: rank ", i,
        " ", described(rows[i]), "; rank ", rank, " ", described(row));
  }
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = 0; j < size; ++j) {
      const auto gives = rows[i][FIELDS + j], takes = rows[j][FIELDS + size + i];
      TORCH_CHECK(
          i == j || gives == takes, "ranks called ", described(row), " with different sizes: rank ", i, " gives ",
          gives, " bytes to rank ", j, ", which takes ", takes);
    }
  }
}

} // namespace

std::string lower_name(OpType type) {
  auto name = c10d::opTypeToString(type);
  for (auto& letter : name) letter = static_cast<char>(std::tolower(letter));
  return name;
}

// Work on its own thread, which can be polled and waited for as often as any other: a send or receive of gloo
// completes inside its wait() only, which may be called once.
class HostWork final : public c10d::Work {
 public:
  // body: returns the rank that sent; it is destroyed ahead of the work's completion.
  HostWork(OpType type, std::function<int()> body)
      : c10d::Work(-1, type), body_(std::move(body)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get())) {}
  int sourceRank() const override { return source_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

  static WorkPtr started(OpType type, std::function<int()> body, WorkPtr after = nullptr) {
    auto work = c10::make_intrusive<HostWork>(type, std::move(body));
    std::thread([work, after = std::move(after)]() mutable {
      pthread_setname_np(pthread_self(), "pt_gloo_runloop");  // the end of the interpreter waits for these
      if (after) try { after->wait(); } catch (...) {}  // it has its own waiters
      after = nullptr;
      work->run();
    }).detach();
    return work;
  }

 private:
  void run() {
    std::exception_ptr error;
    try {
      source_ = body_();
    } catch (...) {
      error = std::current_exception();
    }
    body_ = nullptr;
    finish(error);
    error ? future_->setError(error) : future_->markCompleted();
  }
  std::function<int()> body_;
  int source_ = -1;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

WorkPtr Agreement::collective(Call call, std::function<WorkPtr()> start) {
  const auto type = call.type;
  last_ = HostWork::started(
      type,
      [gloo = gloo_, call = std::move(call), start = std::move(start)] {
        if (gloo->getSize() > 1) compare(*gloo, call);
        start()->wait();
        return -1;
      },
      last_);
  return last_;
}

// gloo matches a send with a receive by tag. That of the data is computed from type and size, so that nothing is moved
// between tensors that differ; headers with both go in both directions, so that neither rank waits for such a tensor.
struct Agreement::Header {
  at::Tensor mine, theirs;
  int data, there, back;
};

Agreement::Header Agreement::header(const at::Tensor& tensor, at::ScalarType dtype, int tag) {
  {
    std::lock_guard<std::mutex> lock(failure_->mutex);
    if (failure_->error) std::rethrow_exception(failure_->error);
  }
  const auto mine = numbers({static_cast<int64_t>(dtype), tensor.numel()});
  const auto key = std::to_string(tag) + " " + std::to_string(static_cast<int>(dtype)) + " " + std::to_string(tensor.numel());
  const auto base = static_cast<int>(tag % TAGS);
  return {
      mine, at::full_like(mine, -1), static_cast<int>(std::hash<std::string>{}(key) % TAGS),
      base + static_cast<int>(TAGS), base + static_cast<int>(2 * TAGS)};
}

WorkPtr Agreement::send(const at::Tensor& tensor, at::ScalarType dtype, int peer, int tag) {
  const auto header = this->header(tensor, dtype, tag);
  Tensors mine{header.mine}, theirs{header.theirs}, whole{tensor};
  auto there = gloo_->send(mine, peer, header.there), data = gloo_->send(whole, peer, header.data);
  auto back = gloo_->recv(theirs, peer, header.back);
  return HostWork::started(OpType::SEND, [=, self = *this]() mutable {
    there->wait();
    back->wait();
    if (!header.mine.equal(header.theirs)) self.differ(self.gloo_->getRank(), header.mine, peer, header.theirs);
    data->wait();
    return peer;
  });
}

WorkPtr Agreement::receive(const at::Tensor& tensor, at::ScalarType dtype, int peer, int tag) {
  const auto header = this->header(tensor, dtype, tag);
  Tensors mine{header.mine}, theirs{header.theirs}, whole{tensor};
  WorkPtr there, data, back;
  if (peer >= 0) {
    there = gloo_->recv(theirs, peer, header.there);
    data = gloo_->recv(whole, peer, header.data);
    back = gloo_->send(mine, peer, header.back);
  } else {
    there = gloo_->recvAnysource(theirs, header.there);
  }
  return HostWork::started(peer < 0 ? OpType::RECVANYSOURCE : OpType::RECV, [=, self = *this]() mutable {
    there->wait();
    if (peer < 0) {
      peer = there->sourceRank();
      back = self.gloo_->send(mine, peer, header.back);
    }
    back->wait();
    if (!header.mine.equal(header.theirs)) self.differ(peer, header.theirs, self.gloo_->getRank(), header.mine);
    (data ? data : self.gloo_->recv(whole, peer, header.data))->wait();
    return peer;
  });
}

void Agreement::differ(int sender, const at::Tensor& sent, int receiver, const at::Tensor& expected) {
  const auto given = values(sent), taken = values(expected);
  try {
    TORCH_CHECK(
        false, "a send and its receive differ: rank ", sender, " sends ", given[1], " bytes of ", name_of(given[0]),
        "; rank ", receiver, " receives ", taken[1], " bytes of ", name_of(taken[0]));
  } catch (...) {
    std::lock_guard<std::mutex> lock(failure_->mutex);  // what was sent ahead could meet a later receive
    if (!failure_->error) failure_->error = std::current_exception();
    throw;
  }
}

} // namespace accel_sim
