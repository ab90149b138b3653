// Pass flags run in the order typed and never swallow the file name; -p, options and stages mix with them.
// RUN: aicf-opt --canonicalize --cse %s --dce --timing 2>&1 >/dev/null | filecheck %s --check-prefix=ORDER
// RUN: aicf-opt -p "canonicalize,cse" --dce %s --timing 2>&1 >/dev/null | filecheck %s --check-prefix=ORDER
// RUN: aicf-opt --dce --cse %s --timing 2>&1 >/dev/null | filecheck %s --check-prefix=REVERSED
// RUN: aicf-opt - --cse < %s | filecheck %s
// RUN: aicf-opt %s --cse -o %t && filecheck %s < %t
// RUN: aicf-opt --cse %s --print-op-generic | aicf-opt | filecheck %s

// ORDER: verify the input
// ORDER: canonicalize
// ORDER: verify after passes
// ORDER: cse
// ORDER: dce
// ORDER: 100.0%  total

// REVERSED: dce
// REVERSED: cse

// CHECK:     func.func @twice
// CHECK:       %a = nn.relu %x : tensor<4xf32>
// CHECK-NOT:   nn.relu
// CHECK:       nn.add %a, %a : tensor<4xf32>
func.func @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = nn.relu %x : tensor<4xf32>
  %b = nn.relu %x : tensor<4xf32>
  %c = nn.add %a, %b : tensor<4xf32>
  func.return %c : tensor<4xf32>
}
