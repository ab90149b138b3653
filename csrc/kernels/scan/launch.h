// Launchers of scan, and what they know of a use.
#pragma once
#include <algorithm>

#include "op/variant.h"

namespace aicf {

enum class Scans : int64_t { Sum, Prod, LogAddExp, Linear, ExpLinear, SegmentSum, ArgMax, ArgMin };
inline Names names_of(Scans) {
  static const std::vector<const char*> names = {"sum",        "prod",        "logaddexp", "linear",
                                                 "exp_linear", "segment_sum", "argmax",    "argmin"};
  return names;
}
inline bool takes_factor(Scans kind) {
  return kind == Scans::Linear || kind == Scans::ExpLinear || kind == Scans::SegmentSum;
}
inline bool gives_places(Scans kind) { return kind == Scans::ArgMax || kind == Scans::ArgMin; }

constexpr Attr<Scans> kKind{"kind", std::nullopt};
constexpr Attr<int64_t> kDim{"dim", std::nullopt};
constexpr Attr<bool> kReverse{"reverse", false};

// x, factor and y are [outer, n, inner], and n is walked, from its end where `reverse`.
struct Scan {
  DType dtype;
  Scans kind;
  bool reverse;
  int64_t outer, n, inner;
  const void *x, *factor;  // factor: where takes_factor
  void* y;
};

inline Scan scan_of(const OpDesc& op) {
  const TensorDesc& x = op.in("x");
  const auto dim = static_cast<int>(op.attrs.get(kDim));
  Scan s;
  s.dtype = x.dtype;
  s.kind = op.attrs.get(kKind);
  s.reverse = op.attrs.get(kReverse);
  s.outer = s.inner = 1;
  s.n = x.shape[dim];
  for (int d = 0; d < dim; ++d) s.outer *= x.shape[d];
  for (int d = dim + 1; d < x.rank; ++d) s.inner *= x.shape[d];
  s.x = x.data;
  s.factor = op.has_in("factor") ? op.in("factor").data : nullptr;
  s.y = op.outputs[0].data;
  return s;
}

// How the launches of CUDA divide a scan: a row is walked by `warps` of `items` elements a lane at once.
struct ScanChunks {
  static constexpr int kWarpLanes = 32, kMostWarps = 16, kMostItems = 8;
  static constexpr int64_t kMostChunks = 512;  // of all rows
  int items = kMostItems, warps = 1;           // of rows only
  int64_t chunk, chunks;                       // of n

  explicit ScanChunks(const Scan& s) : chunk(s.n), chunks(1) {
    if (s.inner == 1)
      divide_rows(s);
    else
      divide_columns(s);
  }

 private:
  // Many rows keep a chip busy with a warp each; few ones need more threads.
  void divide_rows(const Scan& s) {
    constexpr int64_t kShort = 1024, kManyRows = 2048, kTile = kMostWarps * kMostItems * kWarpLanes;
    constexpr int64_t kTiles = 4;  // take as long as a further launch
    const bool is_short = s.n <= kShort, is_many = s.outer >= kManyRows;
    if (is_short) items = s.n <= 2 * kWarpLanes ? 2 : s.n <= 4 * kWarpLanes || !is_many ? 4 : kMostItems;
    const int64_t part = items * kWarpLanes;
    if (!is_short || !is_many)
      warps = static_cast<int>(std::min<int64_t>(kMostWarps, (s.n + part - 1) / part));
    if (s.n > kTiles * kTile)
      divide(s.n, std::min(kMostChunks / std::max<int64_t>(s.outer, 1), (s.n + kTile - 1) / kTile), kTile);
  }
  void divide_columns(const Scan& s) {
    constexpr int64_t kThreads = 1 << 16;
    int64_t root = 1;
    while (root * root < s.n) ++root;
    divide(s.n, std::min(kThreads / std::max<int64_t>(s.outer * s.inner, 1), root), 1);
  }
  // Chunks of a multiple of `unit`.
  void divide(int64_t n, int64_t wanted, int64_t unit) {
    if (wanted <= 1) return;
    chunk = ((n + wanted - 1) / wanted + unit - 1) / unit * unit;
    chunks = (n + chunk - 1) / chunk;
  }
};

size_t scan_cuda_workspace(const OpDesc& op);  // bytes

Status scan_cpu(const Scan& s, const LaunchContext& ctx);
Status scan_cuda(const Scan& s, const LaunchContext& ctx);

}  // namespace aicf
