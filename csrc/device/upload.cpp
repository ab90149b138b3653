#include "device/upload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/pool.h"

namespace aicf {

StagedUpload::StagedUpload(std::unique_ptr<UploadLane> lane, std::vector<UploadTarget> targets)
    : lane_(std::move(lane)), targets_(std::move(targets)), where_(targets_.size(), Source::Direct) {
  for (const UploadTarget& target : targets_) {
    offsets_.push_back(set_bytes_);
    set_bytes_ += (target.bytes + kPlannedAlignment - 1) / kPlannedAlignment * kPlannedAlignment;
  }
}

Status StagedUpload::load(const std::vector<const void*>& sources, void* stream) {
  bool direct = true;
  for (size_t i = 0; i < targets_.size(); ++i) {
    AICF_TRY(lane_->where(sources[i], targets_[i].bytes, &where_[i]));
    direct = direct && where_[i] == Source::Direct;
  }
  if (!direct) {
    const Status status = load_staged(sources, stream);
    // What was begun may still read the memory of the caller and write that of the set.
    if (!status.is_ok()) (void)lane_->finish();
    return status;
  }
  for (size_t i = 0; i < targets_.size(); ++i) AICF_TRY(take(i, sources[i], stream));
  return Status::ok();
}

Status StagedUpload::take(size_t i, const void* source, void* stream) {
  if (source == targets_[i].data) return Status::ok();  // the caller has written it in place
  return lane_->take(targets_[i].data, source, targets_[i].bytes, stream);
}

Status StagedUpload::load_staged(const std::vector<const void*>& sources, void* stream) {
  const auto any = [this](Source what) { return std::count(where_.begin(), where_.end(), what) != 0; };
  AICF_TRY(reserve(any(Source::Pageable)));
  const int set = set_;
  char* const staging = staging_ + static_cast<size_t>(set) * set_bytes_;
  char* const pinned = pinned_ ? pinned_ + static_cast<size_t>(set) * set_bytes_ : nullptr;
  if (any(Source::Pageable)) AICF_TRY(lane_->finish_sent(set));  // the pinned memory is read no more
  AICF_TRY(lane_->wait_taken(set));
  for (size_t i = 0; i < targets_.size(); ++i) {
    const size_t bytes = targets_[i].bytes, offset = offsets_[i];
    const char* const source = static_cast<const char*>(sources[i]);
    if (where_[i] == Source::Pinned) AICF_TRY(lane_->send(staging + offset, source, bytes));
    if (where_[i] == Source::Pageable)
      AICF_TRY(send_pageable(staging + offset, pinned + offset, source, bytes));
  }
  AICF_TRY(lane_->mark_sent(set));
  AICF_TRY(lane_->wait_sent(set, stream));
  for (size_t i = 0; i < targets_.size(); ++i) {
    const void* const source = where_[i] == Source::Direct ? sources[i] : staging + offsets_[i];
    AICF_TRY(take(i, source, stream));
  }
  AICF_TRY(lane_->mark_taken(set, stream));
  set_ = (set + 1) % UploadLane::kSets;
  return any(Source::Pinned) ? lane_->finish_sent(set) : Status::ok();
}

Status StagedUpload::reserve(bool pinned) {
  const size_t bytes = set_bytes_ * UploadLane::kSets;
  if (!staging_) AICF_TRY(lane_->allocate_staging(bytes, &staging_));
  if (pinned && !pinned_) AICF_TRY(lane_->allocate_pinned(bytes, &pinned_));
  return Status::ok();
}

Status StagedUpload::send_pageable(char* staging, char* pinned, const char* source, size_t bytes) {
  for (size_t begin = 0; begin < bytes; begin += kPiece) {
    const size_t piece = std::min(kPiece, bytes - begin);
    run_in_pool(static_cast<int64_t>(piece), kGrain, [&](int64_t from, int64_t to) {
      std::memcpy(pinned + begin + from, source + begin + from, static_cast<size_t>(to - from));
    });
    AICF_TRY(lane_->send(staging + begin, pinned + begin, piece));
  }
  return Status::ok();
}

}  // namespace aicf
