// Convolutions of groups of few channels, and their gradients of x. A block keeps the weights of its groups
// in shared memory, in f32. A thread has kChain results of a line that share elements of the source.
#include "kernels/convolution/groups.cuh"

namespace aicf {
namespace {

using namespace cuda;

// The weights that a thread multiplies at one position, as planes of up to four: neighbouring threads read
// neighbouring pieces.
template <class Lanes>
struct Planes {
  static constexpr int kCount = Lanes::kGroups * Lanes::kResults * Lanes::kSources;
  static constexpr int kWide = kCount < 4 ? kCount : 4;
  using Piece = Vec<float, kWide>;

  Piece* pieces;
  int vectors, each;  // planes of a position

  __device__ __forceinline__ Planes(float4* shared, const GroupWindows& c)
      : pieces(reinterpret_cast<Piece*>(shared)),
        vectors(static_cast<int>(c.vectors.number)),
        each(Lanes::kAny ? c.sources : kCount / kWide) {}

  // Where a weight is: group `group` of the block, its result and source, and the position.
  __device__ __forceinline__ float& place(const GroupWindows& c, int group, int result, int source, int k) {
    if (Lanes::kAny) return pieces[(k * each + source) * vectors + group * c.results + result].at[0];
    const int own = group % Lanes::kGroups;
    const int number = (source * Lanes::kGroups + own) * Lanes::kResults + result;
    return pieces[(k * each + number / kWide) * vectors + group / Lanes::kGroups].at[number % kWide];
  }
  __device__ __forceinline__ void read(int k, int source, int vector, float (&weights)[kCount]) const {
    const Piece* from = pieces + (k * each + source) * vectors + vector;
#pragma unroll
    for (int q = 0; q < kCount / kWide; ++q) {
      const Piece piece = from[q * vectors];
#pragma unroll
      for (int i = 0; i < kWide; ++i) weights[q * kWide + i] = piece.at[i];
    }
  }
};

template <class T, class Lanes>
__device__ __forceinline__ void stage_weights(const GroupWindows& c, const T* w, int first, int groups,
                                              Planes<Lanes> planes) {
  const int outputs = groups * c.outputs;
  const T* from = w + static_cast<int64_t>(first) * c.outputs * c.of_output.number;
  for (int i = threadIdx.x; i < outputs * static_cast<int>(c.of_output.number); i += kGroupThreads) {
    int output = i;
    int k = c.of_output.remainder(output);
    const int channel = c.of_channel.remainder(k);
    int group = output;
    const int own = c.of_group.remainder(group);
    planes.place(c, group, c.back ? channel : own, c.back ? own : channel, k) = widen(from[i]);
  }
}

// f(element, position) for those of an axis that a result has.
template <class F>
__device__ __forceinline__ void for_each_row(const GroupAxis& axis, const GroupAxis::Reach& reach, F f) {
  for (int n = reach.begin; n < reach.end; ++n) {
    const GroupAxis::Chain chain = axis.chain[n];
    for (int j = 0; j < chain.count; ++j) {
      const int at = reach.start + chain.shift + j * axis.unit;
      if (static_cast<unsigned>(at) < static_cast<unsigned>(axis.sources)) f(at, chain.first + j * axis.step);
    }
  }
}

template <class Lanes, int W, int N, int R>
__device__ __forceinline__ void add_products(const float (&weights)[W], const float (&x)[N],
                                             float (&sums)[R]) {
#pragma unroll
  for (int s = 0; s < Lanes::kSources; ++s)
#pragma unroll
    for (int r = 0; r < R; ++r) sums[r] += weights[s * R + r] * x[r / Lanes::kResults * Lanes::kSources + s];
}

template <class T, class Lanes>
__global__ void __launch_bounds__(kGroupThreads, kGroupBlocks)
    group_windows_kernel(const __grid_constant__ GroupWindows c, const T* source, const T* w, const T* bias,
                         T* result) {
  dependency_wait();
  extern __shared__ float4 shared[];
  constexpr int kResults = Lanes::kGroups * Lanes::kResults, kSources = Lanes::kGroups * Lanes::kSources;
  Planes<Lanes> planes(shared, c);
  const int first = blockIdx.x * c.block_groups, groups = min(c.block_groups, c.groups - first);
  stage_weights(c, w, first, groups, planes);
  __syncthreads();
  const int vectors = Lanes::kAny ? groups * c.results : groups / Lanes::kGroups;
  const int source_step = c.groups * c.sources, result_step = c.groups * c.results;
  const GroupAxis &depth = c.axes[0], &height = c.axes[1], &line = c.axes[2];
  for (unsigned item = blockIdx.y * kGroupThreads + threadIdx.x; item < static_cast<unsigned>(c.items);
       item += gridDim.y * kGroupThreads) {
    int image = static_cast<int>(item);
    const int vector = c.vectors.remainder(image);
    int strip = c.strips.remainder(image);
    if (vector >= vectors) continue;
    const int own = c.classes.remainder(strip);
    const int h = c.height.remainder(image), d = c.depth.remainder(image);
    const int begin = own + line.apart * kChain * strip;
    if (begin >= line.results) continue;
    const GroupAxis::Reach of_depth = depth.reach(d), of_height = height.reach(h),
                           of_line = line.reach(begin);
    float sums[kChain][kResults] = {};
    for (int any = 0; any < (Lanes::kAny ? c.sources : 1); ++any) {
      const int channel = Lanes::kAny ? (first + vector / c.results) * c.sources + any
                                      : first * c.sources + vector * kSources;
      for_each_row(depth, of_depth, [&](int z, int k_d) {
        for_each_row(height, of_height, [&](int y, int k_h) {
          const int row = (image * depth.sources + z) * height.sources + y;
          const int from = row * line.sources * source_step + channel;
          for (int n = of_line.begin; n < of_line.end; ++n) {
            const GroupAxis::Chain chain = line.chain[n];
            Passing<T, kSources> passing(source, from, source_step, line.sources, of_line.start + chain.shift,
                                         line.unit);
            int k = (k_d * c.kernel[1] + k_h) * c.kernel[2] + chain.first;
            for (int j = 0; j < chain.count; j += kChain) {
              passing.read(chain.count - j);
#pragma unroll
              for (int i = 0; i < kChain; ++i, k += line.step) {
                if (j + i >= chain.count) break;
                passing.step(i);
                float weights[Planes<Lanes>::kCount];
                planes.read(k, any, vector, weights);
#pragma unroll
                for (int t = 0; t < kChain; ++t) add_products<Lanes>(weights, passing.at(i, t), sums[t]);
              }
            }
          }
        });
      });
    }
    const int channel = first * c.results + vector * kResults;
    const int row = (image * depth.results + d) * height.results + h;
    Channels<T, kResults> added;
    added.read(bias + channel, bias != nullptr);
#pragma unroll
    for (int t = 0; t < kChain; ++t) {
      const int at = begin + t * line.apart;
      if (at >= line.results) break;
#pragma unroll
      for (int r = 0; r < kResults; ++r) sums[t][r] += added.widened(r);
      if (c.act == Act::Relu) {
#pragma unroll
        for (int r = 0; r < kResults; ++r) sums[t][r] = ops::relu{}(sums[t][r]);
      }
      write_channels(result + static_cast<unsigned>((row * line.results + at) * result_step + channel),
                     sums[t]);
    }
  }
}

}  // namespace

Status group_windows(const GroupWindows& c, const LaunchContext& ctx) {
  return with_lanes(c.dtype, c.lanes, [&](auto type, auto lanes) {
    using T = typename decltype(type)::type;
    const dim3 grid(static_cast<unsigned>(c.block_rows), static_cast<unsigned>(c.blocks));
    return launch(ctx, grid, kGroupThreads, static_cast<size_t>(c.shared_bytes),
                  group_windows_kernel<T, decltype(lanes)>, c, static_cast<const T*>(c.source),
                  static_cast<const T*>(c.w), static_cast<const T*>(c.bias), static_cast<T*>(c.result));
  });
}

}  // namespace aicf
