// The product for small results, whose time is that of one block: see panel_shapes.h.
#pragma once
#include "kernels/gemm/device/panel_shapes.h"
#include "kernels/gemm/device/tiles.cuh"

namespace aicf::gemm {

// All THREADS of the block start copying an operand's part of a panel, W elements at a time: `extent` rows of
// op(a) or columns of op(b), `length` steps of k from the element `from` on, zeros behind them up to the next
// multiple of STEPS. What Tile has beyond stays as it is. The matrix has `pitch` elements from row to row;
// W > 1 needs it and its rows aligned to W elements.
template <class Tile, bool ALONG_K, int STEPS, int THREADS, int W, class T, class Pitch>
__device__ __forceinline__ void copy_panel(T* to, const T* from, Pitch pitch, int extent, int length) {
  constexpr int kAcross = Tile::kColumns / W, kAtOnce = THREADS / kAcross,
                kSize = static_cast<int>(sizeof(T));
  constexpr int kTurns = (Tile::kRows + kAtOnce - 1) / kAtOnce;
  static_assert(THREADS % kAcross == 0 && STEPS % W == 0, "a thread stays in its column");
  const int used = (length + STEPS - 1) / STEPS * STEPS;
  const int c = static_cast<int>(threadIdx.x % kAcross) * W, first = static_cast<int>(threadIdx.x / kAcross);
  const int rows = ALONG_K ? extent : used, there = (ALONG_K ? length : extent) - c;
  if (c >= (ALONG_K ? used : extent)) return;
  const T* source = from + first * pitch + c;
  T* target = to + first * Tile::kPitch + c;
  if constexpr (W > 1) {
    if (there > 0 && there < W) {  // the last ones of rows that do not end at a multiple of W
#pragma unroll 1
      for (int r = first; r < rows; r += kAtOnce, source += kAtOnce * pitch, target += kAtOnce * Tile::kPitch)
        copy_async<kSize * W>(target, source, ALONG_K || r < length ? there * kSize : 0);
      return;
    }
  }
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int r = first + turn * kAtOnce;
    const bool zeros = ALONG_K ? there <= 0 : r >= length;
    if (r < rows) {
      if constexpr (kSize * W >= 4) {
        copy_async_unless<kSize * W>(zeros, target, source);
      } else {
        *target = zeros ? T{} : *source;
      }
    }
    source += kAtOnce * pitch;
    target += kAtOnce * Tile::kPitch;
  }
}

// The sums of a's rows along k: the threads that share a row take turns in k. Those of a warp are added by
// halves, the warps from the first to the last.
template <class Format, class Shape, bool TRANS_A>
struct PanelTotals {
  using T = typename Format::Element;
  using Tile = typename SharedMemory<Shape, TRANS_A, false>::A;
  static constexpr int kShares = Shape::kThreads / Shape::BM;
  static_assert(Shape::BM <= 32 && Shape::BK % kShares == 0, "every thread sums as much of a row");

  float sum = 0;

  __device__ __forceinline__ void add(const T* panel, int length) {
    const int r = static_cast<int>(threadIdx.x % Shape::BM),
              share = static_cast<int>(threadIdx.x / Shape::BM);
#pragma unroll
    for (int first = 0; first < Shape::BK; first += kShares) {
      const int k = first + share;
      if (k < length) sum += Format::wide(panel[r * Tile::kAlongExtent + k * Tile::kAlongK]);
    }
  }

  // `scratch`: BM floats a warp of shared memory. `finish` comes behind a barrier behind `write`.
  __device__ __forceinline__ void write(float* scratch) const {
    float all = sum;
#pragma unroll
    for (int distance = Shape::BM; distance < 32; distance *= 2)
      all += __shfl_xor_sync(0xffffffffu, all, distance);
    if (threadIdx.x % 32 < Shape::BM) scratch[threadIdx.x / 32 * Shape::BM + threadIdx.x % 32] = all;
  }
  template <class P, class Place, class Totals>
  static __device__ __forceinline__ void finish(const P& p, const float* scratch, const Place& place,
                                                const Totals& totals) {
    const int r = static_cast<int>(threadIdx.x);
    if (r >= Shape::BM || place.row + r >= p.m) return;
    float total = scratch[r];
#pragma unroll
    for (int warp = 1; warp < Shape::kWarps; ++warp) total += scratch[warp * Shape::BM + r];
    totals(place.member, place.row + r, total);
  }
};

