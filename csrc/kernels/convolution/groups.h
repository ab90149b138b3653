// Convolutions on a GPU whose groups have few channels: how they are divided among threads. Channels last.
// Host code, in every build: the workspace is part of a plan.
//
// A thread has a vector of channels, and kChain results along a line, or kChain positions of the weights.
// They are chosen so that neighbours share elements: one new element is read for kChain products.
#pragma once
#include "kernels/convolution/problem.h"

namespace aicf {

constexpr int kGroupThreads = 256, kGroupBlocks = 2;  // of a multiprocessor, at least
constexpr int kChain = 4;
constexpr int kMostStride = 8;

// Division of a number below 2^31 by one that stays the same.
struct Divider {
  uint32_t number, factor, shift;

  AICF_HD int quotient(int n) const {
    if (number == 1) return n;
    return static_cast<int>(static_cast<uint64_t>(static_cast<uint32_t>(n)) * factor >> 32 >> shift);
  }
  // Leaves the quotient in `n`.
  AICF_HD int remainder(int& n) const {
    const int whole = n, q = quotient(n);
    n = q;
    return whole - q * static_cast<int>(number);
  }
};
Divider divider(int64_t number);

// The channels of a group in the result and in the source, and the groups of a thread; 0 groups: one channel
// of the result, whatever a group has.
struct GroupLanes {
  int results, sources, groups;
};

// What a dimension of the result has of the source. Element `start + shift + i * unit` meets position
// `first + i * step` of the kernel, for i below `count`, in each of several chains.
struct GroupAxis {
  struct Chain {
    int first, count, shift;
  };
  struct Reach {
    int start, begin, end;  // of the chains
  };

  int results, sources, apart;  // results that are so far apart share elements
  int step, unit, chains;
  Chain chain[kMostStride];
  bool back;
  int scale, low;
  Divider stride;

  AICF_HD Reach reach(int result) const {
    if (!back) return {result * scale - low, 0, chains};
    int quotient = result + low;
    const int own = stride.remainder(quotient);
    return {quotient, own, own + 1};
  }
};

// y of x and w, or dx of dy and w.
struct GroupWindows {
  GroupLanes lanes;
  bool back;
  int groups, results, sources;  // channels of each group
  int outputs, channels;         // of each group, in the weights
  int block_groups;
  int kernel[kMostSpatial];
  int shared_bytes, items, blocks, block_rows;
  Divider vectors, strips, classes, height, depth;  // an item, innermost first
  Divider of_output, of_channel, of_group;          // an element of the weights
  GroupAxis axes[kMostSpatial];
  Act act;
  const void *source, *w, *bias;
  void* result;
  DType dtype;
};
GroupWindows group_windows_of(const OpDesc& op);
Status group_windows(const GroupWindows& c, const LaunchContext& ctx);

// dw of x and dy. An item is a vector of channels and kChain positions; a block has items, each `beside`
// times for other windows. The sums of each block are added by a second launch.
struct GroupWeights {
  GroupLanes lanes;
  int groups, outputs, channels;  // of each group
  int kernel[kMostSpatial], in[kMostSpatial], out[kMostSpatial];
  int stride[kMostSpatial], dilation[kMostSpatial], low[kMostSpatial];
  int step, unit, apart;  // positions of a chain, elements and windows that follow each other
  int items, block_items, beside, item_blocks;
  int sums;         // of an item
  int lines, part;  // of windows, or parts of them of so many
  int block_lines, blocks;
  Divider vectors, strips, classes, height;       // an item
  Divider parts, line_height, line_depth, pairs;  // a line; a pair of output and channel
  const void *x, *dy;
  void* dw;
  DType dtype;

  size_t partial_bytes() const { return sizeof(float) * static_cast<size_t>(blocks) * sums * items; }
};
GroupWeights group_weights_of(const OpDesc& op);
Status group_weights(const GroupWeights& c, const LaunchContext& ctx);
size_t group_weights_workspace(const OpDesc& op);

Status supports_groups(const OpDesc& op);

}  // namespace aicf
