// Every rule of the verifiers of nn, broken once.
// RUN: aicf-opt %s --split-input-file --verify-diagnostics

%x = "test.op"() : () -> (tensor<?x8xf32>)
// expected-error@below {{expected static shapes, got tensor<?x8xf32>}}
%y = nn.relu %x : tensor<?x8xf32>

// -----

%x = "test.op"() : () -> (tensor<4xi16>)
// expected-error@below {{expected element type i1, i32, i64, f16, bf16, f32 or f64, got tensor<4xi16>}}
%y = nn.reshape %x : (tensor<4xi16>) -> tensor<2x2xi16>

// -----

%x = "test.op"() : () -> (tensor<4x8xi64>)
// expected-error@below {{expected x of element type f16, bf16, f32 or f64, got tensor<4x8xi64>}}
%y = nn.gelu %x : tensor<4x8xi64>

// -----

%x = "test.op"() : () -> (tensor<4x8xf32>)
// expected-error@below {{expected result type tensor<4x8xf32>, got tensor<8x4xf32>}}
%y = nn.silu %x : (tensor<4x8xf32>) -> tensor<8x4xf32>

// -----

// expected-error@below {{expected a whole number of at most 2^53 for tensor<i64>, got 1.5}}
%c = nn.constant {value = 1.5} : tensor<i64>

// -----

// expected-error@below {{value}}
%c = nn.constant : tensor<f32>

// -----

%x, %y = "test.op"() : () -> (tensor<4x8xf32>, tensor<4x8xbf16>)
// expected-error@below {{expected one element type, got tensor<4x8xf32> and tensor<4x8xbf16>; cast one of them}}
%z = nn.add %x, %y : (tensor<4x8xf32>, tensor<4x8xbf16>) -> tensor<4x8xf32>

// -----

%x, %y = "test.op"() : () -> (tensor<4x8xf32>, tensor<4xf32>)
// expected-error@below {{expected shapes that broadcast together (equal or 1, from the last dimension on), got [4, 8] and [4]}}
%z = nn.mul %x, %y : (tensor<4x8xf32>, tensor<4xf32>) -> tensor<4x8xf32>

// -----

%x, %y = "test.op"() : () -> (tensor<4x8xf32>, tensor<8xf32>)
// expected-error@below {{expected result type tensor<4x8xf32>, got tensor<8xf32>}}
%z = nn.div %x, %y : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<8xf32>

// -----

%x = "test.op"() : () -> (tensor<4xi64>)
// expected-error@below {{expected x of element type f16, bf16, f32 or f64, got tensor<4xi64>}}
%z = nn.div %x, %x : tensor<4xi64>

// -----

%c, %x = "test.op"() : () -> (tensor<4xi64>, tensor<4xf32>)
// expected-error@below {{expected condition of element type i1, got tensor<4xi64>}}
%z = nn.where %c, %x, %x : (tensor<4xi64>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>

// -----

%x = "test.op"() : () -> (tensor<4xf32>)
// expected-error@below {{expected result type tensor<4xi1>, got tensor<4xf32>}}
%z = nn.lt %x, %x : tensor<4xf32>

// -----

%x = "test.op"() : () -> (tensor<4x8xf32>)
// expected-error@below {{expected one dimension at most, got dims [0, 1]}}
%i = nn.argmax %x {dims = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<i64>

// -----

%x, %w = "test.op"() : () -> (tensor<4x8xf32>, tensor<4xf32>)
// expected-error@below {{expected weight of type tensor<8xf32>, got tensor<4xf32>}}
%y, %rstd = nn.rms_norm %x, %w {normalized = 1} : (tensor<4x8xf32>, tensor<4xf32>) -> (tensor<4x8xf32>, tensor<4x1xf32>)

// -----

%x, %w = "test.op"() : () -> (tensor<4x8xf32>, tensor<8xf32>)
// expected-error@below {{expected x, a weight and a bias, got 3 operands beside x}}
%y, %mean, %rstd = nn.layer_norm %x, %w, %w, %w {normalized = 1} : (tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x1xf32>, tensor<4x1xf32>)

// -----

%x = "test.op"() : () -> (tensor<4x0xf32>)
// expected-error@below {{expected a dimension of tensor<4x0xf32> that is not empty, got dim 1}}
%v, %i = nn.max_with_index %x {dim = 1} : (tensor<4x0xf32>) -> (tensor<4xf32>, tensor<4xi64>)

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected approximate to be "none" or "tanh", got "erf"}}
%y = nn.gelu %x {approximate = "erf"} : tensor<4x8xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected approximate to be "none" or "tanh", got "erf"}}
%y = nn.gelu_grad %x, %x {approximate = "erf"} : tensor<4x8xf32>

