// A loss that exchanges by itself: gradients of what other ranks have of this one come back by rows, and are added up.
// RUN: aicf-opt %s -p "autodiff,sum-ranks,average-ranks{ranks=2},vote-ranks{ranks=2}" --split-input-file | filecheck %s
// RUN: aicf-opt %s --stage plan --mesh dp=2 --split-input-file | filecheck %s --check-prefix=PLAN

// CHECK-LABEL: func.func @gathers
// CHECK:         %all = nn.all_gather %h {group = "dp", ranks = 2} : (tensor<4xf32>) -> tensor<2x4xf32>
// CHECK:         %[[ROWS:.*]] = nn.all_to_all %{{.*}}, %all {group = "dp", ranks = 2} : tensor<2x4xf32>
// CHECK-NEXT:    %[[SUM:.*]] = nn.sum %[[ROWS]] {dims = array<i64: 0>} : (tensor<2x4xf32>) -> tensor<4xf32>
// CHECK:         nn.all_reduce_status {{.*}}, %[[ROWS]] {group = "dp", ranks = 2}

// PLAN:      all_gather x({{.*}}) -> y(@all)
// PLAN:      all_to_all x({{.*}}) after(@all) -> y(@[[ROWS:[^)]*]])
// PLAN:      all_reduce_status {{.*}} after(@[[ROWS]])
func.func @gathers(
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"},
    %x: tensor<4xf32> {aicf.role = "input", aicf.name = "x"})
    -> (tensor<f32> {aicf.role = "loss"}) {
  %h = nn.mul %w, %x : tensor<4xf32>
  %all = nn.all_gather %h {group = "dp", ranks = 2} : (tensor<4xf32>) -> tensor<2x4xf32>
  %s = nn.mul %all, %all : tensor<2x4xf32>
  %l = nn.sum %s {dims = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
  func.return %l : tensor<f32>
}

// -----

// The gradient of rows that were exchanged is exchanged back.
// CHECK-LABEL: func.func @rows
// CHECK:         %r = nn.all_to_all %h {group = "dp", ranks = 2} : tensor<2x4xf32>
// CHECK:         nn.all_to_all %{{.*}}, %r {group = "dp", ranks = 2}
func.func @rows(
    %w: tensor<2x4xf32> {aicf.role = "param", aicf.name = "w"},
    %x: tensor<2x4xf32> {aicf.role = "input", aicf.name = "x"})
    -> (tensor<f32> {aicf.role = "loss"}) {
  %h = nn.mul %w, %x : tensor<2x4xf32>
  %r = nn.all_to_all %h {group = "dp", ranks = 2} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %s = nn.mul %r, %r : tensor<2x4xf32>
  %l = nn.sum %s {dims = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
  func.return %l : tensor<f32>
}

// -----

// Rows of another rank are no value that all have alike: what a buffer becomes of them is taken from rank 0. Where each rank may
// have another text, so is what is made of gathered values; the names of the gradients of each bucket are written down.
// CHECK-LABEL: func.func @buffers
// CHECK:         attributes {aicf.own_text = {{\[}}["m", "n"], ["w"]]}
// CHECK-COUNT-2: nn.all_gather
// CHECK:         nn.all_reduce_status
func.func @buffers(
    %w: tensor<2xf32> {aicf.role = "param", aicf.name = "w"},
    %x: tensor<2xf32> {aicf.role = "input", aicf.name = "x"},
    %m: tensor<2x2xf32> {aicf.role = "buffer", aicf.name = "m", aicf.of_rank = 0 : i64},
    %n: tensor<2x2xf32> {aicf.role = "buffer", aicf.name = "n", aicf.of_rank = 0 : i64})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<2x2xf32> {aicf.role = "update", aicf.name = "m"},
        tensor<2x2xf32> {aicf.role = "update", aicf.name = "n"}) attributes {aicf.own_text = []} {
  %all = nn.all_gather %x {group = "dp", ranks = 2} : (tensor<2xf32>) -> tensor<2x2xf32>
  %a = nn.add %m, %all : tensor<2x2xf32>
  %r = nn.all_to_all %all {group = "dp", ranks = 2} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %b = nn.add %n, %r : tensor<2x2xf32>
  %h = nn.mul %w, %x : tensor<2xf32>
  %l = nn.sum %h {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  func.return %l, %a, %b : tensor<f32>, tensor<2x2xf32>, tensor<2x2xf32>
}
