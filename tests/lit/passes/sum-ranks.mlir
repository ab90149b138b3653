// A sum over ranks is a gather and additions in the order of ranks; its gradient is another sum. Each waits for the one in front of it.
// RUN: aicf-opt %s --sum-ranks | filecheck %s
// RUN: aicf-opt %s -p "autodiff,sum-ranks,average-ranks{ranks=2},vote-ranks{ranks=2}" | filecheck %s --check-prefix=GRAD

// CHECK-LABEL: func.func @step
// CHECK:         %h.of_ranks = nn.all_gather %h {group = "dp", ranks = 2} : (tensor<4xf16>) -> tensor<2x4xf16>
// CHECK-NEXT:    %[[A:.*]], %[[B:.*]] = nn.split %h.of_ranks {dim = 0, sizes = array<i64: 1, 1>}
// CHECK:         %reshape = nn.reshape %[[A]]
// CHECK-NEXT:    %reshape_1 = nn.reshape %[[B]]
// 16-bit numbers are added up in f32, and rounded once.
// CHECK:         %of_ranks.sum = nn.add %cast, %cast_1 : tensor<4xf32>
// CHECK-NEXT:    %cast_2 = nn.cast %of_ranks.sum : (tensor<4xf32>) -> tensor<4xf16>
// CHECK:         nn.all_gather %v, %h.of_ranks {group = "dp", ranks = 2}
// CHECK-NOT:     nn.sum_of_ranks

// The running value "m" is made of gathered values alone, so it is not gathered again: 2 sums, 2 gradients of sums, and 1
// bucket of gradients with the vote.
// GRAD-LABEL: func.func @step
// GRAD-COUNT-4: = nn.all_gather
// GRAD:         = nn.all_reduce_status
// GRAD-NOT:     = nn.all_
func.func @step(
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"},
    %x: tensor<4xf16> {aicf.role = "input", aicf.name = "x"},
    %m: tensor<4xf16> {aicf.role = "buffer", aicf.name = "m", aicf.of_rank = 0 : i64})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<4xf16> {aicf.role = "update", aicf.name = "m"}) {
  %c = nn.cast %w : (tensor<4xf32>) -> tensor<4xf16>
  %h = nn.mul %c, %x : tensor<4xf16>
  %s = nn.sum_of_ranks %h {group = "dp", ranks = 2} : tensor<4xf16>
  %u = nn.cast %s : (tensor<4xf16>) -> tensor<4xf32>
  %v = nn.mul %u, %w : tensor<4xf32>
  %t = nn.sum_of_ranks %v {group = "dp", ranks = 2} : tensor<4xf32>
  %l = nn.sum %t {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %n = nn.add %m, %s : tensor<4xf16>
  func.return %l, %n : tensor<f32>, tensor<4xf16>
}
