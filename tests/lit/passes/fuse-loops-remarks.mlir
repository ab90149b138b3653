// With --remarks: each pair of launches of loops that fuse leaves apart, and why.
// RUN: aicf-opt %s -p lower,fuse --remarks --split-input-file --verify-diagnostics

func.func @rows_are_one(%x: tensor<8x32xf32>) -> tensor<8x32xf32> {
  %e = nn.exp %x : tensor<8x32xf32>
  %s = nn.sum %e {dims = array<i64: 1>, keepdim = true} : (tensor<8x32xf32>) -> tensor<8x1xf32>
  %y = nn.div %e, %s : (tensor<8x32xf32>, tensor<8x1xf32>) -> tensor<8x32xf32>
  func.return %y : tensor<8x32xf32>
}

// -----

func.func @behind_sums_of_columns(%x: tensor<8x32xf32>) -> tensor<8x32xf32> {
  %s = nn.sum %x {dims = array<i64: 0>} : (tensor<8x32xf32>) -> tensor<32xf32> // expected-note {{makes what it reads}}
  // expected-remark@below {{'kernel.div' op is not fused with kernel.reduce_sum: it goes on, element by element, from what columns are reduced to, which is there behind the last row}}
  %y = nn.div %x, %s : (tensor<8x32xf32>, tensor<32xf32>) -> tensor<8x32xf32>
  func.return %y : tensor<8x32xf32>
}

// -----

func.func @looked_up(%x: tensor<8x32xf32>, %i: tensor<4x32xi64>) -> tensor<4x32xf32> {
  %e = nn.exp %x : tensor<8x32xf32> // expected-note {{makes what it reads}}
  // expected-remark@below {{'kernel.map' op is not fused with kernel.map: it looks elements up in what the other gives}}
  %y = nn.gather %e, %i {dim = 0} : (tensor<8x32xf32>, tensor<4x32xi64>) -> tensor<4x32xf32>
  func.return %y : tensor<4x32xf32>
}

// -----

func.func @other_order(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %e = nn.exp %x : tensor<8x8xf32> // expected-note {{makes what it reads}}
  %t = nn.transpose %e {perm = array<i64: 1, 0>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-remark@below {{'kernel.map' op is not fused with kernel.map: it reads what the other gives in another order, in part, or more than once}}
  %y = nn.add %e, %t : tensor<8x8xf32>
  func.return %y : tensor<8x8xf32>
}

// -----

func.func @parts(%x: tensor<8x32xf32>) -> tensor<8x16xf32> {
  %e = nn.exp %x : tensor<8x32xf32> // expected-note {{makes what it reads}}
  %a, %b = nn.split %e {dim = 1, sizes = array<i64: 16, 16>} : (tensor<8x32xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>)
  // expected-remark@below {{'kernel.mul' op is not fused with kernel.map: it does not go through the elements of the other in their order}}
  %y = nn.mul %a, %b : tensor<8x16xf32>
  func.return %y : tensor<8x16xf32>
}

// -----

func.func @few_rows(%x: tensor<4x65536xf32>) -> tensor<4x65536xf32> {
  %s = nn.sum %x {dims = array<i64: 1>, keepdim = true} : (tensor<4x65536xf32>) -> tensor<4x1xf32> // expected-note {{makes what it reads}}
  // expected-remark@below {{'kernel.div' op is not fused with kernel.reduce_sum: many blocks share each of the few rows, and something else reads elements that follow a reduction}}
  %y = nn.div %x, %s : (tensor<4x65536xf32>, tensor<4x1xf32>) -> tensor<4x65536xf32>
  func.return %y : tensor<4x65536xf32>
}

// -----

func.func @two_levels(%x: tensor<4x65536xf32>) -> tensor<4xf32> {
  %m = nn.amax %x {dims = array<i64: 1>, keepdim = true} : (tensor<4x65536xf32>) -> tensor<4x1xf32> // expected-note {{makes what it reads}}
  // expected-remark@below {{'kernel.rowwise' op is not fused with kernel.rowwise: many blocks share each of the few rows, so that no reduction follows another}}
  %d = nn.sub %x, %m : (tensor<4x65536xf32>, tensor<4x1xf32>) -> tensor<4x65536xf32>
  %e = nn.exp %d : tensor<4x65536xf32>
  %s = nn.sum %e {dims = array<i64: 1>} : (tensor<4x65536xf32>) -> tensor<4xf32>
  func.return %s : tensor<4xf32>
}

// -----

func.func @rows_then_columns(%x: tensor<64x32xf32>) -> tensor<32xf32> {
  %m = nn.amax %x {dims = array<i64: 1>, keepdim = true} : (tensor<64x32xf32>) -> tensor<64x1xf32> // expected-note {{makes what it reads}}
  %d = nn.sub %x, %m : (tensor<64x32xf32>, tensor<64x1xf32>) -> tensor<64x32xf32>
  %e = nn.exp %d : tensor<64x32xf32>
  // expected-remark@below {{'kernel.reduce_sum' op is not fused with kernel.rowwise: sums of columns beside rows take what follows no reduction, where it is}}
  %s = nn.sum %e {dims = array<i64: 0>} : (tensor<64x32xf32>) -> tensor<32xf32>
  func.return %s : tensor<32xf32>
}

// -----

func.func @other_rows(%x: tensor<8x4x16xf32>) -> (tensor<8xf32>, tensor<8x4xf32>) {
  %e = nn.exp %x : tensor<8x4x16xf32> // expected-note {{makes what it reads}}
  %s = nn.amax %e {dims = array<i64: 2>} : (tensor<8x4x16xf32>) -> tensor<8x4xf32>
  // expected-remark@below {{'kernel.rowwise' op is not fused with kernel.rowwise: the other reduces more or fewer dimensions}}
  %t = nn.amax %e {dims = array<i64: 1, 2>} : (tensor<8x4x16xf32>) -> tensor<8xf32>
  func.return %t, %s : tensor<8xf32>, tensor<8x4xf32>
}

// -----

func.func @reduced_again(%x: tensor<8x4x16xf32>) -> tensor<8xf32> {
  %s = nn.amax %x {dims = array<i64: 2>} : (tensor<8x4x16xf32>) -> tensor<8x4xf32> // expected-note {{makes what it reads}}
  %e = nn.exp %s : tensor<8x4xf32>
  // expected-remark@below {{'kernel.reduce_sum' op is not fused with kernel.rowwise: it does not go through the elements of the other in their order}}
  %t = nn.sum %e {dims = array<i64: 1>} : (tensor<8x4xf32>) -> tensor<8xf32>
  func.return %t : tensor<8xf32>
}
