// On a GPU a squared error and its gradient are loops: the gradient is written by the product that makes the prediction, or
// with the sum where that product has no such epilogue. The CPU keeps its two launches.
// RUN: aicf-opt %s --fuse=target=sm_90 | filecheck %s --check-prefix=OWN
// RUN: aicf-opt %s --fuse='target="sm_90+cublaslt"' | filecheck %s --check-prefix=LT
// RUN: aicf-opt %s --fuse | filecheck %s --check-prefix=CPU
// RUN: aicf-opt %s --fuse-losses=target=sm_90 | filecheck %s --check-prefix=ALONE

// OWN-LABEL: func.func @mean
// OWN:         %y, %dy = kernel.gemm_map a(%x) b(%w) x(%t)
// OWN:         %loss = kernel.rowwise x(%y, %t) {body = @squared_error, reduced = 2, shape = array<i64: 32, 16>}
// OWN-NOT:     kernel.{{[a-z]}}
// OWN:         func.return
// LT-LABEL:  func.func @mean
// LT:          %y, %dy = kernel.gemm_map a(%x) b(%w) x(%t)
// ALONE-LABEL: func.func @mean
// ALONE:       kernel.gemm
// ALONE-NOT:   kernel.mse
// ALONE:       kernel.rowwise
// ALONE:       kernel.map
// ALONE:       func.return
// CPU-LABEL: func.func @mean
// CPU:         kernel.mse_loss y(%y) t(%t)
// CPU:         kernel.mse_grad dloss(%one) y(%y) t(%t)
func.func @mean(%x: tensor<32x64xf32>, %w: tensor<64x16xf32>, %t: tensor<32x16xf32>) -> (tensor<f32>, tensor<32x16xf32>) {
  %y = kernel.gemm a(%x) b(%w) : (tensor<32x64xf32>, tensor<64x16xf32>) -> tensor<32x16xf32>
  %loss = kernel.mse_loss y(%y) t(%t) : (tensor<32x16xf32>, tensor<32x16xf32>) -> tensor<f32>
  %one = kernel.constant {value = 1.0} : tensor<f32>
  %dy = kernel.mse_grad dloss(%one) y(%y) t(%t) : (tensor<f32>, tensor<32x16xf32>, tensor<32x16xf32>) -> tensor<32x16xf32>
  func.return %loss, %dy : tensor<f32>, tensor<32x16xf32>
}

// Where much is read and columns are summed of it, as for the gradient of a bias, one launch reads it: the sum of all is that of
// sums of columns.
// LT-LABEL:  func.func @large_mean
// LT:          %y = kernel.gemm a(%x) b(%w)
// LT:          %[[SUMS:.*]], %dy, %db = kernel.colwise x(%y, %t)
// LT-NEXT:       reduced = 1, shape = array<i64: 65536, 16>
// LT:          %loss = kernel.rowwise x(%[[SUMS]]) {body = @squared_error{{.*}}, reduced = 1, shape = array<i64: 16>}
// LT-NOT:      kernel.{{[a-z]}}
// LT:          func.return
func.func @large_mean(%x: tensor<65536x512xf32>, %w: tensor<512x16xf32>, %t: tensor<65536x16xf32>) -> (tensor<f32>, tensor<65536x16xf32>, tensor<16xf32>) {
  %y = kernel.gemm a(%x) b(%w) : (tensor<65536x512xf32>, tensor<512x16xf32>) -> tensor<65536x16xf32>
  %loss = kernel.mse_loss y(%y) t(%t) : (tensor<65536x16xf32>, tensor<65536x16xf32>) -> tensor<f32>
  %one = kernel.constant {value = 1.0} : tensor<f32>
  %dy = kernel.mse_grad dloss(%one) y(%y) t(%t) : (tensor<f32>, tensor<65536x16xf32>, tensor<65536x16xf32>) -> tensor<65536x16xf32>
  %db = kernel.reduce_sum x(%dy) {dims = array<i64: 0>} : (tensor<65536x16xf32>) -> tensor<16xf32>
  func.return %loss, %dy, %db : tensor<f32>, tensor<65536x16xf32>, tensor<16xf32>
}

