// RUN: aicf-opt %s --keep-scores --split-input-file | filecheck %s
// RUN: aicf-opt %s --keep-scores=target=sm_90 --split-input-file | filecheck %s --check-prefix=GPU
// RUN: aicf-opt %s --keep-scores --decompose --lower --split-input-file | filecheck %s --check-prefix=LOWER

// A CPU keeps the scores of few keys: the gradient reads the weights of the forward pass, and computes none.
// CHECK-LABEL: func.func @train
// CHECK:         %[[SCALED:.*]] = nn.mul %q
// CHECK:         nn.matmul %{{.*}}, %k {trans_b = true}
// CHECK:         %[[WEIGHTS:.*]] = nn.softmax
// CHECK:         nn.matmul %{{.*}}, %v
// CHECK-NOT:     nn.softmax %
// CHECK:         nn.softmax_grad %{{.*}}, %[[WEIGHTS]]
// CHECK-NOT:     nn.attention
// GPU-LABEL: func.func @train
// GPU:         nn.attention %q
// GPU:         nn.attention_grad %d
// LOWER-LABEL: func.func @train
// LOWER-NOT:     attention
// LOWER:         func.return
func.func @train(%q: tensor<2x4x3x8xf32>, %k: tensor<2x2x5x8xf32>, %v: tensor<2x2x5x6xf32>, %d: tensor<2x4x3x6xf32>) -> (tensor<2x4x3x6xf32>, tensor<2x4x3x8xf32>) {
  %y, %m, %s = nn.attention %q, %k, %v {scale = 0.5} : (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>) -> (tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>)
  %dq, %dk, %dv = nn.attention_grad %d, %q, %k, %v, %y, %m, %s {scale = 0.5} : (tensor<2x4x3x6xf32>, tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<2x4x3x6xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>) -> (tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>)
  func.return %y, %dq : tensor<2x4x3x6xf32>, tensor<2x4x3x8xf32>
}

// -----

// Of many causal keys it skips half, and keeps none.
// CHECK-LABEL: func.func @skips
// CHECK-NEXT:    nn.attention %x
// GPU-LABEL: func.func @skips
// LOWER-LABEL: func.func @skips
// LOWER:         kernel.attention
func.func @skips(%x: tensor<1x1x128x8xf32>) -> tensor<1x1x128x8xf32> {
  %y, %m, %s = nn.attention %x, %x, %x {causal = true, scale = 0.5} : (tensor<1x1x128x8xf32>, tensor<1x1x128x8xf32>, tensor<1x1x128x8xf32>) -> (tensor<1x1x128x8xf32>, tensor<1x1x128xf32>, tensor<1x1x128xf32>)
  func.return %y : tensor<1x1x128x8xf32>
}

// -----

// Where a GPU keeps all scores of a forward pass, a band of causal queries has the keys that it sees.
// CHECK-LABEL: func.func @bands
// CHECK-NEXT:    nn.attention %x
// GPU-LABEL: func.func @bands
// GPU:         nn.softmax %{{.*}} : tensor<1x8x512x512xf32>
// GPU:         nn.band %{{.*}} {{.*}}upper = 512
// GPU:         nn.softmax %{{.*}} : tensor<1x8x512x1024xf32>
// GPU:         nn.concat
// LOWER-LABEL: func.func @bands
func.func @bands(%x: tensor<1x8x1024x128xf32>) -> tensor<1x8x1024x128xf32> {
  %y, %m, %s = nn.attention %x, %x, %x {causal = true, scale = 0.5} : (tensor<1x8x1024x128xf32>, tensor<1x8x1024x128xf32>, tensor<1x8x1024x128xf32>) -> (tensor<1x8x1024x128xf32>, tensor<1x8x1024xf32>, tensor<1x8x1024xf32>)
  func.return %y : tensor<1x8x1024x128xf32>
}

// -----

