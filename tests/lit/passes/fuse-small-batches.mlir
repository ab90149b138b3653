// On a GPU many small products of f32 are generated, with their sizes as constants.
// RUN: aicf-opt %s --fuse-small-batches=target=sm_90 | filecheck %s
// RUN: aicf-opt %s --fuse-small-batches | filecheck %s --check-prefix=CPU

// CHECK-LABEL: func.func @batch
// CHECK:  %y = kernel.gemm_map a(%a) b(%b) {body = @product}
// CHECK:  : (tensor<256x27x8xf32>, tensor<256x8x27xf32>) -> tensor<256x27x27xf32>
// CHECK:  func.return %y : tensor<256x27x27xf32>
// CPU-LABEL: func.func @batch
// CPU:    %y = kernel.gemm a(%a) b(%b) : (tensor<256x27x8xf32>, tensor<256x8x27xf32>) -> tensor<256x27x27xf32>
// CPU:    func.return %y : tensor<256x27x27xf32>
func.func @batch(%a: tensor<256x27x8xf32>, %b: tensor<256x8x27xf32>) -> tensor<256x27x27xf32> {
  %y = kernel.gemm a(%a) b(%b) : (tensor<256x27x8xf32>, tensor<256x8x27xf32>) -> tensor<256x27x27xf32>
  func.return %y : tensor<256x27x27xf32>
}

// CHECK-LABEL: func.func @few
// CHECK:  %y = kernel.gemm a(%a) b(%b) : (tensor<16x27x8xf32>, tensor<16x8x27xf32>) -> tensor<16x27x27xf32>
// CHECK:  func.return %y : tensor<16x27x27xf32>
// CPU-LABEL: func.func @few
// CPU:    %y = kernel.gemm a(%a) b(%b) : (tensor<16x27x8xf32>, tensor<16x8x27xf32>) -> tensor<16x27x27xf32>
// CPU:    func.return %y : tensor<16x27x27xf32>
func.func @few(%a: tensor<16x27x8xf32>, %b: tensor<16x8x27xf32>) -> tensor<16x27x27xf32> {
  %y = kernel.gemm a(%a) b(%b) : (tensor<16x27x8xf32>, tensor<16x8x27xf32>) -> tensor<16x27x27xf32>
  func.return %y : tensor<16x27x27xf32>
}
