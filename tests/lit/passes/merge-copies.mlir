// RUN: aicf-opt %s -p "merge-copies{target=sm_90}" --split-input-file | filecheck %s
// RUN: aicf-opt %s --merge-copies --split-input-file | filecheck %s --check-prefix=CPU

// Copies whose sources are there at the place of the first are one launch there; views of the sources move along.
// CHECK-LABEL: func.func @together
// CHECK-NEXT:    %[[V:.*]] = kernel.view %a
// CHECK-NEXT:    %[[W:.*]] = kernel.view %b
// CHECK-NEXT:    %[[C:.*]], %[[D:.*]] = kernel.multi_tensor_copy x(%[[V]], %[[W]])
// CHECK-NEXT:      : (tensor<8x4xf32, strided<[1, 8]>>, tensor<8x4xf32, strided<[1, 8]>>) -> (tensor<8x4xf32>, tensor<8x4xf32>)
// CHECK-NEXT:    %[[E:.*]] = kernel.relu x(%[[C]])
// CHECK-NEXT:    %[[F:.*]] = kernel.add x(%[[E]]) y(%[[D]])
// CPU-LABEL: func.func @together
// CPU-NOT:     multi_tensor_copy
func.func @together(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = kernel.view %a : (tensor<4x8xf32>) -> tensor<8x4xf32, strided<[1, 8]>>
  %1 = kernel.copy x(%0) : (tensor<8x4xf32, strided<[1, 8]>>) -> tensor<8x4xf32>
  %2 = kernel.relu x(%1) : tensor<8x4xf32>
  %3 = kernel.view %b : (tensor<8x4xf32>) -> tensor<8x4xf32, strided<[1, 8]>>
  %4 = kernel.copy x(%3) : (tensor<8x4xf32, strided<[1, 8]>>) -> tensor<8x4xf32>
  %5 = kernel.add x(%2) y(%4) : tensor<8x4xf32>
  func.return %5 : tensor<8x4xf32>
}

// -----

// Not a copy of what another is needed for, a cast without another order, a copy of another type, a large one, or one that is
// returned.
// CHECK-LABEL: func.func @apart
// CHECK-NOT:     multi_tensor_copy
func.func @apart(%a: tensor<4x8xf32>, %h: tensor<4x8xf16>, %l: tensor<1024x2048xf32>) -> (tensor<8x4xf32>, tensor<4x8xf16>, tensor<8x4xf16>, tensor<2048x1024xf32>) {
  %0 = kernel.view %a : (tensor<4x8xf32>) -> tensor<8x4xf32, strided<[1, 8]>>
  %1 = kernel.copy x(%0) : (tensor<8x4xf32, strided<[1, 8]>>) -> tensor<8x4xf32>
  %2 = kernel.relu x(%1) : tensor<8x4xf32>
  %3 = kernel.view %2 : (tensor<8x4xf32>) -> tensor<4x8xf32, strided<[1, 4]>>
  %4 = kernel.copy x(%3) : (tensor<4x8xf32, strided<[1, 4]>>) -> tensor<4x8xf32>
  %5 = kernel.copy x(%4) : (tensor<4x8xf32>) -> tensor<4x8xf16>
  %6 = kernel.view %h : (tensor<4x8xf16>) -> tensor<8x4xf16, strided<[1, 8]>>
  %7 = kernel.copy x(%6) : (tensor<8x4xf16, strided<[1, 8]>>) -> tensor<8x4xf16>
  %8 = kernel.relu x(%7) : tensor<8x4xf16>
  %9 = kernel.view %l : (tensor<1024x2048xf32>) -> tensor<2048x1024xf32, strided<[1, 2048]>>
  %10 = kernel.copy x(%9) : (tensor<2048x1024xf32, strided<[1, 2048]>>) -> tensor<2048x1024xf32>
  %11 = kernel.view %a : (tensor<4x8xf32>) -> tensor<8x4xf32, strided<[1, 8]>>
  %12 = kernel.copy x(%11) : (tensor<8x4xf32, strided<[1, 8]>>) -> tensor<8x4xf32>
  func.return %12, %5, %8, %10 : tensor<8x4xf32>, tensor<4x8xf16>, tensor<8x4xf16>, tensor<2048x1024xf32>
}

// -----

