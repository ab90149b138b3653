// The mean of a gradient is kept by the rank that updates its parameter: all exchange its bucket.
// RUN: aicf-opt %s --divide-gradients="rank=0 ranks=2" --split-input-file --verify-diagnostics | filecheck %s
// RUN: aicf-opt %s --divide-gradients="rank=1 ranks=2" --split-input-file --verify-diagnostics | filecheck %s --check-prefix=OTHER
// RUN: aicf-opt %s --divide-gradients="rank=1 ranks=2 bucket=16" --split-input-file --verify-diagnostics | filecheck %s --check-prefix=SMALL
// RUN: not aicf-opt %s --divide-gradients="rank=2 ranks=2" 2>&1 | filecheck %s --check-prefix=RANK

// RANK: expected a rank from 0 to below 2, got 2

// A bucket has gradients of one rank. Buffers, and gradients that no optimizer takes, are those of all ranks.
// CHECK-LABEL: func.func @step
// CHECK:         tensor<2xf32> {aicf.role = "update", aicf.name = "m"},
// CHECK-NEXT:    tensor<9xf32> {aicf.role = "grad", aicf.name = "w"},
// CHECK-NEXT:    tensor<2xf32> {aicf.role = "grad", aicf.name = "n"}
// CHECK:         aicf.parts = {{\[}}["w"], ["v", "u"]],
// CHECK-NEXT:    aicf.gradients = {group = "dp", names = ["w", "v", "u", "n"], rank = 0 : i64}
// CHECK:         %[[M:.*]] = nn.all_gather {{.*}} : (tensor<2xf32>) -> tensor<2x2xf32>
// CHECK:         %[[W:.*]] = nn.all_reduce {{.*}}, %[[M]] {group = "dp", ranks = 2}
// CHECK-NEXT:      : (tensor<9xf32>, tensor<2x2xf32>) -> tensor<9xf32>
// CHECK:         %m.next.of_rank = nn.reshape
// CHECK:         %bucket = nn.concat
// CHECK-NEXT:    %bucket.mean = nn.all_reduce %bucket, %[[W]]
// CHECK-NEXT:      : (tensor<6xf32>, tensor<9xf32>) -> tensor<6xf32>
// CHECK-NEXT:    %dw.mean = nn.reshape %[[W]]
// CHECK:         nn.all_reduce {{.*}}, %bucket.mean
// CHECK-NOT:     nn.split %bucket.mean
// CHECK:         func.return %m.next.of_rank, %dw.mean, %dn.mean

// The other rank has the same collectives.
// OTHER-LABEL: func.func @step
// OTHER:         rank = 1 : i64
// OTHER:         %[[M:.*]] = nn.all_gather {{.*}} : (tensor<2xf32>) -> tensor<2x2xf32>
// OTHER:         %[[W:.*]] = nn.all_reduce {{.*}}, %[[M]] {group = "dp", ranks = 2}
// OTHER-NEXT:      : (tensor<9xf32>, tensor<2x2xf32>) -> tensor<9xf32>
// OTHER:         %bucket.mean = nn.all_reduce %bucket, %[[W]]
// OTHER:         nn.all_reduce {{.*}}, %bucket.mean
// OTHER:         nn.split %bucket.mean {dim = 0, sizes = array<i64: 2, 4>}
// OTHER:         func.return %m.next.of_rank, %dv.mean, %du.mean, %dn.mean

// SMALL-NOT:     nn.concat
// SMALL-COUNT-5: = nn.all_
// SMALL-NOT:     = nn.all_
func.func @step(
    %w: tensor<9xf32> {aicf.role = "param", aicf.name = "w"},
    %v: tensor<2xf32> {aicf.role = "param", aicf.name = "v"},
    %u: tensor<2x2xf32> {aicf.role = "param", aicf.name = "u"},
    %n: tensor<2xf32> {aicf.role = "param", aicf.name = "n"},
    %m: tensor<2xf32> {aicf.role = "buffer", aicf.name = "m", aicf.of_rank = 0 : i64},
    %x: tensor<f32> {aicf.role = "input", aicf.name = "x"})
    -> (tensor<2xf32> {aicf.role = "update", aicf.name = "m"},
        tensor<9xf32> {aicf.role = "grad", aicf.name = "w"}, tensor<2xf32> {aicf.role = "grad", aicf.name = "v"},
        tensor<2x2xf32> {aicf.role = "grad", aicf.name = "u"}, tensor<2xf32> {aicf.role = "grad", aicf.name = "n"})
    attributes {aicf.optimizer = [{kind = "sgd", params = ["w", "v", "u"], momentum = false, nesterov = false, maximize = false}]} {
  %m.next = nn.mul %m, %x : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %dv = nn.mul %v, %x : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %dw = nn.mul %w, %x : (tensor<9xf32>, tensor<f32>) -> tensor<9xf32>
  %du = nn.mul %u, %x : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  %dn = nn.mul %n, %x : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  func.return %m.next, %dw, %dv, %du, %dn : tensor<2xf32>, tensor<9xf32>, tensor<2xf32>, tensor<2x2xf32>, tensor<2xf32>
}

// -----

// expected-error@+1 {{@undifferentiated has no gradients among its results; run autodiff first}}
func.func @undifferentiated(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<f32> {aicf.role = "loss"}) {
  %l = nn.sum %w {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  func.return %l : tensor<f32>
}

// -----

// expected-error@+1 {{@untrained has no gradients or no aicf.optimizer; run autodiff first}}
func.func @untrained(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "grad", aicf.name = "w"}) {
  func.return %w : tensor<4xf32>
}
