// RUN: aicf-opt %s --keep-parts='target=sm_90' --split-input-file | filecheck %s
// RUN: aicf-opt %s --keep-parts --split-input-file | filecheck %s --check-prefix=CPU

// A quarter of a block is read 16 launches after the rest: it is copied, and the block is free.
// CHECK-LABEL: func.func @late
// CHECK:         %[[V:.*]] = kernel.view %b
// CHECK-NEXT:    %[[P:.*]] = kernel.view %b
// CHECK-NEXT:    %[[R:.*]] = kernel.map x(%[[V]])
// CHECK:         %[[C:.*]] = kernel.copy x(%[[P]])
// CHECK:         kernel.map x(%[[C]])
// CHECK:         kernel.map x(%{{.*}}, %[[C]])
// CPU-LABEL: func.func @late
// CPU-NOT:       kernel.copy
scalar.body @doubled(%0: f32) -> f32 {
  %1 = arith.addf %0, %0 : f32
  scalar.yield %1 : f32
}
scalar.body @added(%0: f32, %1: f32) -> f32 {
  %2 = arith.addf %0, %1 : f32
  scalar.yield %2 : f32
}
func.func @late(%x: tensor<4096x2048xf32>) -> (tensor<4096x1024xf32>, tensor<4096x512xf32>) {
  %b = kernel.relu x(%x) : tensor<4096x2048xf32>
  %v = kernel.view %b : (tensor<4096x2048xf32>) -> tensor<4096x1024xf32, strided<[2048, 1]>>
  %p = kernel.view %b : (tensor<4096x2048xf32>) -> tensor<4096x512xf32, strided<[2048, 1], offset: 1536>>
  %r = kernel.map x(%v) {body = @doubled, shape = array<i64: 4096, 1024>} : (tensor<4096x1024xf32, strided<[2048, 1]>>) -> tensor<4096x1024xf32>
  %0 = kernel.map x(%p) {body = @doubled, shape = array<i64: 4096, 512>} : (tensor<4096x512xf32, strided<[2048, 1], offset: 1536>>) -> tensor<4096x512xf32>
  %1 = kernel.relu x(%0) : tensor<4096x512xf32>
  %2 = kernel.relu x(%1) : tensor<4096x512xf32>
  %3 = kernel.relu x(%2) : tensor<4096x512xf32>
  %4 = kernel.relu x(%3) : tensor<4096x512xf32>
  %5 = kernel.relu x(%4) : tensor<4096x512xf32>
  %6 = kernel.relu x(%5) : tensor<4096x512xf32>
  %7 = kernel.relu x(%6) : tensor<4096x512xf32>
  %8 = kernel.relu x(%7) : tensor<4096x512xf32>
  %9 = kernel.relu x(%8) : tensor<4096x512xf32>
  %10 = kernel.relu x(%9) : tensor<4096x512xf32>
  %11 = kernel.relu x(%10) : tensor<4096x512xf32>
  %12 = kernel.relu x(%11) : tensor<4096x512xf32>
  %13 = kernel.relu x(%12) : tensor<4096x512xf32>
  %14 = kernel.relu x(%13) : tensor<4096x512xf32>
  %15 = kernel.relu x(%14) : tensor<4096x512xf32>
  %y = kernel.map x(%15, %p) {body = @added, shape = array<i64: 4096, 512>} : (tensor<4096x512xf32>, tensor<4096x512xf32, strided<[2048, 1], offset: 1536>>) -> tensor<4096x512xf32>
  func.return %r, %y : tensor<4096x1024xf32>, tensor<4096x512xf32>
}

// -----

// What is read soon after the rest stays where it is, as does a half of a block.
// CHECK-LABEL: func.func @soon
// CHECK-NOT:     kernel.copy
scalar.body @doubled(%0: f32) -> f32 {
  %1 = arith.addf %0, %0 : f32
  scalar.yield %1 : f32
}
func.func @soon(%x: tensor<4096x2048xf32>) -> (tensor<4096x1024xf32>, tensor<4096x512xf32>) {
  %b = kernel.relu x(%x) : tensor<4096x2048xf32>
  %v = kernel.view %b : (tensor<4096x2048xf32>) -> tensor<4096x1024xf32, strided<[2048, 1]>>
  %p = kernel.view %b : (tensor<4096x2048xf32>) -> tensor<4096x512xf32, strided<[2048, 1], offset: 1536>>
  %r = kernel.map x(%v) {body = @doubled, shape = array<i64: 4096, 1024>} : (tensor<4096x1024xf32, strided<[2048, 1]>>) -> tensor<4096x1024xf32>
  %y = kernel.map x(%p) {body = @doubled, shape = array<i64: 4096, 512>} : (tensor<4096x512xf32, strided<[2048, 1], offset: 1536>>) -> tensor<4096x512xf32>
  func.return %r, %y : tensor<4096x1024xf32>, tensor<4096x512xf32>
}
