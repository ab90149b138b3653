// The mean of gradients is made in buckets, in the order of ranks; a marked buffer is that of its rank.
// RUN: aicf-opt %s --average-ranks=ranks=2 --split-input-file --verify-diagnostics | filecheck %s
// RUN: aicf-opt %s --average-ranks="ranks=2 bucket=11" --split-input-file --verify-diagnostics | filecheck %s --check-prefix=SMALL
// RUN: not aicf-opt %s --average-ranks=ranks=0 2>&1 | filecheck %s --check-prefix=RANKS

// RANKS: expected 1 rank or more, got 0

// A buffer that is the same on all ranks is not exchanged. Each collective waits for the one in front of it. What is made of its
// result stands behind the next collective.
// CHECK-LABEL: func.func @step
// CHECK:         %n.next = nn.add %n, %one : tensor<i64>
// CHECK:         %reshape.of_ranks = nn.all_gather %reshape {group = "dp", ranks = 2} : (tensor<2xf32>) -> tensor<2x2xf32>
// CHECK:         %bucket = nn.concat %reshape_{{[0-9]+}}, %reshape_{{[0-9]+}} {dim = 0} : (tensor<2xf32>, tensor<4xf32>) -> tensor<6xf32>
// CHECK-NEXT:    %bucket.mean = nn.all_reduce %bucket, %reshape.of_ranks {group = "dp", ranks = 2}
// CHECK-NEXT:      : (tensor<6xf32>, tensor<2x2xf32>) -> tensor<6xf32>
// CHECK:         %m.next.of_rank = nn.reshape
// 16-bit numbers have a bucket of their own; their mean is f32, and rounded once.
// CHECK:         %reshape.mean = nn.all_reduce %reshape_{{[0-9]+}}, %bucket.mean {group = "dp", ranks = 2}
// CHECK-NEXT:      : (tensor<2xf16>, tensor<6xf32>) -> tensor<2xf32>
// CHECK-NEXT:    %{{[0-9]+}}, %{{[0-9]+}} = nn.split %bucket.mean {dim = 0, sizes = array<i64: 2, 4>}
// CHECK:         %cast = nn.cast %reshape.mean : (tensor<2xf32>) -> tensor<2xf16>
// CHECK-NEXT:    %dh.mean = nn.reshape %cast
// CHECK-NEXT:    func.return %l, %m.next.of_rank, %n.next, %dw.mean, %dv.mean, %dh.mean

