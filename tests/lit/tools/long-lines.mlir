// Lists that do not fit on a line are broken; what is broken reads back, and is printed the same.
// RUN: aicf-opt %s | filecheck %s
// RUN: aicf-opt %s | aicf-opt - | filecheck %s
// RUN: aicf-opt %s --print-op-generic | aicf-opt - | filecheck %s

// Labelled arguments and results: one a line. Attributes nest.
// CHECK:      func.func @header(
// CHECK-NEXT:   %x: tensor<2x4xf32> {aicf.role = "input", aicf.name = "x"},
// CHECK-NEXT:   %w: tensor<2x4xf32> {aicf.role = "param", aicf.name = "w"}
// CHECK-NEXT: ) -> (
// CHECK-NEXT:   tensor<2x4xf32> {aicf.role = "output", aicf.name = "first"},
// CHECK-NEXT:   tensor<2x4xf32> {aicf.role = "output", aicf.name = "second"}
// CHECK-NEXT: ) attributes {
// CHECK-NEXT:   aicf.optimizer = [{kind = "sgd", params = ["w"], momentum = false, nesterov = false, maximize = false}],
// CHECK-NEXT:   aicf.target = "cpu"
// CHECK-NEXT: } {
// CHECK-NEXT:   func.return %x, %w : tensor<2x4xf32>, tensor<2x4xf32>
func.func @header(%x: tensor<2x4xf32> {aicf.role = "input", aicf.name = "x"}, %w: tensor<2x4xf32> {aicf.role = "param", aicf.name = "w"}) -> (tensor<2x4xf32> {aicf.role = "output", aicf.name = "first"}, tensor<2x4xf32> {aicf.role = "output", aicf.name = "second"}) attributes {aicf.optimizer = [{kind = "sgd", params = ["w"], momentum = false, nesterov = false, maximize = false}], aicf.target = "cpu"} {
  func.return %x, %w : tensor<2x4xf32>, tensor<2x4xf32>
}

// A list of more than sixteen: one a line. A shorter one, and numbers: as many as fit. What fits stays on its line.
// CHECK:      func.func @operands(%a: tensor<4xi64>) {
// CHECK-NEXT:   "test.op"(%a) : (tensor<4xi64>) -> ()
// CHECK-NEXT:   %short.of.sixteen.1, %short.of.sixteen.2, %short.of.sixteen.3, %short.of.sixteen.4, %short.of.sixteen.5,
// CHECK-NEXT:     %short.of.sixteen.6, %short.of.sixteen.7 = "test.op"() : () -> (i64, i64, i64, i64, i64, i64, i64)
// CHECK:        func.return
func.func @operands(%a: tensor<4xi64>) {
  "test.op"(%a) : (tensor<4xi64>) -> ()
  %short.of.sixteen.1, %short.of.sixteen.2, %short.of.sixteen.3, %short.of.sixteen.4, %short.of.sixteen.5, %short.of.sixteen.6, %short.of.sixteen.7 = "test.op"() : () -> (i64, i64, i64, i64, i64, i64, i64)
  func.return
}

// CHECK:      func.func @seventeen(
// CHECK-NEXT:   %a0: i64,
// CHECK-NEXT:   %a1: i64,
// CHECK:      ) -> (i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64) attributes {long = array<i64:
// CHECK-NEXT:     10000000, 10000001, 10000002, 10000003, 10000004, 10000005, 10000006, 10000007, 10000008, 10000009, 10000010>} {
// CHECK-NEXT:   func.return %a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7, %a8, %a9, %a10, %a11, %a12, %a13, %a14, %a15, %a16
// CHECK-NEXT:     : i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64
func.func @seventeen(%a0: i64, %a1: i64, %a2: i64, %a3: i64, %a4: i64, %a5: i64, %a6: i64, %a7: i64, %a8: i64, %a9: i64, %a10: i64, %a11: i64, %a12: i64, %a13: i64, %a14: i64, %a15: i64, %a16: i64) -> (i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64) attributes {long = array<i64: 10000000, 10000001, 10000002, 10000003, 10000004, 10000005, 10000006, 10000007, 10000008, 10000009, 10000010>} {
  func.return %a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7, %a8, %a9, %a10, %a11, %a12, %a13, %a14, %a15, %a16 : i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64
}
