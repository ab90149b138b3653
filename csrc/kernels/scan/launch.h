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

// How the launches of CUDA divide a scan.
struct ScanChunks {
  static constexpr int64_t kOfWarp = 1024;  // elements of a row
  static constexpr int64_t kTile = 1024;    // elements that a block walks at once
  int64_t chunk, chunks;                    // of n

  explicit ScanChunks(const Scan& s) : chunk(s.n), chunks(1) {
    constexpr int64_t kBlocks = 512, kThreads = 1 << 16, kShortest = 4 * kTile;
    int64_t wanted = 1;
    if (s.inner == 1 && s.n > kOfWarp) {
      wanted = std::min(kBlocks / std::max<int64_t>(s.outer, 1), s.n / kShortest);
    } else if (s.inner > 1) {
      int64_t root = 1;
      while (root * root < s.n) ++root;
      wanted = std::min(kThreads / std::max<int64_t>(s.outer * s.inner, 1), root);
    }
    if (wanted <= 1) return;
    chunk = (s.n + wanted - 1) / wanted;
    if (s.inner == 1) chunk = (chunk + kTile - 1) / kTile * kTile;
    chunks = (s.n + chunk - 1) / chunk;
  }
};

size_t scan_cuda_workspace(const OpDesc& op);  // bytes

Status scan_cpu(const Scan& s, const LaunchContext& ctx);
Status scan_cuda(const Scan& s, const LaunchContext& ctx);

}  // namespace aicf