// -----

%dy, %y = "test.op"() : () -> (tensor<4x8xf32>, tensor<4x3xf32>)
// expected-error@below {{expected shapes that broadcast together}}
%dx = nn.relu_grad %dy, %y : (tensor<4x8xf32>, tensor<4x3xf32>) -> tensor<4x8xf32>

// -----

%dy, %x = "test.op"() : () -> (tensor<4x8xf32>, tensor<4x8xf64>)
// expected-error@below {{expected one element type, got tensor<4x8xf32> and tensor<4x8xf64>; cast one of them}}
%dx = nn.silu_grad %dy, %x : (tensor<4x8xf32>, tensor<4x8xf64>) -> tensor<4x8xf32>

// -----

%x, %w = "test.op"() : () -> (tensor<4x8xf32>, tensor<2x9xf32>)
// expected-error@below {{expected w of type tensor<?x8xf32> for x: tensor<4x8xf32>, got tensor<2x9xf32>}}
%y = nn.linear %x, %w : (tensor<4x8xf32>, tensor<2x9xf32>) -> tensor<4x2xf32>

// -----

%x, %w = "test.op"() : () -> (tensor<4x8xf32>, tensor<1x2x8xf32>)
// expected-error@below {{expected w of type tensor<?x8xf32> for x: tensor<4x8xf32>, got tensor<1x2x8xf32>}}
%y = nn.linear %x, %w : (tensor<4x8xf32>, tensor<1x2x8xf32>) -> tensor<4x2xf32>

// -----

%x, %w = "test.op"() : () -> (tensor<4x8xf32>, tensor<2x8xf16>)
// expected-error@below {{expected w of type tensor<?x8xf32> for x: tensor<4x8xf32>, got tensor<2x8xf16>}}
%y = nn.linear %x, %w : (tensor<4x8xf32>, tensor<2x8xf16>) -> tensor<4x2xf32>

// -----

%x, %w = "test.op"() : () -> (tensor<f32>, tensor<2x8xf32>)
// expected-error@below {{expected x of rank 1 or more, got tensor<f32>}}
%y = nn.linear %x, %w : (tensor<f32>, tensor<2x8xf32>) -> tensor<2xf32>

// -----

%x, %w, %b = "test.op"() : () -> (tensor<4x8xf32>, tensor<2x8xf32>, tensor<1x2xf32>)
// expected-error@below {{expected bias of type tensor<2xf32>, got tensor<1x2xf32>}}
%y = nn.linear %x, %w, %b : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<1x2xf32>) -> tensor<4x2xf32>

// -----

%x, %w = "test.op"() : () -> (tensor<4x8xf32>, tensor<2x8xf32>)
// expected-error@below {{Expected 2 or 3 operands, but got 4}}
%y = nn.linear %x, %w, %w, %w : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<4x2xf32>

// -----

%a, %b = "test.op"() : () -> (tensor<4x8xf32>, tensor<9x2xf32>)
// expected-error@below {{expected equal contracted dimensions, got 8 and 9; got a: tensor<4x8xf32>, b: tensor<9x2xf32>}}
%c = nn.matmul %a, %b : (tensor<4x8xf32>, tensor<9x2xf32>) -> tensor<4x2xf32>

// -----

%a, %b = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x2xf32>)
// expected-error@below {{expected equal contracted dimensions, got 4 and 8; got a: tensor<4x8xf32> transposed, b: tensor<8x2xf32>}}
%c = nn.matmul %a, %b {trans_a = true} : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>

// -----

%a, %b = "test.op"() : () -> (tensor<3x4x8xf32>, tensor<8x2xf32>)
// expected-error@below {{expected equal leading dimensions, got a: tensor<3x4x8xf32>, b: tensor<8x2xf32>; broadcast one of them}}
%c = nn.matmul %a, %b : (tensor<3x4x8xf32>, tensor<8x2xf32>) -> tensor<3x4x2xf32>

// -----

%a, %b = "test.op"() : () -> (tensor<4x8xf32>, tensor<8xf32>)
// expected-error@below {{expected b of rank 2 or more, got tensor<8xf32>}}
%c = nn.matmul %a, %b : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4xf32>

// -----

