// On a GPU sums of rows by an index that need nothing of each other are one launch.
// RUN: aicf-opt %s --fuse-lookups=target=sm_90 --fuse-scatters=target=sm_90 --split-input-file | filecheck %s
// RUN: aicf-opt %s --fuse-scatters --split-input-file | filecheck %s --check-prefix CPU

// Sums of rows of any sizes, on a GPU; what reads their results comes after.
// CHECK-LABEL: func.func @sums(
// CHECK:         %a, %b = kernel.scatter_add x(%x, %y) index(%i, %j) src(%u, %v)
// CHECK:         %flat = kernel.reshape %a
// CHECK-NEXT:    func.return %flat, %b
// CPU-LABEL: func.func @sums(
// CPU:         %a = kernel.scatter_add x(%x) index(%i) src(%u)
// CPU:         %b = kernel.scatter_add x(%y) index(%j) src(%v)
func.func @sums(%x: tensor<9x4xf32>, %i: tensor<6xi64>, %u: tensor<6x4xf32>, %y: tensor<3x2xf32>, %j: tensor<5xi64>, %v: tensor<5x2xf32>) -> (tensor<36xf32>, tensor<3x2xf32>) {
  %a = kernel.scatter_add x(%x) index(%i) src(%u) : (tensor<9x4xf32>, tensor<6xi64>, tensor<6x4xf32>) -> tensor<9x4xf32>
  %flat = kernel.reshape %a : (tensor<9x4xf32>) -> tensor<36xf32>
  %b = kernel.scatter_add x(%y) index(%j) src(%v) : (tensor<3x2xf32>, tensor<5xi64>, tensor<5x2xf32>) -> tensor<3x2xf32>
  func.return %flat, %b : tensor<36xf32>, tensor<3x2xf32>
}

// -----

// The second adds to what the first gives; many sources are sorted, one index at a time.
// CHECK-LABEL: func.func @sums_apart
// CHECK:         %a = kernel.scatter_add x(%x) index(%i) src(%u)
// CHECK:         %b = kernel.scatter_add x(%a) index(%i) src(%u)
// CHECK:         %0, %1 = kernel.sort_rows index(%k) {rows = 9, source_rows = 5000}
// CHECK:         %c = kernel.scatter_add x(%x) index(%0) src(%w) at(%1)
// CHECK:         %d = kernel.scatter_add x(%x) index(%0) src(%w) at(%1)
func.func @sums_apart(%x: tensor<9x4xf32>, %i: tensor<6xi64>, %u: tensor<6x4xf32>, %k: tensor<5000xi64>, %w: tensor<5000x4xf32>) -> (tensor<9x4xf32>, tensor<9x4xf32>, tensor<9x4xf32>) {
  %a = kernel.scatter_add x(%x) index(%i) src(%u) : (tensor<9x4xf32>, tensor<6xi64>, tensor<6x4xf32>) -> tensor<9x4xf32>
  %b = kernel.scatter_add x(%a) index(%i) src(%u) : (tensor<9x4xf32>, tensor<6xi64>, tensor<6x4xf32>) -> tensor<9x4xf32>
  %c = kernel.scatter_add x(%x) index(%k) src(%w) : (tensor<9x4xf32>, tensor<5000xi64>, tensor<5000x4xf32>) -> tensor<9x4xf32>
  %d = kernel.scatter_add x(%x) index(%k) src(%w) : (tensor<9x4xf32>, tensor<5000xi64>, tensor<5000x4xf32>) -> tensor<9x4xf32>
  func.return %b, %c, %d : tensor<9x4xf32>, tensor<9x4xf32>, tensor<9x4xf32>
}

// -----

// A sum of two types by one index that a launch makes: the second kind is written behind the first.
// CHECK-LABEL: func.func @two_types
// CHECK:         %a, %b = kernel.scatter_add
// CHECK:         %c = kernel.scatter_add
// CHECK:         %ha, %hb = kernel.scatter_add
func.func @two_types(%t: tensor<6x1xi64>, %k: tensor<6xi64>, %x: tensor<9x4xf32>, %u: tensor<6x4xf32>, %h: tensor<9x4xbf16>, %hu: tensor<6x4xbf16>) -> (tensor<9x4xf32>, tensor<9x4xf32>, tensor<9x4xf32>, tensor<9x4xbf16>, tensor<9x4xbf16>) {
  %j = kernel.scatter_rows x(%t) index(%k) src(%t) : (tensor<6x1xi64>, tensor<6xi64>, tensor<6x1xi64>) -> tensor<6x1xi64>
  %i = kernel.reshape %j : (tensor<6x1xi64>) -> tensor<6xi64>
  %a = kernel.scatter_add x(%x) index(%i) src(%u) : (tensor<9x4xf32>, tensor<6xi64>, tensor<6x4xf32>) -> tensor<9x4xf32>
  %b = kernel.scatter_add x(%x) index(%i) src(%u) : (tensor<9x4xf32>, tensor<6xi64>, tensor<6x4xf32>) -> tensor<9x4xf32>
  %c = kernel.scatter_add x(%a) index(%i) src(%u) : (tensor<9x4xf32>, tensor<6xi64>, tensor<6x4xf32>) -> tensor<9x4xf32>
  %ha = kernel.scatter_add x(%h) index(%i) src(%hu) : (tensor<9x4xbf16>, tensor<6xi64>, tensor<6x4xbf16>) -> tensor<9x4xbf16>
  %hb = kernel.scatter_add x(%h) index(%i) src(%hu) : (tensor<9x4xbf16>, tensor<6xi64>, tensor<6x4xbf16>) -> tensor<9x4xbf16>
  func.return %a, %b, %c, %ha, %hb : tensor<9x4xf32>, tensor<9x4xf32>, tensor<9x4xf32>, tensor<9x4xbf16>, tensor<9x4xbf16>
}

// -----

// Launches over several matrices, as there are where the rule was applied before, are one with others.
// CHECK-LABEL: func.func @merged_before
// CHECK: %a, %b, %c = kernel.scatter_add x(%x, %y, %x) index(%i, %j, %i) src(%u, %v, %u)
// CHECK: func.return %a, %b, %c
// CPU-LABEL: func.func @merged_before
// CPU: %c = kernel.scatter_add x(%x) index(%i) src(%u)
func.func @merged_before(%x: tensor<9x4xf32>, %i: tensor<6xi64>, %u: tensor<6x4xf32>, %y: tensor<3x2xf32>, %j: tensor<5xi64>, %v: tensor<5x2xf32>) -> (tensor<9x4xf32>, tensor<3x2xf32>, tensor<9x4xf32>) {
  %a, %b = kernel.scatter_add x(%x, %y) index(%i, %j) src(%u, %v) : (tensor<9x4xf32>, tensor<3x2xf32>, tensor<6xi64>, tensor<5xi64>, tensor<6x4xf32>, tensor<5x2xf32>) -> (tensor<9x4xf32>, tensor<3x2xf32>)
  %c = kernel.scatter_add x(%x) index(%i) src(%u) : (tensor<9x4xf32>, tensor<6xi64>, tensor<6x4xf32>) -> tensor<9x4xf32>
  func.return %a, %b, %c : tensor<9x4xf32>, tensor<3x2xf32>, tensor<9x4xf32>
}
