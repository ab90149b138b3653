// The vote is the last collective; a function without a status gets one.
// RUN: aicf-opt %s --vote-ranks=ranks=2 --split-input-file | filecheck %s

// CHECK-LABEL: func.func @checked
// CHECK:         %all = nn.all_gather %w {group = "dp", ranks = 2}
// CHECK:         %status.of_ranks = nn.all_gather %c, %all {group = "dp", ranks = 2}
// CHECK-NEXT:      : (tensor<3xi64>, tensor<2x4xf32>) -> tensor<2x3xi64>
// CHECK-NEXT:    %voted = nn.check_ranks %c, %status.of_ranks {code = 5}
// CHECK:         func.return %voted
func.func @checked(
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"},
    %i: tensor<4xi64> {aicf.role = "input", aicf.name = "i"},
    %s: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"})
    -> (tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}, tensor<2x4xf32> {aicf.role = "output", aicf.name = "all"}) {
  %c = nn.check_index %s, %i {classes = 2, code = 4} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>
  %all = nn.all_gather %w {group = "dp", ranks = 2} : (tensor<4xf32>) -> tensor<2x4xf32>
  func.return %c, %all : tensor<3xi64>, tensor<2x4xf32>
}

// -----

// CHECK-LABEL: func.func @unchecked
// CHECK:         %failed: tensor<3xi64> {aicf.role = "status", aicf.name = "failed"}
// CHECK:         %status.of_ranks = nn.all_gather %failed {group = "dp", ranks = 2} : (tensor<3xi64>) -> tensor<2x3xi64>
// CHECK-NEXT:    %voted = nn.check_ranks %failed, %status.of_ranks {code = 1}
// CHECK:         func.return %w, %voted
func.func @unchecked(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"})
    -> (tensor<4xf32> {aicf.role = "output", aicf.name = "w"}) {
  func.return %w : tensor<4xf32>
}
