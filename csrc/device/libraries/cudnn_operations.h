// An operation graph of cuDNN made of products, pointwise functions and reductions of tensors of rank 4,
// whose values between two operations have no memory.
#pragma once
#include <vector>

#include "device/libraries/cudnn.h"

namespace aicf::cudnn {

enum PointwiseMode {
  kMultiply = 1,
  kDivide = 6,
  kSubtract = 9,
  kExp = 13,
  kGreaterOrEqual = 303,
  kIndex = 501,
  kSelect = 601,
};
enum Reducer { kSum = 0, kMaximum = 3 };

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
  // Sets tensors of an operation, finalizes it and what it is made of.
  void add(Kind kind, const std::vector<std::pair<int, Value>>& tensors, int of, Descriptor* parameters);

  int64_t next_id_;
  Status status_ = Status::ok();
  std::vector<Tensor> tensors_;
  std::vector<Descriptor> values_, parameters_, operations_;  // finish() moves them
};

}  // namespace aicf::cudnn