// Which block this is, and of how many: of a part of a grid that computes something else beside.
struct Blocks {
  unsigned index, count;
};

// What an epilogue reads beside the sums, where it has a type Early: `fetch` reads it in front of them, for
// they are worth waiting for, and both come at the same time. operator() takes it at its end then.
struct Nothing {};
template <class T>
constexpr bool kIsNothing = false;
template <>
constexpr bool kIsNothing<Nothing> = true;
template <class Epilogue, class = void>
struct EarlyOf {
  using Type = Nothing;
};
template <class Epilogue>
struct EarlyOf<Epilogue, Void<typename Epilogue::Early>> {
  using Type = typename Epilogue::Early;
};
template <class Epilogue, class Early>
struct WithEarly {
  const Epilogue& epilogue;
  const Early& early;
  template <int W>
  __device__ __forceinline__ void operator()(const Member& member, const float (&z)[W], long long row,
                                             long long column) const {
    if constexpr (kIsNothing<Early>)
      epilogue(member, z, row, column);
    else
      epilogue(member, z, row, column, early);
  }
};

// What a block reads before `wait`, which waits for the launch in front and says whether there is anything to
// do: operands that launches further in front have written. kEpilogue: the epilogue has a `fetch_ahead`,
// which reads a part of Early; `fetch` then reads the others. A block of such a launch has one tile.
struct NothingAhead {
  static constexpr bool kA = false, kB = false, kEpilogue = false, kAny = false;
};

// As TensorCoreProduct, with fewer than 2^31 rows, columns and tiles, as small results have. `Sums` are those
// of a thread: `add` the products of the first `length` steps of a panel, `write` them to the tile of the
// warp in shared memory.
template <class Sums, class Format, class Shape, bool TRANS_A, bool TRANS_B, int WA, int WB, int WZ>
struct PanelProduct {
  using T = typename Format::Element;
  using Shared = SharedMemory<Shape, TRANS_A, TRANS_B>;
  static constexpr int BM = Shape::BM, BN = Shape::BN, BK = Shape::BK;
  static_assert(Shape::STAGES == 2, "panels take turns in two places");

  struct Place {
    Member member;
    int row, column;  // of the tile's first element
  };