%a, %b = "test.op"() : () -> (tensor<4x8xf32>, tensor<8x2xf16>)
// expected-error@below {{expected one element type, got a: tensor<4x8xf32>, b: tensor<8x2xf16>; cast one of them}}
%c = nn.matmul %a, %b : (tensor<4x8xf32>, tensor<8x2xf16>) -> tensor<4x2xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected 32 elements as in tensor<4x8xf32>, got 36 in tensor<4x9xf32>}}
%y = nn.reshape %x : (tensor<4x8xf32>) -> tensor<4x9xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected result type tensor<32xf32>, got tensor<32xf64>}}
%y = nn.reshape %x : (tensor<4x8xf32>) -> tensor<32xf64>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected perm to be a permutation of 0..1, got [1, 1]}}
%y = nn.transpose %x {perm = array<i64: 1, 1>} : (tensor<4x8xf32>) -> tensor<8x8xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected result type tensor<8x4xf32>, got tensor<4x8xf32>}}
%y = nn.transpose %x {perm = array<i64: 1, 0>} : tensor<4x8xf32>

// -----

%x = "test.op"() : () -> (tensor<4xf32>)
// expected-error@below {{expected shapes that broadcast together (equal or 1, from the last dimension on), got [4] and [4, 8]}}
%y = nn.broadcast_to %x : (tensor<4xf32>) -> tensor<4x8xf32>

// -----

%x = "test.op"() : () -> (tensor<4x8xf32>)
// expected-error@below {{expected an operand that broadcasts to [8], got tensor<4x8xf32>}}
%y = nn.broadcast_to %x : (tensor<4x8xf32>) -> tensor<8xf32>

// -----

%x = "test.op"() : () -> (tensor<4x8xf32>)
// expected-error@below {{expected result type tensor<4x8xf16>, got tensor<8x4xf16>}}
%y = nn.cast %x : (tensor<4x8xf32>) -> tensor<8x4xf16>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected dims sorted, unique and in 0..1 for tensor<4x8xf32>, got [2]}}
%y = nn.sum %x {dims = array<i64: 2>} : (tensor<4x8xf32>) -> tensor<4x8xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected dims sorted, unique and in 0..1 for tensor<4x8xf32>, got [1, 0]}}
%y = nn.mean %x {dims = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<f32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected dims sorted, unique and in 0..1 for tensor<4x8xf32>, got [0, 0]}}
%y = nn.sum %x {dims = array<i64: 0, 0>} : (tensor<4x8xf32>) -> tensor<8xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected dims sorted, unique and in 0..1 for tensor<4x8xf32>, got [-1]}}
%y = nn.sum %x {dims = array<i64: -1>} : (tensor<4x8xf32>) -> tensor<4xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected result type tensor<4x1xf32>, got tensor<4xf32>}}
%y = nn.sum %x {dims = array<i64: 1>, keepdim = true} : (tensor<4x8xf32>) -> tensor<4xf32>

// -----

%x = "test.op"() : () -> (tensor<4xi1>)
// expected-error@below {{expected the operand of element type i32, i64, f16, bf16, f32 or f64, got tensor<4xi1>}}
%y = nn.sum %x {dims = array<i64: 0>} : (tensor<4xi1>) -> tensor<i1>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{dims}}
%y = nn.sum %x : (tensor<4x8xf32>) -> tensor<f32>

// -----

%y, %t = "test.op"() : () -> (tensor<4x8xf32>, tensor<4x1xf32>)
// expected-error@below {{expected t of type tensor<4x8xf32>, got tensor<4x1xf32>}}
%l = nn.mse_loss %y, %t : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<f32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected reduction to be "mean" or "sum", got "none"}}
%l = nn.mse_loss %x, %x {reduction = "none"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<f32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected result type tensor<f32>, got tensor<4x8xf32>}}
%l = nn.mse_loss %x, %x : tensor<4x8xf32>

// -----

