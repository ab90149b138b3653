#include "kernels/gemm/tiles.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "kernels/gemm/device/panel_shapes.h"
#include "kernels/gemm/device/short_shapes.h"

namespace aicf {
namespace {

template <class Shape>
ProductTile tile(const char* header, const char* product, const char* format, const char* shape,
                 int neighbours, bool trans_a, bool trans_b) {
  using gemm::SharedMemory;
  const int shared =
      trans_a
          ? (trans_b ? SharedMemory<Shape, true, true>::kBytes : SharedMemory<Shape, true, false>::kBytes)
          : (trans_b ? SharedMemory<Shape, false, true>::kBytes : SharedMemory<Shape, false, false>::kBytes);
  return {header,    product,         format,           shape,  Shape::BM,
          Shape::BN, Shape::kThreads, Shape::kResident, shared, neighbours};
}

#define TILE(header, product, format, shape, neighbours) \
  tile<gemm::shape>("kernels/gemm/device/" header, product, format, #shape, neighbours, trans_a, trans_b)
#define REGISTER_GROUP_TILE(shape) TILE("register_groups.cuh", "RegisterGroupProduct", "F32", shape, 4)
#define TENSOR_CORE_TILE(shape, neighbours) \
  TILE("tensor_cores.cuh", "TensorCoreProduct", format, shape, neighbours)
#define TENSOR_CORE_TILES(name, neighbours)                                               \
  TENSOR_CORE_TILE(name##128x256, neighbours), TENSOR_CORE_TILE(name##128, neighbours),   \
      TENSOR_CORE_TILE(name##128x64, neighbours), TENSOR_CORE_TILE(name##64, neighbours), \
      TENSOR_CORE_TILE(name##32, neighbours)
#define PANEL_TILE(header, product, format, shape) \
  TILE(header, product, format, shape, gemm::shape::kNeighbours)
#define TENSOR_PANEL_TILE(shape) PANEL_TILE("tensor_panels.cuh", "TensorPanelProduct", format, shape)
#define REGISTER_PANEL_TILE(shape) PANEL_TILE("register_panels.cuh", "RegisterPanelProduct", "F32", shape)

constexpr int64_t kMultiprocessors = 132, kEnough = 128;  // of a large chip; blocks for nearly all of them
constexpr TileSize kSmallestRegisterTile = kRegisterTiles[std::size(kRegisterTiles) - 1];
constexpr TileSize kSmallest = kTensorCoreTiles[std::size(kTensorCoreTiles) - 1];
constexpr int64_t kShortest = 64;  // terms of two steps of a tile of 32 x 32, which start together
// Those of 16 divide k inside of a block.
constexpr TileSize kSmallestDivisible = kTensorCoreTiles[std::size(kTensorCoreTiles) - 2];

// Whether a result of panels should have those of 32 columns: sums of k terms are short, and there are
// enough.
bool takes_wide_panels(int64_t m, int64_t n, int64_t k, int64_t batch) {
  constexpr int64_t kShort = 128, kFew = 32;
  return k > 0 && k <= kShort && n > 16 && tiles_of({16, 32}, m, n) * batch >= kFew;
}

bool too_large(TileSize tile, int64_t m, int64_t n) {
  const auto too_long = [](int side, int64_t extent) { return side > 64 && side >= 2 * extent; };
  return too_long(tile.rows, m) || too_long(tile.columns, n);
}

}  // namespace

int64_t tiles_of(TileSize tile, int64_t m, int64_t n) {
  const int64_t across = n > 0 ? (n + tile.columns - 1) / tile.columns : 1;  // one for the sums of a's rows
  return (m + tile.rows - 1) / tile.rows * across;
}

bool tiles_fill(TileSize tile, int64_t m, int64_t n, int64_t batch) {
  return tiles_of(tile, m, n) * batch >= kEnough;
}

bool has_short_sums(int64_t m, int64_t n, int64_t k, int64_t batch) {
  using gemm::ShortSums;
  // Of fewer columns most threads of a warp would have none.
  return k <= ShortSums::BK && 2 * n >= ShortSums::BN &&
         tiles_fill({ShortSums::BM, ShortSums::BN}, m, n, batch);
}

TileSize tensor_core_tile(int64_t m, int64_t n, int64_t batch) {
  for (const TileSize& tile : kTensorCoreTiles)
    if (tiles_fill(tile, m, n, batch) && !too_large(tile, m, n)) return tile;
  return kSmallest;
}

TileSize register_tile(int64_t m, int64_t n, int64_t batch, int64_t k) {
  // What a multiprocessor takes for a tile, beside the first: seen on an H200, whose launches last as many of
  // these as a multiprocessor has tiles. Larger ones read less for each product. Of short sums it waits more
  // than it computes, and two tiles of 64 x 32, which it has at once, take little more than one.
  constexpr int64_t kTimes[] = {100, 53, 30, 21}, kTwo = 2, kTimeOfTwo = 50, kShort = 64;
  TileSize best = kSmallestRegisterTile;
  if (!tiles_fill(kRegisterTiles[std::size(kTimes) - 1], m, n, batch)) return best;
  int64_t least = INT64_MAX;
  for (size_t i = 0; i < std::size(kTimes); ++i) {
    const int64_t tiles = tiles_of(kRegisterTiles[i], m, n) * batch;
    const int64_t rounds = (tiles + kMultiprocessors - 1) / kMultiprocessors;
    int64_t time = rounds * kTimes[i];
    if (i == kTwo && k > 0 && k <= kShort)
      time = std::min(time, (tiles + 2 * kMultiprocessors - 1) / (2 * kMultiprocessors) * kTimeOfTwo);
    if (time >= least) continue;
    least = time;
    best = kRegisterTiles[i];
  }
  return best;
}

Division divided(TileSize tile, int64_t k, int64_t parts) {
  constexpr int64_t kSteps = 64;  // those of any tile; keeps parts aligned to 16 bytes
  const int64_t depth = (k + parts * kSteps - 1) / (parts * kSteps) * kSteps;
  return parts > 1 && k > depth ? Division{tile, (k + depth - 1) / depth, depth} : Division{tile, 1, k};
}

Division tensor_core_division(int64_t m, int64_t n, int64_t k, int64_t batch) {
  constexpr int64_t kLong = 2048, kShortestPart = 256, kMostly = kMultiprocessors * 3 / 4;
  if (batch != 1 || n == 0 || m == 0 || k < kLong || k < 8 * m || k < 8 * n)
    return {tensor_core_tile(m, n, batch), 1, k};
  const int64_t longest = k / kShortestPart;
  for (const TileSize& tile : kTensorCoreTiles) {
    if (tile.rows < kSmallestDivisible.rows || too_large(tile, m, n)) continue;
    const int64_t tiles = tiles_of(tile, m, n);
    for (const int64_t rounds : {1, 2}) {  // of blocks, all as long: those of the last one should be many too
      const int64_t parts = std::clamp<int64_t>(rounds * kMultiprocessors / tiles, 1, longest);
      if (tiles * parts >= rounds * kMostly) return divided(tile, k, parts);
    }
  }
  return divided(kSmallestDivisible, k, longest);
}

std::vector<ProductTile> product_tiles(DType dtype, int sm, int64_t n, int64_t k, bool trans_a, bool trans_b,
                                       bool allow_tf32) {
  const bool tf32 = dtype == DType::F32 && allow_tf32;
  if (sm >= kSmAsyncCopies && (dtype == DType::F16 || dtype == DType::BF16 || tf32)) {
    const char* format = dtype == DType::F16 ? "F16" : dtype == DType::BF16 ? "BF16" : "TF32";
    if (tf32)
      return {TENSOR_CORE_TILES(TF32Tensor, 4), TENSOR_PANEL_TILE(TF32TensorPanel16x32),
              TENSOR_PANEL_TILE(TF32TensorPanel16)};
    return {TENSOR_CORE_TILES(Tensor, 8), TENSOR_PANEL_TILE(TensorPanel16x32),
            TENSOR_PANEL_TILE(TensorPanel16)};
  }
  if (dtype == DType::F32 && sm >= kSmAsyncCopies) {
    std::vector<ProductTile> found = {REGISTER_GROUP_TILE(RegisterGroup128x64),
                                      REGISTER_GROUP_TILE(RegisterGroup64),
                                      REGISTER_GROUP_TILE(RegisterGroup64x32),
                                      TILE("registers.cuh", "RegisterProduct", "F32", Register32, 4),
                                      REGISTER_PANEL_TILE(RegisterPanel16x32),
                                      REGISTER_PANEL_TILE(RegisterPanel16x8),
                                      REGISTER_PANEL_TILE(RegisterPanel16)};
    if (k > 0 && k <= gemm::ShortSums::BK)
      found.push_back(TILE("short_sums.cuh", "ShortSumsProduct", "F32", ShortSums, gemm::ShortSums::TN));
    if (n == 1 && k > 0)
      found.push_back(PANEL_TILE("register_panels.cuh", "RegisterColumnProduct", "F32", RegisterPanel16));
    return found;
  }
  if (dtype == DType::F32) return {TILE("elements.cuh", "ElementProduct", "F32", Element16, 1)};
  if (dtype == DType::F64) return {TILE("elements.cuh", "ElementProduct", "F64", Element16, 1)};
  return {};
}

Status product_tile(DType dtype, int sm, int64_t m, int64_t n, int64_t k, int64_t batch, bool trans_a,
                    bool trans_b, bool allow_tf32, ProductTile* out) {
  const std::vector<ProductTile> all = product_tiles(dtype, sm, n, k, trans_a, trans_b, allow_tf32);
  if (all.empty())
    return Status::unsupported(std::string("there is no CUDA product of ") + dtype_name(dtype) + " for sm_" +
                               std::to_string(sm));
  const auto decide = [&](const std::string& product, TileSize size) {
    *out = *std::find_if(all.begin(), all.end(), [&](const ProductTile& tile) {
      return tile.product == product && tile.rows == size.rows && tile.columns == size.columns;
    });
    return Status::ok();
  };
  const bool wide_panels = takes_wide_panels(m, n, k, batch);
  const auto is_a_panel = [](TileSize size) { return size.rows == kSmallest.rows; };
  const TileSize panel = wide_panels ? TileSize{16, 32} : TileSize{16, 16};
  if (all[0].product == std::string("TensorCoreProduct")) {
    const TileSize size = tensor_core_tile(m, n, batch);
    return is_a_panel(size) ? decide("TensorPanelProduct", panel) : decide("TensorCoreProduct", size);
  }
  if (all.size() == 1) {
    *out = all[0];
    return Status::ok();
  }
  if (k > 0 && has_short_sums(m, n, k, batch))
    return decide("ShortSumsProduct", {gemm::ShortSums::BM, gemm::ShortSums::BN});
  const TileSize size = register_tile(m, n, batch, k);
  if (!is_a_panel(size)) {
    AICF_TRY(decide(size.rows == 32 ? "RegisterProduct" : "RegisterGroupProduct", size));
    // A block waits for the operands of short sums most of its time: of many, several at once take less.
    const bool many = tiles_of(size, m, n) * batch > 2 * kMultiprocessors;
    if (out->rows == 32 && many && k > 0 && k <= kShortest) out->resident = !trans_a && trans_b ? 3 : 4;
    return Status::ok();
  }
  if (n == 1 && k > 0) return decide("RegisterColumnProduct", {16, 16});
  // Of a b that lies along n a tile of 8 columns would read rows of 32 bytes.
  if (!wide_panels && k > 0 && trans_b && 2 * tiles_of({16, 16}, m, n) * batch <= kMultiprocessors)
    return decide("RegisterPanelProduct", {16, 8});
  return decide("RegisterPanelProduct", panel);
}

}  // namespace aicf
