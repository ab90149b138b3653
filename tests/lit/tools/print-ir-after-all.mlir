// Dumps go to standard error, so that the result can still be piped.
// RUN: aicf-opt --canonicalize --cse --print-ir-after-all %s 2>&1 >/dev/null | filecheck %s
// RUN: aicf-opt --canonicalize --cse --print-ir-after-all %s 2>/dev/null | aicf-opt | filecheck %s --check-prefix=RESULT

// CHECK:      // -----// IR dump after canonicalize //----- //
// CHECK-NEXT: builtin.module {
// CHECK:      // -----// IR dump after cse //----- //
// CHECK-NEXT: builtin.module {
// RESULT:     func.func @f
// RESULT-NOT: IR dump
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
