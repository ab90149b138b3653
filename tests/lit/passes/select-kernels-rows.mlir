// The schedules of reductions whose rows lie side by side: neighbours of a thread, threads of a row, elements read ahead or held.
// RUN: aicf-opt %s --fuse-loops=target=sm_90 --select-kernels=target=sm_90 | filecheck %s
// RUN: aicf-opt %s --fuse-loops --select-kernels | filecheck %s --check-prefix=CPU

// 28 bf16 of 56 bytes are read 8 bytes at a time, 14 of 28 bytes 4 at a time.
// CHECK-LABEL: func.func @positions
// CHECK: gen_rowwise_{{[0-9a-f]+}}[rows width=4 lanes=1 ahead=16 side=128]
// CHECK: gen_rowwise_{{[0-9a-f]+}}[rows width=2 lanes=1 ahead=16 side=128]
// CPU-LABEL: func.func @positions
// CPU-COUNT-2: id "reduce_sum_cpu"
func.func @positions(%x: tensor<64x2x28x28x28x28xbf16>, %y: tensor<64x1x56x56x14x14xbf16>)
    -> (tensor<64x2x28x28x28xbf16>, tensor<64x1x56x56x14xbf16>) {
  %0 = kernel.reduce_sum x(%x) {dims = array<i64: 4>} : (tensor<64x2x28x28x28x28xbf16>) -> tensor<64x2x28x28x28xbf16>
  %1 = kernel.reduce_sum x(%y) {dims = array<i64: 4>} : (tensor<64x1x56x56x14x14xbf16>) -> tensor<64x1x56x56x14xbf16>
  func.return %0, %1 : tensor<64x2x28x28x28xbf16>, tensor<64x1x56x56x14xbf16>
}

scalar.body @amax(%0: f32) -> f32 {
  %1 = scalar.max %0 : f32
  scalar.yield %1 : f32
}

scalar.body @shared(%0: f32, %1: f32, %2: f32) -> f32 {
  %3 = arith.cmpf oeq, %1, %2 : f32
  %4 = arith.constant 1.000000e+00 : f32
  %5 = arith.constant 0.000000e+00 : f32
  %6 = arith.select %3, %4, %5 : f32
  %7 = scalar.sum %6 : f32
  %8 = arith.divf %6, %7 : f32
  %9 = arith.mulf %0, %8 : f32
  %10 = scalar.sum %9 : f32
  scalar.yield %10 : f32
}

// A row of 4 elements has one thread, which holds it where it is walked again.
// CHECK-LABEL: func.func @pooled
// CHECK: gen_rowwise_{{[0-9a-f]+}}[rows width=8 lanes=1 ahead=4 side=128]
func.func @pooled(%q: tensor<64x4x784x192xbf16>) -> tensor<64x784x192xbf16> {
  %x = kernel.view %q : (tensor<64x4x784x192xbf16>) -> tensor<64x784x192x4xbf16, strided<[602112, 192, 1, 150528]>>
  %0 = kernel.rowwise x(%x) {body = @amax, reduced = 1, shape = array<i64: 64, 784, 192, 4>}
    : (tensor<64x784x192x4xbf16, strided<[602112, 192, 1, 150528]>>) -> tensor<64x784x192xbf16>
  func.return %0 : tensor<64x784x192xbf16>
}

// CHECK-LABEL: func.func @gradient
// CHECK: gen_rowwise_{{[0-9a-f]+}}[rows width=8 lanes=1 chunks=4 side=128]
func.func @gradient(%q: tensor<64x4x784x192xbf16>, %y: tensor<64x784x192xbf16>, %dy: tensor<64x784x192xbf16>)
    -> tensor<64x784x192xf32> {
  %x = kernel.view %q : (tensor<64x4x784x192xbf16>) -> tensor<64x784x192x4xbf16, strided<[602112, 192, 1, 150528]>>
  %y4 = kernel.view %y : (tensor<64x784x192xbf16>) -> tensor<64x784x192x4xbf16, strided<[150528, 192, 1, 0]>>
  %dy4 = kernel.view %dy : (tensor<64x784x192xbf16>) -> tensor<64x784x192x4xbf16, strided<[150528, 192, 1, 0]>>
  %0 = kernel.rowwise x(%dy4, %x, %y4) {body = @shared, reduced = 1, shape = array<i64: 64, 784, 192, 4>}
    : (tensor<64x784x192x4xbf16, strided<[150528, 192, 1, 0]>>, tensor<64x784x192x4xbf16, strided<[602112, 192, 1, 150528]>>,
       tensor<64x784x192x4xbf16, strided<[150528, 192, 1, 0]>>) -> tensor<64x784x192xf32>
  func.return %0 : tensor<64x784x192xf32>
}

// Few rows have many threads, and these fewer neighbours.
// CHECK-LABEL: func.func @tokens
// CHECK: gen_rowwise_{{[0-9a-f]+}}[rows width=4 lanes=8 ahead=16 side=32]
func.func @tokens(%x: tensor<64x197x768xbf16>) -> tensor<64x768xbf16> {
  %0 = kernel.reduce_sum x(%x) {dims = array<i64: 1>, divisor = 197.0} : (tensor<64x197x768xbf16>) -> tensor<64x768xbf16>
  func.return %0 : tensor<64x768xbf16>
}
