// The last collective carries the status; a function without a status gets one.
// RUN: aicf-opt %s --vote-ranks=ranks=2 --split-input-file | filecheck %s

// CHECK-LABEL: func.func @checked
// CHECK:         %all, %status.of_ranks = nn.all_gather_status %w, %c, %first {group = "dp", ranks = 2}
// CHECK-NEXT:      : (tensor<4xf32>, tensor<3xi64>, tensor<2x2xf32>) -> (tensor<2x4xf32>, tensor<2x3xi64>)
// CHECK-NEXT:    %voted = nn.check_ranks %c, %status.of_ranks {code = 5}
// CHECK-NEXT:    func.return %voted, %all
func.func @checked(
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"},
    %i: tensor<4xi64> {aicf.role = "input", aicf.name = "i"},
    %s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"})
    -> (tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}, tensor<2x4xf32> {aicf.role = "output", aicf.name = "all"}) {
  %c = nn.check_index %s, %i {classes = 2, code = 4} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
  %v = nn.constant {value = 1.0} : tensor<2xf32>
  %first = nn.all_gather %v {group = "dp", ranks = 2} : (tensor<2xf32>) -> tensor<2x2xf32>
  %all = nn.all_gather %w {group = "dp", ranks = 2} : (tensor<4xf32>) -> tensor<2x4xf32>
  func.return %c, %all : tensor<3xi64>, tensor<2x4xf32>
}

// -----

// Nothing is gathered, so the status is gathered alone.
// CHECK-LABEL: func.func @unchecked
// CHECK:         %failed: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}
// CHECK:         %status.of_ranks = nn.all_gather %failed {group = "dp", ranks = 2} : (tensor<3xi64>) -> tensor<2x3xi64>
// CHECK-NEXT:    %voted = nn.check_ranks %failed, %status.of_ranks {code = 1}
// CHECK:         func.return %w, %voted
func.func @unchecked(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"})
    -> (tensor<4xf32> {aicf.role = "output", aicf.name = "w"}) {
  func.return %w : tensor<4xf32>
}

// -----

// A mean is alike on all ranks, and so is a check of it. The loss of each rank is checked before the gather, with the same code.
// CHECK-LABEL: func.func @means
// CHECK:         %check_finite = nn.check_finite %s, %l {code = 1}
// CHECK-NEXT:    %g.of_ranks, %status.of_ranks = nn.all_gather_status %g, %check_finite
// CHECK:         %voted = nn.check_ranks %check_finite, %status.of_ranks {code = 4}
// CHECK:         %finite = nn.check_finite %voted, %g.mean, %w {code = 2}
// CHECK:         %bounded = nn.check_value %finite, %g.mean {rule = "probability", of = "clip", code = 3}
// CHECK:         func.return %l, %bounded
func.func @means(
    %w: tensor<2xf32> {aicf.role = "param", aicf.name = "w"}, %x: tensor<2xf32> {aicf.role = "input", aicf.name = "x"},
    %s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}) {
  %g = nn.mul %w, %x : tensor<2xf32>
  %l = nn.sum %g {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  %g.of_ranks = nn.all_gather %g {group = "dp", ranks = 2} : (tensor<2xf32>) -> tensor<2x2xf32>
  %g.mean = nn.mean %g.of_ranks {dims = array<i64: 0>} : (tensor<2x2xf32>) -> tensor<2xf32>
  %finite = nn.check_finite %s, %l, %g.mean, %w {code = 1} : (tensor<3xi64>, tensor<f32>, tensor<2xf32>, tensor<2xf32>) -> tensor<3xi64>
  %bounded = nn.check_value %finite, %g.mean {rule = "probability", of = "clip", code = 3} : (tensor<3xi64>, tensor<2xf32>) -> tensor<3xi64>
  func.return %l, %bounded : tensor<f32>, tensor<3xi64>
}

// -----

// Each rank has another loss after the gather, of which the others would not hear: the status is gathered alone, last of all.
// CHECK-LABEL: func.func @later
// CHECK:         %g.of_ranks = nn.all_gather %x
// CHECK:         %finite = nn.check_finite %s, %l, %w {code = 1}
// CHECK:         %status.of_ranks = nn.all_gather %finite, %g.of_ranks
// CHECK:         %voted = nn.check_ranks %finite, %status.of_ranks {code = 3}
// CHECK:         func.return %l, %voted
func.func @later(
    %w: tensor<2xf32> {aicf.role = "param", aicf.name = "w"}, %x: tensor<2xf32> {aicf.role = "input", aicf.name = "x"},
    %s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"})
    -> (tensor<f32> {aicf.role = "loss"}, tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}) {
  %g.of_ranks = nn.all_gather %x {group = "dp", ranks = 2} : (tensor<2xf32>) -> tensor<2x2xf32>
  %g = nn.mul %w, %x : tensor<2xf32>
  %l = nn.sum %g {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  %finite = nn.check_finite %s, %l, %w {code = 1} : (tensor<3xi64>, tensor<f32>, tensor<2xf32>) -> tensor<3xi64>
  func.return %l, %finite : tensor<f32>, tensor<3xi64>
}

// -----

// The last collective carries no status: it is gathered alone.
// CHECK-LABEL: func.func @rows
// CHECK:         %r = nn.all_to_all %x, %first {group = "dp", ranks = 2}
// CHECK:         %status.of_ranks = nn.all_gather %failed, %r {group = "dp", ranks = 2}
// CHECK:         nn.check_ranks %failed, %status.of_ranks {code = 1}
func.func @rows(
    %w: tensor<2xf32> {aicf.role = "param", aicf.name = "w"},
    %x: tensor<2x4xf32> {aicf.role = "input", aicf.name = "x"})
    -> (tensor<2xf32> {aicf.role = "grad", aicf.name = "w"}, tensor<2x4xf32> {aicf.role = "output", aicf.name = "r"}) {
  %first = nn.all_reduce %w {group = "dp", ranks = 2} : tensor<2xf32>
  %r = nn.all_to_all %x {group = "dp", ranks = 2} : tensor<2x4xf32>
  func.return %first, %r : tensor<2xf32>, tensor<2x4xf32>
}