// SMALL-NOT:     nn.concat
// SMALL-COUNT-6: = nn.all_
// SMALL-NOT:     nn.concat
func.func @step(
    %w: tensor<2xf32> {aicf.role = "param", aicf.name = "w"},
    %v: tensor<2x2xf32> {aicf.role = "param", aicf.name = "v"},
    %h: tensor<2xf16> {aicf.role = "param", aicf.name = "h"},
    %x: tensor<2xf32> {aicf.role = "input", aicf.name = "x"},
    %m: tensor<2xf32> {aicf.role = "buffer", aicf.name = "m", aicf.of_rank = 0 : i64},
    %n: tensor<i64> {aicf.role = "buffer", aicf.name = "n", aicf.of_rank = 0 : i64})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<2xf32> {aicf.role = "update", aicf.name = "m"},
        tensor<i64> {aicf.role = "update", aicf.name = "n"},
        tensor<2xf32> {aicf.role = "grad", aicf.name = "w"}, tensor<2x2xf32> {aicf.role = "grad", aicf.name = "v"},
        tensor<2xf16> {aicf.role = "grad", aicf.name = "h"}) {
  %one = nn.constant {value = 1.0} : tensor<i64>
  %n.next = nn.add %n, %one : tensor<i64>
  %m.next = nn.mul %m, %x : tensor<2xf32>
  %l = nn.sum %x {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  %dw = nn.mul %w, %x : tensor<2xf32>
  %dv = nn.mul %v, %x : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
  %dh = nn.neg %h : tensor<2xf16>
  func.return %l, %m.next, %n.next, %dw, %dv, %dh
    : tensor<f32>, tensor<2xf32>, tensor<i64>, tensor<2xf32>, tensor<2x2xf32>, tensor<2xf16>
}

// -----

// A gradient that autocast has made wider is exchanged in 16 bits, and added up in f32 all the same.
// CHECK-LABEL: func.func @autocast
// CHECK:         %bucket = nn.concat %{{.*}} : (tensor<2xbf16>, tensor<4xbf16>) -> tensor<6xbf16>
// CHECK-NEXT:    %bucket.mean = nn.all_reduce %bucket {group = "dp", ranks = 2} : (tensor<6xbf16>) -> tensor<6xf32>
// CHECK:         nn.all_reduce %reshape_{{[0-9]+}}, %bucket.mean {group = "dp", ranks = 2}
// CHECK-NEXT:      : (tensor<2xf32>, tensor<6xf32>) -> tensor<2xf32>
// CHECK-NOT:     nn.cast
// CHECK:         func.return %l, %dw.mean, %dv.mean, %du.mean : tensor<f32>, tensor<2xf32>, tensor<2x2xf32>, tensor<2xf32>
func.func @autocast(
    %w: tensor<2xf32> {aicf.role = "param", aicf.name = "w"},
    %v: tensor<2x2xf32> {aicf.role = "param", aicf.name = "v"},
    %u: tensor<2xf32> {aicf.role = "param", aicf.name = "u"},
    %x: tensor<2xbf16> {aicf.role = "input", aicf.name = "x"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<2xf32> {aicf.role = "grad", aicf.name = "w"},
        tensor<2x2xf32> {aicf.role = "grad", aicf.name = "v"}, tensor<2xf32> {aicf.role = "grad", aicf.name = "u"}) {
  %wide = nn.cast %x : (tensor<2xbf16>) -> tensor<2xf32>
  %l = nn.sum %wide {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  %g = nn.neg %x : tensor<2xbf16>
  %dw = nn.cast %g : (tensor<2xbf16>) -> tensor<2xf32>
  %gg = nn.broadcast_to %g {shape = array<i64: 2, 2>} : (tensor<2xbf16>) -> tensor<2x2xbf16>
  %dv = nn.cast %gg : (tensor<2x2xbf16>) -> tensor<2x2xf32>
  %du = nn.mul %u, %wide : tensor<2xf32>
  func.return %l, %dw, %dv, %du : tensor<f32>, tensor<2xf32>, tensor<2x2xf32>, tensor<2xf32>
}

// -----

// A buffer that takes an input as it is: it is exchanged first.
// CHECK-LABEL: func.func @takes
// CHECK:         %reshape = nn.reshape %x
// CHECK-NEXT:    %reshape.of_ranks = nn.all_gather %reshape {group = "dp", ranks = 2}
// CHECK:         nn.all_reduce %reshape_{{[0-9]+}}, %reshape.of_ranks
func.func @takes(
    %w: tensor<2xf32> {aicf.role = "param", aicf.name = "w"},
    %x: tensor<2xf32> {aicf.role = "input", aicf.name = "x"},
    %m: tensor<2xf32> {aicf.role = "buffer", aicf.name = "m", aicf.of_rank = 0 : i64})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<2xf32> {aicf.role = "update", aicf.name = "m"},
        tensor<2xf32> {aicf.role = "grad", aicf.name = "w"}) {
  %l = nn.sum %x {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  %dw = nn.mul %w, %x : tensor<2xf32>
  func.return %l, %x, %dw : tensor<f32>, tensor<2xf32>, tensor<2xf32>
}

// -----

// A parameter that each rank has for itself: a buffer that is made of it is exchanged, one that is made of "w" is not.
// CHECK-LABEL: func.func @apart
// CHECK:         %[[V:.*]] = nn.neg %v
// CHECK:         %[[R:.*]] = nn.reshape %[[V]]
// CHECK:         nn.all_gather %[[R]]
// CHECK-NOT:     nn.all_gather
// CHECK:         nn.all_reduce
func.func @apart(
    %w: tensor<2xf32> {aicf.role = "param", aicf.name = "w"},
    %v: tensor<2xf32> {aicf.role = "param", aicf.name = "v", aicf.of_each_rank},
    %x: tensor<2xf32> {aicf.role = "input", aicf.name = "x"},
    %m: tensor<2xf32> {aicf.role = "buffer", aicf.name = "m", aicf.of_rank = 0 : i64},
    %n: tensor<2xf32> {aicf.role = "buffer", aicf.name = "n", aicf.of_rank = 0 : i64})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<2xf32> {aicf.role = "update", aicf.name = "m"},
        tensor<2xf32> {aicf.role = "update", aicf.name = "n"}, tensor<2xf32> {aicf.role = "grad", aicf.name = "w"}) {
  %l = nn.sum %x {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  %a = nn.neg %v : tensor<2xf32>
  %b = nn.neg %w : tensor<2xf32>
  %dw = nn.mul %w, %x : tensor<2xf32>
  func.return %l, %a, %b, %dw : tensor<f32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}

// -----

// Gradients that are there from the start: their collectives have the order of the text too.
// CHECK-LABEL: func.func @given
// CHECK:         %[[H:.*]] = nn.all_reduce {{.*}} : (tensor<2xf16>) -> tensor<2xf32>
// CHECK:         %[[X:.*]] = nn.all_reduce {{.*}}, %[[H]] {group = "dp", ranks = 2}
// CHECK:         %dx.mean = nn.reshape %[[X]]
// CHECK:         func.return
func.func @given(
    %w: tensor<2xf32> {aicf.role = "param", aicf.name = "w"},
    %v: tensor<2xf16> {aicf.role = "param", aicf.name = "v"},
    %dx: tensor<2xf32> {aicf.role = "input", aicf.name = "x"},
    %dh: tensor<2xf16> {aicf.role = "input", aicf.name = "h"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<2xf32> {aicf.role = "grad", aicf.name = "w"},
        tensor<2xf16> {aicf.role = "grad", aicf.name = "v"}) {
  %l = nn.sum %dx {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  func.return %l, %dx, %dh : tensor<f32>, tensor<2xf32>, tensor<2xf16>
}

// -----

// expected-error@+1 {{@undifferentiated has no gradients among its results; run autodiff first}}
func.func @undifferentiated(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %l = nn.sum %w {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  func.return %l : tensor<f32>
}