// Copies of the batch, which a replay runs once, stay among themselves; one beside which a constant lies is none of them.
// CHECK-LABEL: func.func @batch
// CHECK:         multi_tensor_copy x(%x, %y)
// CHECK:         kernel.join
// CHECK:         multi_tensor_copy x(%z, %{{.*}}, %w, %w)
func.func @batch(%x: tensor<8x1xf32> {aicf.role = "input", aicf.name = "x"}, %y: tensor<8x1xf32> {aicf.role = "input", aicf.name = "y"}, %z: tensor<8x1xf32> {aicf.role = "input", aicf.name = "z"}, %w: tensor<8x1xf32> {aicf.role = "param", aicf.name = "w"}) -> tensor<8x2xf32> {
  %0 = kernel.copy x(%x) : (tensor<8x1xf32>) -> tensor<8x1xf32, strided<[2, 1]>>
  %1 = kernel.copy x(%y) : (tensor<8x1xf32>) -> tensor<8x1xf32, strided<[2, 1], offset: 1>>
  %2 = kernel.join %0, %1 : (tensor<8x1xf32, strided<[2, 1]>>, tensor<8x1xf32, strided<[2, 1], offset: 1>>) -> tensor<8x2xf32>
  %c = kernel.constant {value = 1.0} : tensor<8x1xf32>
  %3 = kernel.copy x(%z) : (tensor<8x1xf32>) -> tensor<8x1xf32, strided<[2, 1]>>
  %4 = kernel.copy x(%c) : (tensor<8x1xf32>) -> tensor<8x1xf32, strided<[2, 1], offset: 1>>
  %5 = kernel.join %3, %4 : (tensor<8x1xf32, strided<[2, 1]>>, tensor<8x1xf32, strided<[2, 1], offset: 1>>) -> tensor<8x2xf32>
  %6 = kernel.copy x(%w) : (tensor<8x1xf32>) -> tensor<8x1xf32, strided<[2, 1]>>
  %7 = kernel.copy x(%w) : (tensor<8x1xf32>) -> tensor<8x1xf32, strided<[2, 1], offset: 1>>
  %8 = kernel.join %6, %7 : (tensor<8x1xf32, strided<[2, 1]>>, tensor<8x1xf32, strided<[2, 1], offset: 1>>) -> tensor<8x2xf32>
  %9 = kernel.add x(%2) y(%5) : tensor<8x2xf32>
  %10 = kernel.add x(%9) y(%8) : tensor<8x2xf32>
  func.return %10 : tensor<8x2xf32>
}

// -----

// Copies to one type of what is made one after the other, which nothing reads before the last is made: there is their launch, and
// views of the results move behind it. They are casts here, as of the gradients of weights.
// CHECK-LABEL: func.func @late
// CHECK-NEXT:    %[[G:.*]] = kernel.relu x(%a)
// CHECK-NEXT:    %[[H:.*]] = kernel.relu x(%[[G]])
// CHECK-NEXT:    %[[C:.*]], %[[D:.*]] = kernel.multi_tensor_copy x(%[[G]], %[[H]])
// CHECK-NEXT:      : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> (tensor<4x8xf32, strided<[1, 4]>>, tensor<4x8xf32, strided<[1, 4]>>)
// CHECK-NEXT:    %[[P:.*]] = kernel.join %[[C]]
// CHECK-NEXT:    %[[Q:.*]] = kernel.join %[[D]]
// CHECK-NEXT:    kernel.add x(%[[P]]) y(%[[Q]])
func.func @late(%a: tensor<4x8xbf16>) -> tensor<8x4xf32> {
  %g = kernel.relu x(%a) : tensor<4x8xbf16>
  %0 = kernel.copy x(%g) : (tensor<4x8xbf16>) -> tensor<4x8xf32, strided<[1, 4]>>
  %1 = kernel.join %0 : (tensor<4x8xf32, strided<[1, 4]>>) -> tensor<8x4xf32>
  %h = kernel.relu x(%g) : tensor<4x8xbf16>
  %2 = kernel.copy x(%h) : (tensor<4x8xbf16>) -> tensor<4x8xf32, strided<[1, 4]>>
  %3 = kernel.join %2 : (tensor<4x8xf32, strided<[1, 4]>>) -> tensor<8x4xf32>
  %4 = kernel.add x(%1) y(%3) : tensor<8x4xf32>
  func.return %4 : tensor<8x4xf32>
}

