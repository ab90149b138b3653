// scan on CUDA. Where n has neighbours (rows) a warp or a block walks it; else a thread does, beside those of
// the other columns. Few and long ones are divided: the states of all chunks are found first. The order in
// which states are joined follows from the shape.
#pragma once
#include "kernels/scan/rows.cuh"

namespace aicf::cuda {

constexpr int kScanThreads = 256;

// A thread has a chunk of a column: states[outer][chunk][column].
template <class Given>
__global__ void __launch_bounds__(kScanThreads)
    scan_columns_kernel(Given given, int64_t items, int64_t chunk, int64_t chunks,
                        typename Given::Rule::State* states, bool writes, const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  using Rule = typename Given::Rule;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kScanThreads + threadIdx.x;
  if (item >= items) return;
  const int64_t column = item % given.inner, number = item / given.inner % chunks;
  const int64_t first = item / given.inner / chunks * given.n * given.inner + column;
  auto state = writes && number > 0 ? states[item - given.inner] : Rule::none();
  const int64_t end = min(given.n, (number + 1) * chunk);
#pragma unroll 4
  for (int64_t step = number * chunk; step < end; ++step) {
    const int64_t place = given.place(step), at = first + place * given.inner;
    typename Given::Element factor{};
    if constexpr (Rule::kHasFactor) factor = given.factor[at];
    state = Rule::joined(state, Given::begun(given.x[at], factor, place));
    if (writes) given.y[at] = Given::result(state);
  }
  if (!writes) states[item] = state;
}

// Each state joined with those of the chunks in front.
template <class Rule>
__global__ void __launch_bounds__(kScanThreads)
    join_states_kernel(typename Rule::State* states, int64_t columns, int64_t inner, int64_t chunks,
                       const int64_t* predicate) {
  dependency_wait();
  if (skipped(predicate)) return;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kScanThreads + threadIdx.x;
  if (item >= columns) return;
  auto* own = states + item / inner * chunks * inner + item % inner;
  auto state = Rule::none();
#pragma unroll 8
  for (int64_t number = 0; number < chunks; ++number) {
    state = Rule::joined(state, own[number * inner]);
    own[number * inner] = state;
  }
}

inline unsigned scan_blocks(int64_t items, int64_t each) {
  return static_cast<unsigned>(ceil_div<int64_t>(items, each));
}

template <int kItems, class Given>
Status scan_rows(const Given& given, const ScanChunks& parts, int64_t rows,
                 typename Given::Rule::State* states, const LaunchContext& ctx) {
  const int threads = parts.warps == 1 ? kScanThreads : parts.warps * kWarp;
  const unsigned blocks = scan_blocks(rows * parts.chunks, threads / kWarp / parts.warps);
  for (const bool writes : {false, true})
    if (writes || parts.chunks > 1)
      AICF_TRY(launch(ctx, blocks, threads, 0, scan_rows_kernel<Given, kItems>, given, rows, parts.warps,
                      parts.chunk, parts.chunks, states, writes, ctx.predicate));
  return Status::ok();
}

template <class Given>
Status scan_columns(const Given& given, const ScanChunks& parts, int64_t columns,
                    typename Given::Rule::State* states, const LaunchContext& ctx) {
  const int64_t items = columns * parts.chunks;
  for (const bool writes : {false, true}) {
    if (!writes && parts.chunks == 1) continue;
    AICF_TRY(launch(ctx, scan_blocks(items, kScanThreads), kScanThreads, 0, scan_columns_kernel<Given>, given,
                    items, parts.chunk, parts.chunks, states, writes, ctx.predicate));
    if (!writes)
      AICF_TRY(launch(ctx, scan_blocks(columns, kScanThreads), kScanThreads, 0,
                      join_states_kernel<typename Given::Rule>, states, columns, given.inner, parts.chunks,
                      ctx.predicate));
  }
  return Status::ok();
}

template <class Rule, class T>
Status scan_with(const Scan& s, const LaunchContext& ctx) {
  using Y = std::conditional_t<Rule::kIsPlace, int64_t, T>;
  using Given = Elements<Rule, T, Y>;
  const Given given{static_cast<const T*>(s.x),
                    static_cast<const T*>(s.factor),
                    static_cast<Y*>(s.y),
                    s.n,
                    s.inner,
                    s.reverse};
  auto* states = static_cast<typename Rule::State*>(ctx.workspace);
  const ScanChunks parts(s);
  if (s.inner > 1) return scan_columns(given, parts, s.outer * s.inner, states, ctx);
  if (parts.items == 2) return scan_rows<2>(given, parts, s.outer, states, ctx);
  if (parts.items == 4) return scan_rows<4>(given, parts, s.outer, states, ctx);
  return scan_rows<8>(given, parts, s.outer, states, ctx);
}

template <class T>
Status scan_numbers(const Scan& s, const LaunchContext& ctx) {
  return with_rule<Value<T>>(s.kind,
                             [&](auto tag) { return scan_with<typename decltype(tag)::type, T>(s, ctx); });
}

}  // namespace aicf::cuda
