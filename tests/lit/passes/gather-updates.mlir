// A rank joins its new parameters, filled up to as many numbers as the rank with the most has. The vote goes with the last
// gather, and all parameters are taken after it.
// RUN: aicf-opt %s --gather-updates=ranks=2 --split-input-file --verify-diagnostics | filecheck %s

// CHECK-LABEL: func.func @step
// CHECK-NOT:     aicf.parts
// CHECK:         %w.next = nn.neg %w
// CHECK-NEXT:    %reshape = nn.reshape %w.next : (tensor<2x1xf32>) -> tensor<2xf32>
// CHECK-NEXT:    %constant = nn.constant {value = 0.0} : tensor<2xf32>
// CHECK-NEXT:    %part = nn.concat %reshape, %constant {dim = 0}
// CHECK-NEXT:    %part.of_ranks = nn.all_gather %part {group = "dp", ranks = 2} : (tensor<4xf32>) -> tensor<2x4xf32>
// A type of which this rank has nothing is filled.
// CHECK-NEXT:    %part_1 = nn.constant {value = 0.0} : tensor<5xf16>
// CHECK-NEXT:    %part.of_ranks_1, %status.of_ranks = nn.all_gather_status %part_1, %failed, %part.of_ranks
// CHECK-NEXT:    : (tensor<5xf16>, tensor<3xi64>, tensor<2x4xf32>)
// CHECK-NEXT:    %voted = nn.check_ranks
// CHECK:         nn.split {{.*}} {dim = 0, sizes = array<i64: 2, 2>}
// CHECK-NEXT:    %w.gathered = nn.reshape
// CHECK-NEXT:    nn.split {{.*}} {dim = 0, sizes = array<i64: 3, 1>}
// CHECK-NEXT:    %v.gathered = nn.reshape
// CHECK-NEXT:    %u.gathered = nn.reshape
// CHECK:         %h.gathered = nn.reshape
// CHECK-NEXT:    func.return %w.gathered, %v.gathered, %u.gathered, %h.gathered, %voted
func.func @step(
    %w: tensor<2x1xf32> {aicf.role = "param", aicf.name = "w"}, %v: tensor<3xf32> {aicf.role = "param", aicf.name = "v"},
    %u: tensor<f32> {aicf.role = "param", aicf.name = "u"}, %h: tensor<5xf16> {aicf.role = "param", aicf.name = "h"})
    -> (tensor<2x1xf32> {aicf.role = "update", aicf.name = "w"}) attributes {aicf.parts = [["w"], ["v", "u", "h"]]} {
  %w.next = nn.neg %w : tensor<2x1xf32>
  func.return %w.next : tensor<2x1xf32>
}

// -----

// expected-error@+1 {{@whole is not divided among 2 ranks; run divide-updates or divide-gradients first}}
func.func @whole(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<4xf32> {aicf.role = "output", aicf.name = "o"}) {
  func.return %w : tensor<4xf32>
}
