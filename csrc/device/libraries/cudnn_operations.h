// An operation graph of cuDNN made of products, convolutions, pointwise functions and reductions, whose
// values between two operations have no memory.
#pragma once
#include <vector>

#include "device/libraries/cudnn.h"

namespace aicf::cudnn {

enum PointwiseMode {
  kAdd = 0,
  kMultiply = 1,
  kDivide = 6,
  kSubtract = 9,
  kExp = 13,
  kRelu = 100,
  kGreaterOrEqual = 303,
  kIndex = 501,
  kSelect = 601,
};
enum Reducer { kSum = 0, kMaximum = 3 };

// Of a convolution, in each spatial dimension; `before` and `after` are paddings.
struct Windows {
  std::vector<int64_t> stride, dilation, before, after;
};

// Operations are added in the order of their data. An error is kept, and returned by finish().
class Operations {
 public:
  // A tensor, by its place in this object.
  using Value = size_t;
  using Shape = std::vector<int64_t>;

  explicit Operations(int64_t first_virtual_id) : next_id_(first_virtual_id) {}

  Value stored(Tensor tensor);
  // A number of f32.
  Value number(int64_t id);
  // A virtual value; without strides it is row-major.
  Value between(DataType type, const Shape& shape, const Shape& strides = {});

  // c = a b, the last two dimensions as matrices; a dimension in front repeats by a whole factor.
  void multiply(Value a, Value b, Value c);
  // y is x convolved with w; of the two others, `kind` says which one is computed.
  void convolve(Kind kind, const Windows& windows, Value x, Value w, Value y);
  // y = mode(x, b), or kSelect: t ? x : b, or kIndex: the index along `axis`.
  void map(PointwiseMode mode, Value x, Value y, const Value* b = nullptr, const Value* t = nullptr,
           int64_t axis = -1);
  void map(PointwiseMode mode, Value x, Value b, Value y) { map(mode, x, y, &b); }
  // Along the dimensions that y has once.
  void reduce(Reducer reducer, Value x, Value y);
  // The same elements in another shape.
  void reshape(Value x, Value y);

  // The operations as the graph of out->handle; its parts leave this object.
  Status finish(Described* out);

 private:
  void keep(const Status& status);
  // Sets tensors and numbers of an operation, finalizes it and what it is made of.
  void add(Kind kind, const std::vector<std::pair<int, Value>>& tensors, int of, Descriptor* parameters,
           const std::vector<std::pair<int, float>>& numbers = {});

  int64_t next_id_;
  Status status_ = Status::ok();
  std::vector<Tensor> tensors_;
  std::vector<Descriptor> values_, parameters_, operations_;  // finish() moves them
};

}  // namespace aicf::cudnn
