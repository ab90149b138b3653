// Casts of weights: one launch in front of all that reads them, where a launch costs more than the bytes.
// RUN: aicf-opt %s --fuse-arguments=target=sm_90 --split-input-file | filecheck %s
// RUN: aicf-opt %s --fuse --split-input-file | filecheck %s --check-prefix=CPU

// The weights and the batch are cast together; on the CPU, where a launch is a call, each where it is read.
// CHECK-LABEL: func.func @products
// CHECK: %a, %b, %c = kernel.multi_tensor_map x(%x, %p, %q) {body = @copy, segments = 3}
// CHECK: kernel.gemm a(%a) b(%b)
// CHECK: kernel.gemm a(%y) b(%c)
// CHECK: kernel.gemm a(%z) b(%b)
// CPU-LABEL: func.func @products
// CPU-COUNT-3: kernel.copy
func.func @products(%x: tensor<4x4xf32>, %p: tensor<4x4xf32> {aicf.role = "param", aicf.name = "p"}, %q: tensor<4x4xf32> {aicf.role = "param", aicf.name = "q"})
    -> (tensor<4x4xbf16> {aicf.role = "output", aicf.name = "w"}) {
  %a = kernel.copy x(%x) : (tensor<4x4xf32>) -> tensor<4x4xbf16>
  %b = kernel.copy x(%p) : (tensor<4x4xf32>) -> tensor<4x4xbf16>
  %y = kernel.gemm a(%a) b(%b) : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xbf16>
  %c = kernel.copy x(%q) : (tensor<4x4xf32>) -> tensor<4x4xbf16>
  %z = kernel.gemm a(%y) b(%c) : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xbf16>
  %w = kernel.gemm a(%z) b(%b) : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xbf16>
  func.return %w : tensor<4x4xbf16>
}

// -----

// A large cast that is gone before the last one is made would be further memory, and stays; one that is read behind it does not.
// CHECK-LABEL: func.func @large
// CHECK: %b, %d = kernel.multi_tensor_map x(%p, %r) {body = @copy, segments = 2}
// CHECK: kernel.gemm a(%b) b(%b)
// CHECK: %c = kernel.copy x(%q)
func.func @large(%p: tensor<4096x4096xf32>, %q: tensor<4096x4096xf32>, %r: tensor<4096x4096xf32>)
    -> (tensor<4096x4096xbf16> {aicf.role = "output", aicf.name = "w"}) {
  %b = kernel.copy x(%p) : (tensor<4096x4096xf32>) -> tensor<4096x4096xbf16>
  %y = kernel.gemm a(%b) b(%b) : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
  %c = kernel.copy x(%q) : (tensor<4096x4096xf32>) -> tensor<4096x4096xbf16>
  %z = kernel.gemm a(%y) b(%c) : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
  %d = kernel.copy x(%r) : (tensor<4096x4096xf32>) -> tensor<4096x4096xbf16>
  %w = kernel.gemm a(%z) b(%d) : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
  func.return %w : tensor<4096x4096xbf16>
}

// -----

// What lies transposed, other types, and what is made on the way stay apart.
// CHECK-LABEL: func.func @apart
// CHECK-NOT: kernel.multi_tensor_map
func.func @apart(%p: tensor<4x4xf32>, %q: tensor<4x4xf64>, %r: tensor<3x4xf32>)
    -> (tensor<4x4xbf16> {aicf.role = "loss", aicf.name = "u"}, tensor<4x4xbf16> {aicf.role = "output", aicf.name = "v"}, tensor<4x3xbf16> {aicf.role = "output", aicf.name = "w"}) {
  %b = kernel.copy x(%p) : (tensor<4x4xf32>) -> tensor<4x4xbf16>
  %c = kernel.copy x(%q) : (tensor<4x4xf64>) -> tensor<4x4xbf16>
  %across = kernel.view %r : (tensor<3x4xf32>) -> tensor<4x3xf32, strided<[1, 4]>>
  %d = kernel.copy x(%across) : (tensor<4x3xf32, strided<[1, 4]>>) -> tensor<4x3xbf16>
  func.return %b, %c, %d : tensor<4x4xbf16>, tensor<4x4xbf16>, tensor<4x3xbf16>
}

// -----

// What lies in a join is written in each step, so it is not one launch with the casts that last from step to step.
// CHECK-LABEL: func.func @joined
// CHECK: %a = kernel.copy x(%x)
// CHECK: %b, %c = kernel.multi_tensor_map x(%p, %q) {body = @copy, segments = 2}
func.func @joined(%x: tensor<4x4xf32> {aicf.role = "input", aicf.name = "x"}, %p: tensor<4x4xf32> {aicf.role = "param", aicf.name = "p"}, %q: tensor<4x4xf32> {aicf.role = "param", aicf.name = "q"})
    -> (tensor<8x4xbf16> {aicf.role = "output", aicf.name = "w"}) {
  %a = kernel.copy x(%x) : (tensor<4x4xf32>) -> tensor<4x4xbf16>
  %b = kernel.copy x(%p) : (tensor<4x4xf32>) -> tensor<4x4xbf16>
  %c = kernel.copy x(%q) : (tensor<4x4xf32>) -> tensor<4x4xbf16>
  %y = kernel.gemm a(%a) b(%b) : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xbf16>
  %0 = kernel.copy x(%y) : (tensor<4x4xbf16>) -> tensor<4x4xbf16, strided<[4, 1]>>
  %1 = kernel.copy x(%a) : (tensor<4x4xbf16>) -> tensor<4x4xbf16, strided<[4, 1], offset: 16>>
  %2 = kernel.join %0, %1
    : (tensor<4x4xbf16, strided<[4, 1]>>, tensor<4x4xbf16, strided<[4, 1], offset: 16>>) -> tensor<8x4xbf16>
  %w = kernel.gemm a(%2) b(%c) : (tensor<8x4xbf16>, tensor<4x4xbf16>) -> tensor<8x4xbf16>
  func.return %w : tensor<8x4xbf16>
}