// Without tensor cores a GPU keeps what fits, unless half of it is skipped and there is no gradient.
// CHECK-LABEL: func.func @many
// GPU-LABEL: func.func @many
// GPU:         nn.softmax
// GPU:         nn.softmax_grad
// GPU:         nn.attention %h
// GPU:         nn.attention_grad %h
// GPU:         nn.attention %x, %x, %x {causal = true, scale = 0.25}
// LOWER-LABEL: func.func @many
func.func @many(%x: tensor<1x24x1024x64xf32>, %h: tensor<1x24x1024x64xbf16>) -> (tensor<1x24x1024x64xf32>, tensor<1x24x1024x64xbf16>, tensor<1x24x1024x64xf32>) {
  %ay, %am, %as = nn.attention %x, %x, %x {causal = true, scale = 0.5} : (tensor<1x24x1024x64xf32>, tensor<1x24x1024x64xf32>, tensor<1x24x1024x64xf32>) -> (tensor<1x24x1024x64xf32>, tensor<1x24x1024xf32>, tensor<1x24x1024xf32>)
  %aq, %ak, %av = nn.attention_grad %x, %x, %x, %x, %ay, %am, %as {causal = true, scale = 0.5} : (tensor<1x24x1024x64xf32>, tensor<1x24x1024x64xf32>, tensor<1x24x1024x64xf32>, tensor<1x24x1024x64xf32>, tensor<1x24x1024x64xf32>, tensor<1x24x1024xf32>, tensor<1x24x1024xf32>) -> (tensor<1x24x1024x64xf32>, tensor<1x24x1024x64xf32>, tensor<1x24x1024x64xf32>)
  %by, %bm, %bs = nn.attention %h, %h, %h {causal = true, scale = 0.5} : (tensor<1x24x1024x64xbf16>, tensor<1x24x1024x64xbf16>, tensor<1x24x1024x64xbf16>) -> (tensor<1x24x1024x64xbf16>, tensor<1x24x1024xf32>, tensor<1x24x1024xf32>)
  %bq, %bk, %bv = nn.attention_grad %h, %h, %h, %h, %by, %bm, %bs {causal = true, scale = 0.5} : (tensor<1x24x1024x64xbf16>, tensor<1x24x1024x64xbf16>, tensor<1x24x1024x64xbf16>, tensor<1x24x1024x64xbf16>, tensor<1x24x1024x64xbf16>, tensor<1x24x1024xf32>, tensor<1x24x1024xf32>) -> (tensor<1x24x1024x64xbf16>, tensor<1x24x1024x64xbf16>, tensor<1x24x1024x64xbf16>)
  %cy, %cm, %cs = nn.attention %x, %x, %x {causal = true, scale = 0.25} : (tensor<1x24x1024x64xf32>, tensor<1x24x1024x64xf32>, tensor<1x24x1024x64xf32>) -> (tensor<1x24x1024x64xf32>, tensor<1x24x1024xf32>, tensor<1x24x1024xf32>)
  func.return %aq, %bq, %cy : tensor<1x24x1024x64xf32>, tensor<1x24x1024x64xbf16>, tensor<1x24x1024x64xf32>
}

// -----

// Somebody asks for what is kept of the rows: the op stays.
// CHECK-LABEL: func.func @asked
// CHECK-NEXT:    nn.attention %x
// GPU-LABEL: func.func @asked
// LOWER-LABEL: func.func @asked
// LOWER:         kernel.attention
func.func @asked(%x: tensor<1x1x4x8xf32>) -> tensor<1x1x4xf32> {
  %y, %m, %s = nn.attention %x, %x, %x {scale = 0.5} : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> (tensor<1x1x4x8xf32>, tensor<1x1x4xf32>, tensor<1x1x4xf32>)
  func.return %s : tensor<1x1x4xf32>
}

// -----

