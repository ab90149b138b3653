// What an optimizer updates stays where the gradients have overflowed; buffers are updated anyway.
// RUN: aicf-opt %s --skip-overflow --split-input-file --verify-diagnostics | filecheck %s

// CHECK-LABEL: func.func @step
// CHECK-NOT:     all_finite"
// CHECK:         %w.next, %s.next, %m.next, %b.next, %finite = "test.op"()
// CHECK:         %w.kept = nn.where %finite, %w.next, %w
// CHECK-NEXT:    %s.kept = nn.where %finite, %s.next, %s
// CHECK-NEXT:    %m.kept = nn.where %finite, %m.next, %m
// CHECK-NEXT:    func.return %w.kept, %s.kept, %m.kept, %b.next
func.func @step(
    %w: tensor<4xf16> {aicf.role = "param", aicf.name = "w"},
    %s: tensor<4xf16> {aicf.role = "state", aicf.name = "s"},
    %m: tensor<2xf64> {aicf.role = "host_scalar", aicf.name = "m"},
    %b: tensor<4xf32> {aicf.role = "buffer", aicf.name = "b"})
    -> (tensor<4xf16> {aicf.role = "update", aicf.name = "w"},
        tensor<4xf16> {aicf.role = "update", aicf.name = "s"},
        tensor<2xf64> {aicf.role = "update", aicf.name = "m"},
        tensor<4xf32> {aicf.role = "update", aicf.name = "b"},
        tensor<i1> {aicf.role = "output", aicf.name = "all_finite"}) {
  %w.next, %s.next, %m.next, %b.next, %finite = "test.op"()
      : () -> (tensor<4xf16>, tensor<4xf16>, tensor<2xf64>, tensor<4xf32>, tensor<i1>)
  func.return %w.next, %s.next, %m.next, %b.next, %finite
      : tensor<4xf16>, tensor<4xf16>, tensor<2xf64>, tensor<4xf32>, tensor<i1>
}

// -----

// expected-error@+1 {{@unscaled has no output named "all_finite"; run scale-loss first}}
func.func @unscaled(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w"}) {
  %w.next = "test.op"() : () -> tensor<4xf32>
  func.return %w.next : tensor<4xf32>
}