// Casts on both sides are part of the one pass, a scale of the loss is its operand, and a sum is not divided.
// LT-LABEL:  func.func @scaled_sum
// LT:          %view = kernel.view %scale : (tensor<f32>) -> tensor<8x16xf32, strided<[0, 0]>>
// LT:          %dy16, %loss = kernel.rowwise x(%y, %view, %t)
// LT-NOT:      kernel.{{[a-z]}}
// LT:          func.return
func.func @scaled_sum(%y: tensor<8x16xbf16>, %t: tensor<8x16xf32>, %scale: tensor<f32>) -> (tensor<f32>, tensor<8x16xbf16>) {
  %y32 = kernel.copy x(%y) : (tensor<8x16xbf16>) -> tensor<8x16xf32>
  %loss = kernel.mse_loss y(%y32) t(%t) {reduction = "sum"} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<f32>
  %dy = kernel.mse_grad dloss(%scale) y(%y32) t(%t) {reduction = "sum"} : (tensor<f32>, tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %dy16 = kernel.copy x(%dy) : (tensor<8x16xf32>) -> tensor<8x16xbf16>
  func.return %loss, %dy16 : tensor<f32>, tensor<8x16xbf16>
}

// Of a single number there is nothing to walk.
// OWN-LABEL: func.func @number
// OWN:         kernel.mse_loss
func.func @number(%y: tensor<f32>, %t: tensor<f32>) -> tensor<f32> {
  %loss = kernel.mse_loss y(%y) t(%t) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}

// Cross entropy and its gradient are one walk of each row, behind the number of rows that count; casts are part of it.
// LT-LABEL:  func.func @cross_entropy
// LT:          kernel.rowwise x(%t) {body = @rows_kept, reduced = 1, shape = array<i64: 32>}
// LT:          kernel.rowwise x(%z, %view, %view_1)
// LT-NEXT:       {body = @copy_cross_entropy_and_grad, reduced = 1, shape = array<i64: 32, 100>}
// LT:          %loss = kernel.rowwise x({{.*}}, %t) {body = @mean_of_rows
// LT-NOT:      kernel.
// LT:          func.return
// CPU-LABEL: func.func @cross_entropy
// CPU:         kernel.cross_entropy logits(%logits)
// CPU:         kernel.cross_entropy_grad dloss(%one) logits(%logits)
func.func @cross_entropy(%z: tensor<32x100xbf16>, %t: tensor<32xi64>) -> (tensor<f32>, tensor<32x100xbf16>) {
  %logits = kernel.copy x(%z) : (tensor<32x100xbf16>) -> tensor<32x100xf32>
  %loss = kernel.cross_entropy logits(%logits) target(%t) : (tensor<32x100xf32>, tensor<32xi64>) -> tensor<f32>
  %one = kernel.constant {value = 1.0} : tensor<f32>
  %dlogits = kernel.cross_entropy_grad dloss(%one) logits(%logits) target(%t) : (tensor<f32>, tensor<32x100xf32>, tensor<32xi64>) -> tensor<32x100xf32>
  %dz = kernel.copy x(%dlogits) : (tensor<32x100xf32>) -> tensor<32x100xbf16>
  func.return %loss, %dz : tensor<f32>, tensor<32x100xbf16>
}

// A cotangent that follows from the loss comes too late for one walk.
// LT-LABEL:  func.func @after_the_loss
// LT:          kernel.rowwise {{.*}}@cross_entropy
// LT:          kernel.rowwise {{.*}}@cross_entropy_grad
func.func @after_the_loss(%z: tensor<32x100xf32>, %t: tensor<32xi64>) -> (tensor<f32>, tensor<32x100xf32>) {
  %loss = kernel.cross_entropy logits(%z) target(%t) {reduction = "sum"} : (tensor<32x100xf32>, tensor<32xi64>) -> tensor<f32>
  %dz = kernel.cross_entropy_grad dloss(%loss) logits(%z) target(%t) {reduction = "sum"} : (tensor<f32>, tensor<32x100xf32>, tensor<32xi64>) -> tensor<32x100xf32>
  func.return %loss, %dz : tensor<f32>, tensor<32x100xf32>
}

// A gradient in front of the loss stays there, before what reads it; loop fusion has the loss join it.
// LT-LABEL:  func.func @gradient_first
// LT:          %dz, %row_losses = kernel.rowwise
// LT:          kernel.gemm a(%dz)
// LT:          %loss = kernel.rowwise x(%row_losses)
func.func @gradient_first(%z: tensor<32x16xf32>, %t: tensor<32xi64>, %one: tensor<f32>, %w: tensor<16x16xf32>) -> (tensor<f32>, tensor<32x16xf32>) {
  %dz = kernel.cross_entropy_grad dloss(%one) logits(%z) target(%t) {reduction = "sum"} : (tensor<f32>, tensor<32x16xf32>, tensor<32xi64>) -> tensor<32x16xf32>
  %dx = kernel.gemm a(%dz) b(%w) : (tensor<32x16xf32>, tensor<16x16xf32>) -> tensor<32x16xf32>
  %loss = kernel.cross_entropy logits(%z) target(%t) {reduction = "sum"} : (tensor<32x16xf32>, tensor<32xi64>) -> tensor<f32>
  func.return %loss, %dx : tensor<f32>, tensor<32x16xf32>
}

// The cotangent may be a constant that something reads before the loss.
// LT-LABEL:  func.func @shared_constant
// LT:          %one = kernel.constant
// LT:          %two = kernel.add x(%s) y(%one)
// LT:          %row_losses, %dz = kernel.rowwise
func.func @shared_constant(%z: tensor<32x16xf32>, %t: tensor<32xi64>, %s: tensor<f32>) -> (tensor<f32>, tensor<32x16xf32>, tensor<f32>) {
  %one = kernel.constant {value = 1.0} : tensor<f32>
  %two = kernel.add x(%s) y(%one) : tensor<f32>
  %loss = kernel.cross_entropy logits(%z) target(%t) {reduction = "sum"} : (tensor<32x16xf32>, tensor<32xi64>) -> tensor<f32>
  %dz = kernel.cross_entropy_grad dloss(%one) logits(%z) target(%t) {reduction = "sum"} : (tensor<f32>, tensor<32x16xf32>, tensor<32xi64>) -> tensor<32x16xf32>
  func.return %loss, %dz, %two : tensor<f32>, tensor<32x16xf32>, tensor<f32>
}