%d, %y = "test.op"() : () -> (tensor<1xf32>, tensor<4x8xf32>)
// expected-error@below {{expected dloss of type tensor<f32>, got tensor<1xf32>}}
%dy = nn.mse_loss_grad %d, %y, %y : (tensor<1xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>

// -----

%y, %t = "test.op"() : () -> (tensor<4x8x2xf32>, tensor<4xi64>)
// expected-error@below {{expected logits of shape [rows, classes], classes > 0, got tensor<4x8x2xf32>}}
%l = nn.cross_entropy %y, %t : (tensor<4x8x2xf32>, tensor<4xi64>) -> tensor<f32>

// -----

%y, %t = "test.op"() : () -> (tensor<4x8xf32>, tensor<5xi64>)
// expected-error@below {{expected target of type tensor<4xi64> (or i32), got tensor<5xi64>}}
%l = nn.cross_entropy %y, %t : (tensor<4x8xf32>, tensor<5xi64>) -> tensor<f32>

// -----

%y, %t = "test.op"() : () -> (tensor<4x8xf32>, tensor<4xf32>)
// expected-error@below {{expected target of type tensor<4xi64> (or i32), got tensor<4xf32>}}
%l = nn.cross_entropy %y, %t : (tensor<4x8xf32>, tensor<4xf32>) -> tensor<f32>

// -----

%y, %t = "test.op"() : () -> (tensor<4x8xi64>, tensor<4xi64>)
// expected-error@below {{expected logits of element type f16, bf16, f32 or f64, got tensor<4x8xi64>}}
%l = nn.cross_entropy %y, %t : (tensor<4x8xi64>, tensor<4xi64>) -> tensor<f32>

// -----

%y, %t = "test.op"() : () -> (tensor<4x8xf32>, tensor<4xi64>)
// expected-error@below {{expected reduction to be "mean" or "sum", got "max"}}
%l = nn.cross_entropy %y, %t {reduction = "max"} : (tensor<4x8xf32>, tensor<4xi64>) -> tensor<f32>

// -----

%y, %t = "test.op"() : () -> (tensor<4x8xf32>, tensor<4xi64>)
// expected-error@below {{expected label_smoothing in 0..1, got 1.5}}
%l = nn.cross_entropy %y, %t {label_smoothing = 1.5} : (tensor<4x8xf32>, tensor<4xi64>) -> tensor<f32>

// -----

%d, %y, %t = "test.op"() : () -> (tensor<f64>, tensor<4x8xf32>, tensor<4xi64>)
// expected-error@below {{expected dloss of type tensor<f32>, got tensor<f64>}}
%dy = nn.cross_entropy_grad %d, %y, %t : (tensor<f64>, tensor<4x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>

// -----

%y, %t = "test.op"() : () -> (tensor<4x0xf32>, tensor<4xi64>)
// expected-error@below {{expected logits of shape [rows, classes], classes > 0, got tensor<4x0xf32>}}
%l = nn.cross_entropy %y, %t : (tensor<4x0xf32>, tensor<4xi64>) -> tensor<f32>

// -----

%s, %i = "test.op"() : () -> (tensor<i64>, tensor<4xi64>)
// expected-error@below {{expected status of type tensor<3xi64>, got tensor<i64>}}
%t = nn.check_index %s, %i {code = 1, classes = 2} : (tensor<i64>, tensor<4xi64>) -> tensor<3xi64>

// -----

%s, %i = "test.op"() : () -> (tensor<3xi64>, tensor<4xi64>)
// expected-error@below {{expected a code of 1 or more, got 0}}
%t = nn.check_index %s, %i {code = 0, classes = 2} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>

// -----

%s, %i = "test.op"() : () -> (tensor<3xi64>, tensor<4xi64>)
// expected-error@below {{expected classes of 1 or more, got 0}}
%t = nn.check_index %s, %i {code = 1, classes = 0} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>

// -----

%s, %x = "test.op"() : () -> (tensor<3xi64>, tensor<4xf32>)
// expected-error@below {{expected target of element type i64, i32 or i1, got tensor<4xf32>}}
%t = nn.check_index %s, %x {code = 1, classes = 2} : (tensor<3xi64>, tensor<4xf32>) -> tensor<3xi64>

// -----

%s = "test.op"() : () -> tensor<3xi64>
// expected-error@below {{expected one value or more to check, got none}}
%t = nn.check_finite %s {code = 1} : tensor<3xi64>

// -----

%s, %i = "test.op"() : () -> (tensor<3xi64>, tensor<4xi64>)
// expected-error@below {{expected value 0 of element type f16, bf16, f32 or f64, got tensor<4xi64>}}
%t = nn.check_finite %s, %i {code = 1} : (tensor<3xi64>, tensor<4xi64>) -> tensor<3xi64>

// -----

%x = "test.op"() : () -> (tensor<4x3xf32>)
// expected-error@below {{expected a correction of 0 or more, got -1.0}}
%v, %m = nn.var_mean %x {dims = array<i64: 0>, correction = -1.0} : (tensor<4x3xf32>) -> (tensor<3xf32>, tensor<3xf32>)

// -----

%x = "test.op"() : () -> (tensor<4x3xf32>)
// expected-error@below {{expected result type tensor<3xf32> of result 1, got tensor<4xf32>}}
%v, %m = nn.var_mean %x {dims = array<i64: 0>, correction = 0.0} : (tensor<4x3xf32>) -> (tensor<3xf32>, tensor<4xf32>)

// -----

%q, %k, %v = "test.op"() : () -> (tensor<2x4x3x8xf32>, tensor<2x5x8xf32>, tensor<2x2x5x6xf32>)
// expected-error@below {{expected key of shape [batch, heads, rows, elements], got tensor<2x5x8xf32>}}
%o, %l, %s = nn.attention %q, %k, %v {scale = 1.0} : (tensor<2x4x3x8xf32>, tensor<2x5x8xf32>, tensor<2x2x5x6xf32>) -> (tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)

// -----

%q, %k, %v = "test.op"() : () -> (tensor<2x4x3x8xf32>, tensor<2x3x5x8xf32>, tensor<2x2x5x6xf32>)
// expected-error@below {{expected heads of queries that are a multiple of those of keys, got query: tensor<2x4x3x8xf32> and key: tensor<2x3x5x8xf32>}}
%o, %l, %s = nn.attention %q, %k, %v {scale = 1.0} : (tensor<2x4x3x8xf32>, tensor<2x3x5x8xf32>, tensor<2x2x5x6xf32>) -> (tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)

// -----

%q, %k, %v = "test.op"() : () -> (tensor<2x4x3x0xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>)
// expected-error@below {{expected queries with elements, got tensor<2x4x3x0xf32>}}
%o, %l, %s = nn.attention %q, %k, %v {scale = 1.0} : (tensor<2x4x3x0xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>) -> (tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)

// -----

%q, %k, %v = "test.op"() : () -> (tensor<2x4x3x8xf32>, tensor<2x2x5x7xf32>, tensor<2x2x5x6xf32>)
// expected-error@below {{expected key of type tensor<2x2x5x8xf32>, got tensor<2x2x5x7xf32>}}
%o, %l, %s = nn.attention %q, %k, %v {scale = 1.0} : (tensor<2x4x3x8xf32>, tensor<2x2x5x7xf32>, tensor<2x2x5x6xf32>) -> (tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)

// -----

%q, %k, %v = "test.op"() : () -> (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x4x6xf32>)
// expected-error@below {{expected value of type tensor<2x2x5x6xf32>, got tensor<2x2x4x6xf32>}}
%o, %l, %s = nn.attention %q, %k, %v {scale = 1.0} : (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x4x6xf32>) -> (tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)

// -----

%q, %k, %v = "test.op"() : () -> (tensor<2x4x3x8xi64>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>)
// expected-error@below {{expected query of element type f16, bf16, f32 or f64, got tensor<2x4x3x8xi64>}}
%o, %l, %s = nn.attention %q, %k, %v {scale = 1.0} : (tensor<2x4x3x8xi64>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>) -> (tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)

// -----

%q, %k, %v, %m = "test.op"() : () -> (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<1x1x3x5xf64>)
// expected-error@below {{expected mask of element type i1 or f32, got tensor<1x1x3x5xf64>}}
%o, %l, %s = nn.attention %q, %k, %v, %m {scale = 1.0} : (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<1x1x3x5xf64>) -> (tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)

// -----

%q, %k, %v, %m = "test.op"() : () -> (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<2x2x3x5xf32>)
// expected-error@below {{expected mask of shape [2, 4, 3, 5], or 1 in place of a number, got tensor<2x2x3x5xf32>}}
%o, %l, %s = nn.attention %q, %k, %v, %m {scale = 1.0} : (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<2x2x3x5xf32>) -> (tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)

// -----

%q, %k, %v, %m = "test.op"() : () -> (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<3x5xf32>)
// expected-error@below {{expected mask of shape [2, 4, 3, 5], or 1 in place of a number, got tensor<3x5xf32>}}
%o, %l, %s = nn.attention %q, %k, %v, %m {scale = 1.0} : (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<3x5xf32>) -> (tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)

// -----

%q, %k, %v = "test.op"() : () -> (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>)
// expected-error@below {{expected result type tensor<2x4x3xf32> of result 1, got tensor<2x4x5xf32>}}
%o, %l, %s = nn.attention %q, %k, %v {scale = 1.0} : (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>) -> (tensor<2x4x3x6xf32>, tensor<2x4x5xf32>, tensor<2x4x5xf32>)

// -----

%q, %k, %v, %o, %l, %s = "test.op"() : () -> (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)
// expected-error@below {{expected dout of type tensor<2x4x3x6xf32>, got tensor<2x4x3x8xf32>}}
%dq, %dk, %dv = nn.attention_grad %q, %q, %k, %v, %o, %l, %s {scale = 1.0} : (tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>) -> (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>)

// -----

%q, %k, %v, %o, %l, %s, %m = "test.op"() : () -> (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>, tensor<1x1x3x5xi1>)
// expected-error@below {{expected a mask of floats, got tensor<1x1x3x5xi1>}}
%dm = nn.attention_mask_grad %o, %q, %k, %v, %o, %l, %s, %m {scale = 1.0} : (tensor<2x4x3x6xf32>, tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>, tensor<1x1x3x5xi1>) -> tensor<1x1x3x5xi1>

// -----

%q, %k, %v, %r = "test.op"() : () -> (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<2xi64>)
// expected-error@below {{expected p of at least 0 and at most 1 - 2^-16, got 1.0}}
%o, %l, %s = nn.attention_dropout %q, %k, %v, %r {scale = 1.0, p = 1.0, site = 0} : (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<2xi64>) -> (tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)

// -----

%q, %k, %v, %r = "test.op"() : () -> (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<3xi64>)
// expected-error@below {{expected random of type tensor<2xi64>, got tensor<3xi64>}}
%o, %l, %s = nn.attention_dropout %q, %k, %v, %r {scale = 1.0, p = 0.5, site = 0} : (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<3xi64>) -> (tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)

// -----

%x, %r = "test.op"() : () -> (tensor<8xf32>, tensor<2xi64>)
// expected-error@below {{expected matrices with tiled, got tensor<8xf32>}}
%y = nn.dropout %x, %r {p = 0.5, site = 0, tiled = true} : (tensor<8xf32>, tensor<2xi64>) -> tensor<8xf32>

// -----

%x = "test.op"() : () -> tensor<4x4xf16>
// expected-error@below {{allow_tf32: expected operands of f32, got tensor<4x4xf16>}}
%y = nn.matmul %x, %x {allow_tf32 = true} : (tensor<4x4xf16>, tensor<4x4xf16>) -> tensor<4x4xf16>

// -----

%x = "test.op"() : () -> tensor<4x4xf64>
// expected-error@below {{allow_tf32: expected operands of f32, got tensor<4x4xf64>}}
%y = nn.linear %x, %x {allow_tf32 = true} : (tensor<4x4xf64>, tensor<4x4xf64>) -> tensor<4x4xf64>

// -----

%s, %x = "test.op"() : () -> (tensor<3xi64>, tensor<4xf32>)
// expected-error@below {{expected a rule, one of probability, deviation, divisor, pivot, positive pivot, condition, got 'odd'}}
%t = nn.check_value %s, %x {rule = "odd", of = "f", code = 1} : (tensor<3xi64>, tensor<4xf32>) -> tensor<3xi64>

// -----

%x = "test.op"() : () -> tensor<4xf32>
// expected-error@below {{expected x of element type i32 or i64, got tensor<4xf32>}}
%t = nn.refused %x {rule = "divisor"} : (tensor<4xf32>) -> tensor<4xi1>

// -----

%x, %w = "test.op"() : () -> (tensor<4xf32>, tensor<4x4xf32>)
// expected-error@below {{expected tensor<4x4xf32> as yielded gradients, got tensor<4xf32>}}
%y = nn.custom_gradient of(%x) wrt(%w) : (tensor<4xf32>, tensor<4x4xf32>) -> tensor<4xf32> {
^bb0(%dy: tensor<4xf32>):
  train.yield %dy : (tensor<4xf32>) -> ()
}

// -----

%x = "test.op"() : () -> tensor<4xf32>
// expected-error@below {{expected tensor<4xf32> as arguments of the region, got none}}
%y = nn.custom_gradient of(%x) wrt(%x) : tensor<4xf32> {
  train.yield %x : (tensor<4xf32>) -> ()
}

// -----

%x = "test.op"() : () -> tensor<4xf32>
// expected-error@below {{expected a region that ends with train.yield}}
%y = nn.custom_gradient of(%x) wrt(%x) : tensor<4xf32> {
^bb0(%dy: tensor<4xf32>):
  "test.termop"() : () -> ()
}

// -----

%i = "test.op"() : () -> tensor<4xi64>
// expected-error@below {{expected value 0 of element type f16, bf16, f32 or f64, got tensor<4xi64>}}
%y = nn.custom_gradient of(%i) : tensor<4xi64> {
^bb0(%dy: tensor<4xi64>):
  train.yield : () -> ()
}

// -----

%x = "test.op"() : () -> tensor<4x17xf32>
// expected-error@below {{expected 16 elements at most along dim 1, each of which is compared with each, got 17; nn.argsort has no limit}}
%y = nn.rank %x {dim = 1} : (tensor<4x17xf32>) -> tensor<4x17xi64>

// -----

%x = "test.op"() : () -> tensor<4x17xf32>
// expected-error@below {{expected 16 elements at most along dim 1, each of which is compared with each, got 17; nn.scan has no limit}}
%y = nn.cumsum %x {dim = 1} : tensor<4x17xf32>

// -----

%x, %i = "test.op"() : () -> (tensor<40xf32>, tensor<17xi64>)
%s = "test.op"() : () -> tensor<17xf32>
// expected-error@below {{expected 16 elements at most along dim 0, each of which is compared with each, got 17; nn.scatter_rows has no limit}}
%y = nn.scatter %x, %i, %s {dim = 0} : (tensor<40xf32>, tensor<17xi64>, tensor<17xf32>) -> tensor<40xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected count in 0..8, got 9}}
%y = nn.argsort %x {count = 9} : (tensor<4x8xf32>) -> tensor<4x9xi64>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected first in 0..7, got 8}}
%y = nn.argsort %x {count = 1, first = 8} : (tensor<4x8xf32>) -> tensor<4x1xi64>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected dim in 0..1, got 2}}
%y = nn.scan %x {dim = 2, kind = "sum"} : tensor<4x8xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected a kind of sum, prod, logaddexp, linear, exp_linear, segment_sum, argmax, argmin, got 'mean'}}
%y = nn.scan %x {dim = 0, kind = "mean"} : tensor<4x8xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf32>
// expected-error@below {{expected a factor for the kinds linear, exp_linear and segment_sum alone}}
%y = nn.scan %x {dim = 0, kind = "linear"} : tensor<4x8xf32>

