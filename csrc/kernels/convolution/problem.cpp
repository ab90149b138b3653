#include "kernels/convolution/problem.h"

#include "kernels/gemm/problem.h"  // kAct, kAllowTF32

namespace aicf {
namespace {

// Where the spatial dimensions of an operand begin.
int first_of(bool channels_last) { return channels_last ? 1 : 2; }

void read_spatial(const TensorDesc& t, const Convolution& c, int64_t* out) {
  for (int d = 0; d < kMostSpatial; ++d) {
    const int own = d - (kMostSpatial - c.rank);
    out[d] = own < 0 ? 1 : t.shape[first_of(c.channels_last) + own];
  }
}

void read_numbers(const std::vector<int64_t>& numbers, int64_t absent, int64_t* out) {
  const int missing = kMostSpatial - static_cast<int>(numbers.size());
  for (int d = 0; d < kMostSpatial; ++d) out[d] = d < missing ? absent : numbers[d - missing];
}

}  // namespace

bool has_epilogue(const OpDesc& op) {
  return std::string(op.schema->name) == "convolution" &&
         (op.has_in("bias") || op.attrs.get(kAct) != Act::None);
}

Convolution convolution_of(const OpDesc& op) {
  const std::string name = op.schema->name;
  Convolution c{};
  c.direction = name == "convolution"              ? Convolves::Forward
                : name == "convolution_input_grad" ? Convolves::InputGradient
                                                   : Convolves::WeightGradient;
  const TensorDesc& result = op.outputs[0];
  const TensorDesc& x = c.direction == Convolves::InputGradient ? result : op.inputs[0];
  const TensorDesc& w = c.direction == Convolves::WeightGradient ? result : op.inputs[1];
  const TensorDesc& y = c.direction == Convolves::Forward         ? result
                        : c.direction == Convolves::InputGradient ? op.inputs[0]
                                                                  : op.inputs[1];
  c.dtype = result.dtype;
  c.channels_last = op.attrs.get(kChannelsLast);
  c.allow_tf32 = op.attrs.get(kAllowTF32);
  c.rank = x.rank - 2;
  const int channel = c.channels_last ? x.rank - 1 : 1;
  c.images = x.shape[0];
  c.channels = x.shape[channel];
  c.outputs = y.shape[channel];
  c.groups = op.attrs.get(kGroups);
  read_spatial(x, c, c.in);
  read_spatial(w, c, c.kernel);
  read_spatial(y, c, c.out);
  read_numbers(op.attrs.get(kStride), 1, c.stride);
  read_numbers(op.attrs.get(kDilation), 1, c.dilation);
  read_numbers(op.attrs.get(kLow), 0, c.low);
  c.x = x.data;
  c.w = w.data;
  c.y = y.data;
  if (c.direction == Convolves::Forward) {
    c.bias = op.has_in("bias") ? op.in("bias").data : nullptr;
    c.act = op.attrs.get(kAct);
  }
  return c;
}

}  // namespace aicf
