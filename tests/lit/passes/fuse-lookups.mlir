// Sums of rows by an index read the rows where they are; on a GPU the index is sorted, once for all that sum by it.
// RUN: aicf-opt %s --fuse-lookups | filecheck %s
// RUN: aicf-opt %s --fuse-lookups=target=sm_90 | filecheck %s --check-prefix=GPU

scalar.body @take(%0: i64, %1: memref<?x?xf32>) -> f32 {
  %2 = scalar.index 1
  %3 = scalar.load %1[%0, %2] : memref<?x?xf32>
  scalar.yield %3 : f32
}

// CHECK-LABEL: func.func @edges
// CHECK:  %view = kernel.view %at : (tensor<5000xi64>) -> tensor<5000x64xi64, strided<[1, 0]>>
// CHECK:  %s = kernel.scatter_add x(%sums) index(%to) src(%nodes) at(%at)
// CHECK:  : (tensor<100x64xf32>, tensor<5000xi64>, tensor<100x64xf32>, tensor<5000xi64>) -> tensor<100x64xf32>
// CHECK:  func.return %s : tensor<100x64xf32>
// GPU-LABEL: func.func @edges
// GPU:    %view = kernel.view %at : (tensor<5000xi64>) -> tensor<5000x64xi64, strided<[1, 0]>>
// GPU:    %0, %1 = kernel.sort_rows index(%to) at(%at) {rows = 100, source_rows = 100}
// GPU:    : (tensor<5000xi64>, tensor<5000xi64>) -> (tensor<5000xi32>, tensor<5000xi32>)
// GPU:    %s = kernel.scatter_add x(%sums) index(%0) src(%nodes) at(%1)
// GPU:    : (tensor<100x64xf32>, tensor<5000xi32>, tensor<100x64xf32>, tensor<5000xi32>) -> tensor<100x64xf32>
// GPU:    func.return %s : tensor<100x64xf32>
func.func @edges(%sums: tensor<100x64xf32>, %nodes: tensor<100x64xf32>, %at: tensor<5000xi64>, %to: tensor<5000xi64>) -> tensor<100x64xf32> {
  %view = kernel.view %at : (tensor<5000xi64>) -> tensor<5000x64xi64, strided<[1, 0]>>
  %rows = kernel.map x(%view) table(%nodes) {body = @take, shape = array<i64: 5000, 64>} : (tensor<5000x64xi64, strided<[1, 0]>>, tensor<100x64xf32>) -> tensor<5000x64xf32>
  %s = kernel.scatter_add x(%sums) index(%to) src(%rows) : (tensor<100x64xf32>, tensor<5000xi64>, tensor<5000x64xf32>) -> tensor<100x64xf32>
  func.return %s : tensor<100x64xf32>
}

// A view of no edges is not looked through: the rows stay.
// CHECK-LABEL: func.func @no_edges
// CHECK:  %s = kernel.scatter_add x(%sums) index(%to) src(%rows)
// CHECK:  : (tensor<4x1xf32>, tensor<0xi64>, tensor<0x1xf32>) -> tensor<4x1xf32>
func.func @no_edges(%sums: tensor<4x1xf32>, %nodes: tensor<4x1xf32>, %at: tensor<0xi64>, %to: tensor<0xi64>) -> tensor<4x1xf32> {
  %view = kernel.view %at : (tensor<0xi64>) -> tensor<0x1xi64, strided<[1, 0]>>
  %rows = kernel.map x(%view) table(%nodes) {body = @take, shape = array<i64: 0, 1>} : (tensor<0x1xi64, strided<[1, 0]>>, tensor<4x1xf32>) -> tensor<0x1xf32>
  %s = kernel.scatter_add x(%sums) index(%to) src(%rows) : (tensor<4x1xf32>, tensor<0xi64>, tensor<0x1xf32>) -> tensor<4x1xf32>
  func.return %s : tensor<4x1xf32>
}