// -----

%x, %i = "test.op"() : () -> (tensor<4x8xf32>, tensor<4xi64>)
// expected-error@below {{expected a kind of max, min, prod, got 'last'}}
%y = nn.scatter_reduce %x, %i, %x {kind = "last"} : (tensor<4x8xf32>, tensor<4xi64>, tensor<4x8xf32>) -> tensor<4x8xf32>

// -----

%x, %i = "test.op"() : () -> (tensor<4xf32>, tensor<4xi64>)
// expected-error@below {{expected x of rank 2 and index of rank 1, got tensor<4xf32> and tensor<4xi64>}}
%y = nn.scatter_rows %x, %i, %x : (tensor<4xf32>, tensor<4xi64>, tensor<4xf32>) -> tensor<4xf32>

// -----

%x, %w, %b = "test.op"() : () -> (tensor<2x4x5x5xf32>, tensor<6x4x3x3xf32>, tensor<4xf32>)
// expected-error@below {{expected bias of type tensor<6xf32>, got tensor<4xf32>}}
%y = nn.convolution %x, %w, %b {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 3, 3>} : (tensor<2x4x5x5xf32>, tensor<6x4x3x3xf32>, tensor<4xf32>) -> tensor<2x6x3x3xf32>

// -----

%x, %w = "test.op"() : () -> (tensor<2x4x5x5xf32>, tensor<6x4x3x3xf32>)
// expected-error@below {{do not fit in 2 groups}}
%y = nn.convolution %x, %w {stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 3, 3>, groups = 2} : (tensor<2x4x5x5xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x3x3xf32>

// -----

%x, %w = "test.op"() : () -> (tensor<2x4x5x5xf32>, tensor<6x4x3x3xf32>)
// expected-error@below {{expected 1 to 3 spatial dimensions and a number for each}}
%y = nn.convolution %x, %w {stride = array<i64: 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 3, 3>} : (tensor<2x4x5x5xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x3x3xf32>

// -----

%x, %w = "test.op"() : () -> (tensor<2x4x5x5xf32>, tensor<6x4x3x3xf32>)
// expected-error@below {{expected stride, dilation and groups from 1 on}}
%y = nn.convolution %x, %w {stride = array<i64: 0, 1>, dilation = array<i64: 1, 1>, low = array<i64: 0, 0>, size = array<i64: 3, 3>} : (tensor<2x4x5x5xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x3x3xf32>

// -----

%x = "test.op"() : () -> tensor<4xf32>
// expected-error@below {{expected 1 rank or more, got 0}}
%y = nn.all_gather %x {group = "dp", ranks = 0} : (tensor<4xf32>) -> tensor<0x4xf32>

// -----

%x = "test.op"() : () -> tensor<4xf32>
// expected-error@below {{expected the name of a group, got none}}
%y = nn.all_gather %x {group = "", ranks = 2} : (tensor<4xf32>) -> tensor<2x4xf32>

// -----

%x = "test.op"() : () -> tensor<4xf32>
// expected-error@below {{x: expected a row for each of 2 ranks, got tensor<4xf32>}}
%y = nn.all_to_all %x {group = "dp", ranks = 2} : (tensor<4xf32>) -> tensor<4xf32>

// -----

%x = "test.op"() : () -> tensor<4xi64>
// expected-error@below {{expected status of type tensor<3xi64>, got tensor<4xi64>}}
%y, %z = nn.all_gather_status %x, %x {group = "dp", ranks = 2} : (tensor<4xi64>, tensor<4xi64>) -> (tensor<2x4xi64>, tensor<2x3xi64>)

// -----

%x, %s = "test.op"() : () -> (tensor<4xf32>, tensor<3xi64>)
// expected-error@below {{expected result type tensor<2x3xi64> of result 1, got tensor<3xi64>}}
%y, %z = nn.all_gather_status %x, %s {group = "dp", ranks = 2} : (tensor<4xf32>, tensor<3xi64>) -> (tensor<2x4xf32>, tensor<3xi64>)

// -----

%x = "test.op"() : () -> tensor<4xi64>
// expected-error@below {{expected x of element type f16, bf16, f32 or f64, got tensor<4xi64>}}
%y = nn.sum_of_ranks %x {group = "dp", ranks = 2} : tensor<4xi64>

// -----

%x = "test.op"() : () -> tensor<4xf32>
// expected-error@below {{expected 1 rank or more, got 0}}
%y = nn.sum_of_ranks %x {group = "dp", ranks = 0} : tensor<4xf32>

// -----

%s, %x = "test.op"() : () -> (tensor<3xi64>, tensor<2x2xi64>)
// expected-error@below {{expected a status of i64[3] for each rank, got tensor<2x2xi64>}}
%y = nn.check_ranks %s, %x {code = 1} : (tensor<3xi64>, tensor<2x2xi64>) -> tensor<3xi64>

// -----

%x, %y = "test.op"() : () -> (tensor<1x2x5xf32>, tensor<1x2x4xf32>)
// expected-error@below {{a window of dimension 0 has no element}}
%t = nn.window_tap %x, %y {kernel = array<i64: 2>, stride = array<i64: 2>, dilation = array<i64: 1>, low = array<i64: 0>, spread = array<i64: 1>, size = array<i64: 4>} : (tensor<1x2x5xf32>, tensor<1x2x4xf32>) -> tensor<1x2x4xi32>

// -----

%x, %y = "test.op"() : () -> (tensor<1x2x5xf32>, tensor<1x2x2xf16>)
// expected-error@below {{expected largest of type tensor<1x2x2xf32>, got tensor<1x2x2xf16>}}
%t = nn.window_tap %x, %y {kernel = array<i64: 2>, stride = array<i64: 2>, dilation = array<i64: 1>, low = array<i64: 0>, spread = array<i64: 1>, size = array<i64: 2>} : (tensor<1x2x5xf32>, tensor<1x2x2xf16>) -> tensor<1x2x2xi32>

// -----

%t = "test.op"() : () -> tensor<1x2x3xi64>
// expected-error@below {{expected tap of type tensor<1x2x3xi32>, got tensor<1x2x3xi64>}}
%i = nn.window_index %t {kernel = array<i64: 2>, stride = array<i64: 2>, dilation = array<i64: 1>, low = array<i64: 0>, spread = array<i64: 1>, size = array<i64: 6>} : (tensor<1x2x3xi64>) -> tensor<1x2x3xi64>

// -----

%d, %t = "test.op"() : () -> (tensor<1x2x3xf32>, tensor<1x2x4xi32>)
// expected-error@below {{expected tap of type tensor<1x2x3xi32>, got tensor<1x2x4xi32>}}
%r = nn.window_route %d, %t {kernel = array<i64: 2>, stride = array<i64: 2>, dilation = array<i64: 1>, low = array<i64: 0>, spread = array<i64: 1>, size = array<i64: 6>} : (tensor<1x2x3xf32>, tensor<1x2x4xi32>) -> tensor<1x2x6xf32>