  // `p` is a Problem or a SmallProblem.
  template <class P, class Epilogue, class Totals, class Ahead = NothingAhead>
  static __device__ __forceinline__ void run(const P& p, const void* a, const void* b,
                                             const Epilogue& epilogue, const Totals& totals,
                                             unsigned char* shared,
                                             const Blocks& blocks = {blockIdx.x, gridDim.x},
                                             const Ahead& ahead = {}) {
    static_assert(!(Ahead::kA && sizeof(T) * WA != 16) && !(Ahead::kB && sizeof(T) * WB != 16),
                  "what is read ahead does not go through the first cache");
    T* panels = reinterpret_cast<T*>(shared);
    float* out = reinterpret_cast<float*>(shared);
    float* scratch = out + Shape::kParts * BM * Shape::kSumPitch;
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
    const unsigned across = n > 0 ? (n + BN - 1) / BN : 1, each = (m + BM - 1) / BM * across;
    const unsigned tiles = each * static_cast<unsigned>(p.batch);
    const unsigned steps = static_cast<unsigned>((p.k + BK - 1) / BK);
    const int tail =
        static_cast<int>(p.k - (steps - 1) * static_cast<decltype(p.k)>(BK));  // of the last panel

    for (unsigned index = blocks.index; index < tiles; index += blocks.count) {
      Member member = {0, 0};
      const T *next_a = static_cast<const T*>(a),
              *next_b = static_cast<const T*>(b);  // of the panel to be copied
      unsigned tile = index;
      if (p.batch != 1) {
        const unsigned in_batch = index / each;
        tile -= in_batch * each;
        member = p.member(in_batch);
        next_a += p.a.start(member);
        next_b += p.b.start(member);
      }
      const int row = static_cast<int>(tile / across) * BM, column = static_cast<int>(tile % across) * BN;
      next_a += TRANS_A ? row : row * p.a.leading;
      next_b += TRANS_B ? column * p.b.leading : column;
      const int rows = m - row < BM ? m - row : BM, columns = n - column < BN ? n - column : BN;
      const bool adds_rows = totals.wanted() && column == 0;

      // Those of the one element or word of neighbours that this thread has in finish_tile.
      constexpr int kAcross = BN / WZ;
      const int own_row = static_cast<int>(threadIdx.x) / kAcross, own_column = threadIdx.x % kAcross * WZ;
      using Early = typename EarlyOf<Epilogue>::Type;
      constexpr bool kFetches = !kIsNothing<Early>;
      static_assert(BM * kAcross <= Shape::kThreads || !kFetches, "a thread has one");
      const bool has_own = own_row < rows && own_column < columns;
      Early early;

      // Starts copying panel `step` of an operand.
      const auto copy_a = [&](unsigned step) {
        copy_panel<typename Shared::A, !TRANS_A, Shape::kSteps, Shape::kThreads, WA>(
            panels + step % 2 * Shared::kStage, next_a, p.a.leading, rows, step == steps - 1 ? tail : BK);
        next_a += TRANS_A ? BK * p.a.leading : BK;
      };
      const auto copy_b = [&](unsigned step) {
        if (n > 0)  // or only totals are asked for: b holds nothing
          copy_panel<typename Shared::B, TRANS_B, Shape::kSteps, Shape::kThreads, WB>(
              panels + step % 2 * Shared::kStage + Shared::A::kElements, next_b, p.b.leading, columns,
              step == steps - 1 ? tail : BK);
        next_b += TRANS_B ? BK : BK * p.b.leading;
      };
      if constexpr (Ahead::kAny) {
        if constexpr (Ahead::kA) {
          if (steps > 0) copy_a(0);
          if (steps > 1) copy_a(1);
        }
        if constexpr (Ahead::kB) {
          if (steps > 0) copy_b(0);
          if (steps > 1) copy_b(1);
        }
        if constexpr (Ahead::kEpilogue) {
          if (has_own) epilogue.fetch_ahead(member, row + own_row, column + own_column, early);
        }
        if (!ahead.wait()) {
          commit_copies();
          wait_copies<0>();
          return;
        }
      }

      Sums sums;
      PanelTotals<Format, Shape, TRANS_A> of_rows;
#pragma unroll 1
      for (unsigned step = 0; step <= steps; ++step) {  // copies panel `step`, multiplies the one before
        if (step >= 2) __syncthreads();                 // the panel before that one is done with
        if (step < steps) {
          if (!Ahead::kA || step >= 2) copy_a(step);
          if (!Ahead::kB || step >= 2) copy_b(step);
        }
        commit_copies();  // an empty group too: wait_copies counts groups
        if (step == 0) {
          if constexpr (kFetches)
            if (has_own) epilogue.fetch(member, row + own_row, column + own_column, early);
          continue;
        }
        wait_copies<1>();
        __syncthreads();  // the panel before is there for all
        const T* panel = panels + (step - 1) % 2 * Shared::kStage;
        const int length = step == steps ? tail : BK;
        sums.add(panel, length);
        if (adds_rows) of_rows.add(panel, length);
      }

      __syncthreads();  // the panels become the sums
      sums.write(out);
      if (adds_rows) of_rows.write(scratch);
      __syncthreads();
      const Place place{member, row, column};
      finish_tile<Shape, WZ>(p, out, place, 0, WithEarly<Epilogue, Early>{epilogue, early});
      if (adds_rows) of_rows.finish(p, scratch, place, totals);
      if constexpr (Ahead::kAny) return;
      __syncthreads();  // before the next tile overwrites the sums
    }
  }
};

}  // namespace aicf::gemm
