// Checks on the CPU: a pass that only asks whether anything is wrong, and where it is, a search.
#include <algorithm>

#include "kernels/check/launch.h"
#include "kernels/check/params.h"
#include "kernels/common/cpu_types.h"

namespace aicf {
namespace {

using namespace cpu;

// Writes the status, which may be the memory of the one before.
Status write_status(const OpDesc& op, int64_t code, int64_t position, int64_t what) {
  const int64_t status[kStatusNumbers] = {code, position, what};
  std::copy_n(status, kStatusNumbers, op.out("status").ptr<int64_t>());
  return Status::ok();
}

// A failed status is handed on.
bool failed_before(const OpDesc& op) {
  const int64_t* before = elements<int64_t>(op.in("status"));
  if (before[0] == 0) return false;
  std::copy_n(before, kStatusNumbers, op.out("status").ptr<int64_t>());
  return true;
}

template <class T>
int64_t first_refused(const IndexBounds& bounds, const T* target, int64_t n) {
  bool any = false;
  for (int64_t i = 0; i < n; ++i) any |= bounds.refuses(target[i]);
  if (!any) return n;
  return std::find_if(target, target + n, [&](T index) { return bounds.refuses(index); }) - target;
}

// The position of the first refused index, or -1, and what stands there.
template <class T>
int64_t first_refused(const IndexBounds& bounds, const TensorDesc& target, int64_t* what) {
  const T* indices = elements<T>(target);
  Rows rows;
  rows_of(target, &rows);
  for (int64_t first = 0; first < rows.count; first += rows.inner) {
    const T* row = indices + rows.place(first);
    int64_t at = rows.step == 1 ? first_refused(bounds, row, rows.inner) : 0;
    if (rows.step != 1)
      while (at < rows.inner && !bounds.refuses(row[at * rows.step])) ++at;
    if (at == rows.inner) continue;
    *what = static_cast<int64_t>(row[at * rows.step]);
    return first + at;
  }
  return -1;
}

int64_t first_refused_index(const IndexBounds& bounds, const TensorDesc& target, int64_t* what) {
  if (target.dtype == DType::I64) return first_refused<int64_t>(bounds, target, what);
  if (target.dtype == DType::I32) return first_refused<int32_t>(bounds, target, what);
  return first_refused<uint8_t>(bounds, target, what);  // i1
}

template <class Bits>
int64_t first_not_finite(const FloatBits& format, const Bits* x, int64_t n) {
  const Bits exponent = static_cast<Bits>(format.exponent);
  bool any = false;
  for (int64_t i = 0; i < n; ++i) any |= (x[i] & exponent) == exponent;
  if (!any) return n;
  return std::find_if(x, x + n, [=](Bits bits) { return (bits & exponent) == exponent; }) - x;
}

int64_t first_not_finite(const FloatBits& format, const TensorDesc& x) {
  const int64_t n = x.numel();
  if (format.bytes == 8) return first_not_finite(format, elements<uint64_t>(x), n);
  if (format.bytes == 4) return first_not_finite(format, elements<uint32_t>(x), n);
  return first_not_finite(format, elements<uint16_t>(x), n);
}

}  // namespace

Status check_index_cpu(const OpDesc& op, const LaunchContext&) {
  if (failed_before(op)) return Status::ok();
  const Tensors targets = op.ins("target");
  for (size_t i = 0; i < targets.size(); ++i) {
    int64_t what = 0;
    const int64_t at = first_refused_index(IndexBounds(op, i), targets[i], &what);
    if (at >= 0) return write_status(op, op.attrs.get(kCode) + static_cast<int64_t>(i), at, what);
  }
  return write_status(op, 0, 0, 0);
}

Status check_finite_cpu(const OpDesc& op, const LaunchContext&) {
  if (failed_before(op)) return Status::ok();
  const Tensors tensors = op.ins("x");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorDesc& x = tensors[i];
    const FloatBits format(x.dtype);
    const int64_t at = first_not_finite(format, x);
    if (at == x.numel()) continue;
    const int64_t code = op.attrs.get(kCode) + static_cast<int64_t>(i);
    return write_status(op, code, at, format.kind(format.at(x.data, at)));
  }
  return write_status(op, 0, 0, 0);
}

Status check_ranks_cpu(const OpDesc& op, const LaunchContext&) {
  const TensorDesc& of_ranks = op.in("of_ranks");
  const int64_t *statuses = elements<int64_t>(of_ranks), *first = nullptr;
  int64_t ahead = 0;
  for (int64_t rank = 0; rank < of_ranks.shape[0]; ++rank) {
    const int64_t* of = statuses + rank * kStatusNumbers;
    if (of[0] == 0 || (first && of[0] >= first[0])) continue;
    first = of;
    ahead = rank * op.attrs.get(kCode);
  }
  return first ? write_status(op, first[0] + ahead, first[1], first[2]) : write_status(op, 0, 0, 0);
}

}  // namespace aicf
