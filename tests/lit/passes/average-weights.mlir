// The average of a parameter is a buffer; the first step makes it the parameter.
// RUN: aicf-opt %s --average-weights="decay=0.75" --split-input-file --verify-diagnostics | filecheck %s
// RUN: not aicf-opt %s --average-weights="decay=1" 2>&1 | filecheck %s --check-prefix=DECAY

// DECAY: expected a decay from 0 to below 1, got 1

// CHECK-LABEL: func.func @step
// CHECK:         %ema: tensor<i64> {aicf.role = "buffer", aicf.name = "ema"},
// CHECK-NEXT:    %w.ema: tensor<4xf16> {aicf.role = "buffer", aicf.name = "ema.w"}
// CHECK:         %eq = nn.eq %ema, %constant
// CHECK:         %ema.next = nn.add %ema, %constant_1
// CHECK:         %sub = nn.sub %cast_1, %cast : tensor<4xf32>
// CHECK-NEXT:    %constant_2 = nn.constant {value = 0.25} : tensor<f32>
// CHECK-NEXT:    %mul = nn.mul %sub, %constant_2
// CHECK-NEXT:    %add = nn.add %cast, %mul
// CHECK-NEXT:    %cast_2 = nn.cast %add : (tensor<4xf32>) -> tensor<4xf16>
// CHECK-NEXT:    %w.ema.next = nn.where %eq, %w.next, %cast_2
// CHECK:         func.return %w.next, %ema.next, %w.ema.next
func.func @step(%w: tensor<4xf16> {aicf.role = "param", aicf.name = "w"})
    -> (tensor<4xf16> {aicf.role = "update", aicf.name = "w"}) {
  %w.next = "test.op"() : () -> tensor<4xf16>
  func.return %w.next : tensor<4xf16>
}

// -----

// expected-error@+1 {{@still updates no parameter; run apply-optimizer first}}
func.func @still(%w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"}) -> tensor<4xf32> {
  func.return %w : tensor<4xf32>
}

// -----

// expected-error@+1 {{@named has a buffer named "ema.w", which average-weights adds; leave it out}}
func.func @named(
    %w: tensor<4xf32> {aicf.role = "param", aicf.name = "w"},
    %b: tensor<4xf32> {aicf.role = "buffer", aicf.name = "ema.w"})
    -> (tensor<4xf32> {aicf.role = "update", aicf.name = "w"}) {
  func.return %b : tensor<4xf32>
}