// A CPU drops the weights that it keeps, a GPU those that it computes again.
// CHECK-LABEL: func.func @drops
// CHECK:         %[[WEIGHTS:.*]] = nn.softmax
// CHECK-NEXT:    nn.dropout %[[WEIGHTS]], %r {p = 0.25, site = 1, tiled = true}
// CHECK-NOT:     nn.attention
// GPU-LABEL: func.func @drops
// GPU:         nn.attention_dropout %x, %x, %x, %r
// LOWER-LABEL: func.func @drops
// LOWER-NOT:     attention
// LOWER:         func.return
func.func @drops(%x: tensor<1x1x128x8xf32>, %r: tensor<2xi64>) -> tensor<1x1x128x8xf32> {
  %y, %m, %s = nn.attention_dropout %x, %x, %x, %r {causal = true, scale = 0.5, p = 0.25, site = 1} : (tensor<1x1x128x8xf32>, tensor<1x1x128x8xf32>, tensor<1x1x128x8xf32>, tensor<2xi64>) -> (tensor<1x1x128x8xf32>, tensor<1x1x128xf32>, tensor<1x1x128xf32>)
  func.return %y : tensor<1x1x128x8xf32>
}

// -----

// Whichever gradient comes first makes what both read: in 16 bits the widened cotangent.
// CHECK-LABEL: func.func @mask_first
// CHECK:         %[[WIDE:.*]] = nn.cast %g
// CHECK:         nn.matmul %[[WIDE]], %{{.*}} {trans_b = true}
// CHECK:         nn.matmul %{{.*}}, %[[WIDE]] {trans_a = true}
// GPU-LABEL: func.func @mask_first
// LOWER-LABEL: func.func @mask_first
func.func @mask_first(%q: tensor<1x2x8x4xbf16>, %m: tensor<1x2x8x8xbf16>, %g: tensor<1x2x8x4xbf16>) -> (tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x8xbf16>) {
  %o, %l, %t = nn.attention %q, %q, %q, %m {scale = 0.5} : (tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x8xbf16>) -> (tensor<1x2x8x4xbf16>, tensor<1x2x8xf32>, tensor<1x2x8xf32>)
  %dm = nn.attention_mask_grad %g, %q, %q, %q, %o, %l, %t, %m {scale = 0.5} : (tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8xf32>, tensor<1x2x8xf32>, tensor<1x2x8x8xbf16>) -> tensor<1x2x8x8xbf16>
  %dq, %dk, %dv = nn.attention_grad %g, %q, %q, %q, %o, %l, %t, %m {scale = 0.5} : (tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8xf32>, tensor<1x2x8xf32>, tensor<1x2x8x8xbf16>) -> (tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>)
  func.return %o, %dq, %dk, %dv, %dm : tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x8xbf16>
}

// -----

// CHECK-LABEL: func.func @mask_last
// CHECK:         %[[WIDE:.*]] = nn.cast %g
// CHECK:         nn.matmul %{{.*}}, %[[WIDE]] {trans_a = true}
// CHECK:         nn.matmul %[[WIDE]], %{{.*}} {trans_b = true}
// GPU-LABEL: func.func @mask_last
// LOWER-LABEL: func.func @mask_last
func.func @mask_last(%q: tensor<1x2x8x4xbf16>, %m: tensor<1x2x8x8xbf16>, %g: tensor<1x2x8x4xbf16>) -> (tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x8xbf16>) {
  %o, %l, %t = nn.attention %q, %q, %q, %m {scale = 0.5} : (tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x8xbf16>) -> (tensor<1x2x8x4xbf16>, tensor<1x2x8xf32>, tensor<1x2x8xf32>)
  %dq, %dk, %dv = nn.attention_grad %g, %q, %q, %q, %o, %l, %t, %m {scale = 0.5} : (tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8xf32>, tensor<1x2x8xf32>, tensor<1x2x8x8xbf16>) -> (tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>)
  %dm = nn.attention_mask_grad %g, %q, %q, %q, %o, %l, %t, %m {scale = 0.5} : (tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8xf32>, tensor<1x2x8xf32>, tensor<1x2x8x8xbf16>) -> tensor<1x2x8x8xbf16>
  func.return %o, %dq, %dk, %dv, %dm : tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x4xbf16>, tensor<1x2x8x8xbf16>
}