// -----

// One that is read before the other's source is made stays; so does a copy of a copy, whose place may change.
// CHECK-LABEL: func.func @too_late
// CHECK-NOT:     multi_tensor_copy
func.func @too_late(%a: tensor<4x8xf32>) -> tensor<8x4xf32> {
  %v = kernel.view %a : (tensor<4x8xf32>) -> tensor<8x4xf32, strided<[1, 8]>>
  %0 = kernel.copy x(%v) : (tensor<8x4xf32, strided<[1, 8]>>) -> tensor<8x4xf32>
  %1 = kernel.relu x(%0) : tensor<8x4xf32>
  %w = kernel.view %1 : (tensor<8x4xf32>) -> tensor<4x8xf32, strided<[1, 4]>>
  %2 = kernel.copy x(%w) : (tensor<4x8xf32, strided<[1, 4]>>) -> tensor<4x8xf32>
  %z = kernel.view %2 : (tensor<4x8xf32>) -> tensor<8x4xf32, strided<[1, 8]>>
  %3 = kernel.copy x(%z) : (tensor<8x4xf32, strided<[1, 8]>>) -> tensor<8x4xf32>
  %4 = kernel.add x(%3) y(%1) : tensor<8x4xf32>
  func.return %4 : tensor<8x4xf32>
}

// -----

// A small part of a large block is not written before the rest of it is made: the block would be held from there on.
// CHECK-LABEL: func.func @block
// CHECK-NOT:     multi_tensor_copy
func.func @block(%a: tensor<4x8xf32>, %x: tensor<2048x2040xf32>, %z: tensor<2048x8xf32>) -> (tensor<2048x2048xf32>, tensor<8x4xf32>) {
  %v = kernel.view %a : (tensor<4x8xf32>) -> tensor<8x4xf32, strided<[1, 8]>>
  %1 = kernel.copy x(%v) : (tensor<8x4xf32, strided<[1, 8]>>) -> tensor<8x4xf32>
  %2 = kernel.relu x(%1) : tensor<8x4xf32>
  %y = kernel.relu x(%x) : tensor<2048x2040xf32>
  %3 = kernel.copy x(%y) : (tensor<2048x2040xf32>) -> tensor<2048x2040xf32, strided<[2048, 1]>>
  %4 = kernel.copy x(%z) : (tensor<2048x8xf32>) -> tensor<2048x8xf32, strided<[2048, 1], offset: 2040>>
  %j = kernel.join %3, %4 : (tensor<2048x2040xf32, strided<[2048, 1]>>, tensor<2048x8xf32, strided<[2048, 1], offset: 2040>>) -> tensor<2048x2048xf32>
  %s = kernel.relu x(%j) : tensor<2048x2048xf32>
  func.return %s, %2 : tensor<2048x2048xf32>, tensor<8x4xf32>
}

// -----

// A constant moves in front of its copy, if it is behind.
// CHECK-LABEL: func.func @constant
// CHECK:         %[[C:.*]] = kernel.constant
// CHECK-NEXT:    kernel.multi_tensor_copy x(%{{.*}}, %[[C]])
func.func @constant(%a: tensor<8x1xf32>) -> tensor<8x1xf32> {
  %0 = kernel.view %a : (tensor<8x1xf32>) -> tensor<1x8xf32, strided<[1, 1]>>
  %1 = kernel.copy x(%0) : (tensor<1x8xf32, strided<[1, 1]>>) -> tensor<1x8xf32>
  %2 = kernel.relu x(%a) : tensor<8x1xf32>
  %3 = kernel.constant {value = 0.0} : tensor<1x8xf32>
  %4 = kernel.copy x(%3) : (tensor<1x8xf32>) -> tensor<1x8xf32, strided<[8, 1]>>
  %5 = kernel.join %4 : (tensor<1x8xf32, strided<[8, 1]>>) -> tensor<8x1xf32>
  %6 = kernel.reshape %1 : (tensor<1x8xf32>) -> tensor<8x1xf32>
  %7 = kernel.add x(%2) y(%5) : tensor<8x1xf32>
  %8 = kernel.add x(%7) y(%6) : tensor<8x1xf32>
  func.return %8 : tensor<8x1xf32>
}
