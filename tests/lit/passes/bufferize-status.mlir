// A status skips every launch that writes to the slot of an argument.
// RUN: aicf-opt %s --select-kernels --bufferize --split-input-file | filecheck %s
// RUN: aicf-opt %s -p 'select-kernels{target=sm_90},bufferize' --split-input-file | filecheck %s --check-prefix GPU

// Checks hand their status on; the last one writes it to its slot, which outlives the step.
// CHECK-LABEL: plan.program @chain
// CHECK:         plan.slot @failed : memref<3xi64> status "failed"
// CHECK:         plan.launch @k0 "check_index_cpu" check_index status(@failed) target(@t) -> status(@s1)
// CHECK-NEXT:      {classes = array<i64: 2>, code = 1}
// CHECK-NEXT:    plan.launch @k1 "check_finite_cpu" check_finite status(@s1) x(@w) -> status(@failed) {code = 2} after @k0
// CHECK-NEXT:    plan.launch @k2 "sgd_step_cpu" sgd_step p(@w) g(@g) lr(@lr) weight_decay(@lr) -> p(@w) {groups = array<i64: 0>} predicate not @failed
// CHECK-NEXT: after @k1
func.func @chain(
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"},
    %g: tensor<4xf32> {aicf.role = "input", aicf.name = "g"},
    %lr: tensor<f64> {aicf.role = "host_scalar", aicf.name = "lr"},
    %t: tensor<4xi64> {aicf.role = "input", aicf.name = "t"},
    %s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w"}, tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}) {
  %s1 = kernel.check_index status(%s) target(%t) {classes = array<i64: 2>, code = 1} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
  %s2 = kernel.check_finite status(%s1) x(%w) {code = 2} : (tensor<3xi64>, tensor<4xf32>) -> tensor<3xi64>
  %w1 = kernel.sgd_step p(%w) g(%g) lr(%lr) weight_decay(%lr) {groups = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<f64>) -> tensor<4xf32>
  func.return %w1, %s2 : tensor<4xf32>, tensor<3xi64>
}

// -----

// What is computed before the checks, or is read by more than updates, waits in a temporary: it is not skipped, the
// copy is.
// CHECK-LABEL: plan.program @forward
// CHECK:         plan.launch @k0 "neg_cpu" neg x(@m) -> y(@[[EARLY:.*]])
// CHECK-NEXT:    plan.launch @k1 "check_index_cpu" check_index status(@failed) target(@t) -> status(@failed)
// CHECK-NEXT:      {classes = array<i64: 2>, code = 1}
// CHECK-NEXT:    plan.launch @k2 "neg_cpu" neg x(@w) -> y(@[[READ:.*]])
// CHECK-NEXT:    plan.launch @k3 "relu_cpu" relu x(@[[READ]]) -> y(@y)
// CHECK-NEXT:    plan.launch @k4 "copy_cpu" copy x(@[[EARLY]]) -> y(@m) predicate not @failed
// CHECK-NEXT:    plan.launch @k5 "copy_cpu" copy x(@[[READ]]) -> y(@w) predicate not @failed
func.func @forward(
    %m: tensor<4xf32> {aicf.role = "state", aicf.name = "m"},
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"},
    %t: tensor<4xi64> {aicf.role = "input", aicf.name = "t"},
    %s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "m"}, tensor<4xf32> {aicf.role = "update", aicf.name = "w"},
        tensor<4xf32> {aicf.role = "output", aicf.name = "y"}, tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}) {
  %m1 = kernel.neg x(%m) : tensor<4xf32>
  %s1 = kernel.check_index status(%s) target(%t) {classes = array<i64: 2>, code = 1} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
  %w1 = kernel.neg x(%w) : tensor<4xf32>
  %y = kernel.relu x(%w1) : tensor<4xf32>
  func.return %m1, %w1, %y, %s1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<3xi64>
}

// -----

// On a GPU those of one type are one launch; values of 16 bits, which a body would widen, are copied alone.
// GPU-LABEL: plan.program @together
// GPU:         plan.launch @k4 "gen_multi_tensor_map_{{[0-9a-f]+}}" multi_tensor_map x(@[[M:.*]], @[[W:.*]]) -> y(@m, @w)
// GPU-NEXT:      {body = @copied, segments = 2} predicate not @failed
// GPU-NEXT:    plan.launch @k5 "copy_cuda" copy x(@{{.*}}) -> y(@h) predicate not @failed
// CHECK-LABEL: plan.program @together
// CHECK:         plan.launch @k4 "copy_cpu" copy x(@{{.*}}) -> y(@m) predicate not @failed
// CHECK-NEXT:    plan.launch @k5 "copy_cpu" copy x(@{{.*}}) -> y(@w) predicate not @failed
func.func @together(
    %m: tensor<4xf32> {aicf.role = "state", aicf.name = "m"},
    %w: tensor<3x2xf32> {aicf.role = "buffer", aicf.name = "w"},
    %h: tensor<4xbf16> {aicf.role = "buffer", aicf.name = "h"},
    %t: tensor<4xi64> {aicf.role = "input", aicf.name = "t"},
    %s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "m"}, tensor<3x2xf32> {aicf.role = "update", aicf.name = "w"},
        tensor<4xbf16> {aicf.role = "update", aicf.name = "h"}, tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}) {
  %m1 = kernel.neg x(%m) : tensor<4xf32>
  %w1 = kernel.neg x(%w) : tensor<3x2xf32>
  %h1 = kernel.neg x(%h) : tensor<4xbf16>
  %s1 = kernel.check_index status(%s) target(%t) {classes = array<i64: 2>, code = 1} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
  func.return %m1, %w1, %h1, %s1 : tensor<4xf32>, tensor<3x2xf32>, tensor<4xbf16>, tensor<3xi64>
}

// -----

// Without a check the status stays as it is, and still skips: another plan over the same memory may have failed.
// A kernel that does not look at a status is not skipped, but the copy of its result is.
// CHECK-LABEL: plan.program @no_check
// CHECK:         plan.launch @k0 "neg_cpu" neg x(@w) -> y(@w1)
// CHECK-NEXT:    plan.launch @k1 "copy_cpu" copy x(@w1) -> y(@w) predicate not @failed after @k0
func.func @no_check(
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"},
    %s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w"}, tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}) {
  %w1 = kernel.neg x(%w) : tensor<4xf32>
  func.return %w1, %s : tensor<4xf32>, tensor<3xi64>
}
