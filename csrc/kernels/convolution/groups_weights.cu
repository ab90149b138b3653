// Gradients of the weights of convolutions whose groups have few channels. A thread adds, for kChain
// positions that share elements, what its windows give; a second launch adds the sums of the blocks in order.
#include "kernels/convolution/groups.cuh"

namespace aicf {
namespace {

using namespace cuda;

constexpr int kSumLanes = 8, kSumColumns = kGroupThreads / kSumLanes;

// Which channels and positions an item has.
struct Item {
  int vector, height, depth, first;  // first: the position along the line

  __device__ __forceinline__ Item(const GroupWeights& c, int number) {
    depth = number;
    vector = c.vectors.remainder(depth);
    int strip = c.strips.remainder(depth);
    height = c.height.remainder(depth);
    const int own = c.classes.remainder(strip);
    first = own + c.step * kChain * strip;
  }
};

template <class T, class Lanes>
__global__ void __launch_bounds__(kGroupThreads, kGroupBlocks)
    group_weights_kernel(const __grid_constant__ GroupWeights c, const T* x, const T* dy, float* partial) {
  dependency_wait();
  constexpr int kOutputs = Lanes::kGroups * Lanes::kResults, kInputs = Lanes::kGroups * Lanes::kSources;
  constexpr int kSums = kOutputs * Lanes::kSources;
  __shared__ float of_threads[kSums][kGroupThreads];
  const int thread = threadIdx.x, beside = thread / c.block_items;
  const int number = blockIdx.x * c.block_items + thread % c.block_items;
  const bool is_there = number < c.items && beside < c.beside;
  const Item item(c, is_there ? number : 0);
  int output = item.vector * kOutputs, input = item.vector * kInputs;
  if (Lanes::kAny) {
    output = item.vector;
    const int own = c.pairs.remainder(output);
    input = output / c.outputs * c.channels + own;
  }
  float sums[kChain][kSums] = {};
  const int x_step = c.groups * c.channels, y_step = c.groups * c.outputs;
  const int end = is_there ? min((blockIdx.y + 1) * c.block_lines, static_cast<unsigned>(c.lines)) : 0;
  for (int line = blockIdx.y * c.block_lines + beside; line < end; line += c.beside) {
    int image = line;
    const int part = c.parts.remainder(image), row = image;
    const int h = c.line_height.remainder(image), d = c.line_depth.remainder(image);
    const int from_d = d * c.stride[0] + item.depth * c.dilation[0] - c.low[0];
    const int from_h = h * c.stride[1] + item.height * c.dilation[1] - c.low[1];
    if (static_cast<unsigned>(from_d) >= static_cast<unsigned>(c.in[0]) ||
        static_cast<unsigned>(from_h) >= static_cast<unsigned>(c.in[1]))
      continue;
    const int from = (image * c.in[0] + from_d) * c.in[1] + from_h;
    const int elements = from * c.in[2] * x_step + input;
    const int windows = row * c.out[2] * y_step + output;
    for (int own = 0; own < min(c.apart, c.out[2]); ++own) {
      const int at = own + part * c.part * c.apart;
      const int count = min((c.out[2] - at + c.apart - 1) / c.apart, c.part);
      if (count <= 0) continue;
      const int begin = at * c.stride[2] + item.first * c.dilation[2] - c.low[2];
      Passing<T, kInputs> passing(x, elements, x_step, c.in[2], begin, c.unit);
      unsigned place = windows + at * y_step;
      for (int j = 0; j < count; j += kChain) {
        passing.read(count - j);
        Channels<T, kOutputs> read[kChain];
#pragma unroll
        for (int i = 0; i < kChain; ++i, place += c.apart * y_step) read[i].read(dy + place, j + i < count);
#pragma unroll
        for (int i = 0; i < kChain; ++i) {
          if (j + i >= count) break;
          passing.step(i);
          float given[kOutputs];
#pragma unroll
          for (int o = 0; o < kOutputs; ++o) given[o] = read[i].widened(o);
#pragma unroll
          for (int t = 0; t < kChain; ++t)
#pragma unroll
            for (int o = 0; o < kOutputs; ++o)
#pragma unroll
              for (int s = 0; s < Lanes::kSources; ++s)
                sums[t][o * Lanes::kSources + s] +=
                    given[o] * passing.at(i, t)[o / Lanes::kResults * Lanes::kSources + s];
        }
      }
    }
  }
  float* to = partial + static_cast<int64_t>(blockIdx.y) * c.sums * c.items + blockIdx.x * c.block_items;
  const int items = min(c.block_items, static_cast<int>(c.items - blockIdx.x * c.block_items));
#pragma unroll
  for (int t = 0; t < kChain; ++t, to += static_cast<int64_t>(kSums) * c.items) {
    __syncthreads();  // those of the position before have been read
#pragma unroll
    for (int i = 0; i < kSums; ++i) of_threads[i][thread] = sums[t][i];
    __syncthreads();
    for (int n = thread; n < kSums * c.block_items; n += static_cast<int>(blockDim.x)) {
      const int i = n / c.block_items, own = n % c.block_items;
      if (own >= items) continue;
      float sum = of_threads[i][own];
      for (int other = 1; other < c.beside; ++other) sum += of_threads[i][other * c.block_items + own];
      to[static_cast<int64_t>(i) * c.items + own] = sum;
    }
  }
}

// Sum `number` of all blocks, and which weight it is.
template <class T, class Lanes>
__global__ void __launch_bounds__(kGroupThreads)
    group_weights_sum_kernel(const __grid_constant__ GroupWeights c, const float* partial, T* dw) {
  dependency_wait();
  constexpr int kSums = Lanes::kGroups * Lanes::kResults * Lanes::kSources;
  __shared__ float of_lanes[kSumLanes][kSumColumns];
  const int column = threadIdx.x % kSumColumns, lane = threadIdx.x / kSumColumns;
  const int64_t all = static_cast<int64_t>(c.sums) * c.items;
  const int64_t number = static_cast<int64_t>(blockIdx.x) * kSumColumns + column;
  float sum = 0;
  if (number < all) {
#pragma unroll 8
    for (int block = lane; block < c.blocks; block += kSumLanes) sum += partial[block * all + number];
  }
  of_lanes[lane][column] = sum;
  __syncthreads();
  if (lane > 0 || number >= all) return;
#pragma unroll
  for (int other = 1; other < kSumLanes; ++other) sum += of_lanes[other][column];
  const int own = static_cast<int>(number / c.items);
  const Item item(c, static_cast<int>(number % c.items));
  const int position = item.first + own / kSums * c.step;
  if (position >= c.kernel[2]) return;
  int output = item.vector, channel = 0;
  if (Lanes::kAny) {
    channel = c.pairs.remainder(output);
  } else {
    output = item.vector * Lanes::kGroups * Lanes::kResults + own % kSums / Lanes::kSources;
    channel = own % Lanes::kSources;
  }
  const int64_t row = (static_cast<int64_t>(output) * c.kernel[0] + item.depth) * c.kernel[1] + item.height;
  dw[(row * c.kernel[2] + position) * c.channels + channel] = narrow<T>(sum);
}

}  // namespace

Status group_weights(const GroupWeights& c, const LaunchContext& ctx) {
  return with_lanes(c.dtype, c.lanes, [&](auto type, auto lanes) {
    using T = typename decltype(type)::type;
    using Lanes = decltype(lanes);
    float* partial = static_cast<float*>(ctx.workspace);
    const dim3 grid(static_cast<unsigned>(c.item_blocks), static_cast<unsigned>(c.blocks));
    const int threads = (c.block_items * c.beside + kWarp - 1) / kWarp * kWarp;
    AICF_TRY(launch(ctx, grid, threads, 0, group_weights_kernel<T, Lanes>, c, static_cast<const T*>(c.x),
                    static_cast<const T*>(c.dy), partial));
    const int64_t all = static_cast<int64_t>(c.sums) * c.items;
    return launch(ctx, static_cast<unsigned>(ceil_div<int64_t>(all, kSumColumns)), kGroupThreads, 0,
                  group_weights_sum_kernel<T, Lanes>, c, static_cast<const float*>(partial),
                  static_cast<T*>(c.dw));
  });
}

}  // namespace aicf
