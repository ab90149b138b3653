// Every rule of plans, broken once: nothing unbound, out of bounds, overlapping, unordered or wrongly written.
// RUN: aicf-opt %s --split-input-file --verify-diagnostics

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  // expected-error@below {{@x is defined twice; arenas, slots and launches share one set of names}}
  plan.slot @x : memref<4xf32> input "y"
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  // expected-error@below {{a plan.program holds plan.arena, plan.slot and plan.launch only, got func.func}}
  func.func private @f()
}

// -----

plan.program @p target "cpu" peak 0 {
  // expected-error@below {{an arena is named after a role, one of input, param, buffer, state, host_scalar, status, const, grad, temp, copy, output; got @mine}}
  plan.arena @mine 256
}

// -----

plan.program @p target "cpu" peak 100 {
  // expected-error@below {{the size of @temp must be a multiple of 256 bytes, got 100}}
  plan.arena @temp 100
}

// -----

plan.program @p target "cpu" {
  // expected-error@below {{the role of @x must be one of input, param, buffer, state, host_scalar, status, const, grad, temp, copy, output; got weight}}
  plan.slot @x : memref<4xf32> weight "x"
}

// -----

plan.program @p target "cpu" {
  // expected-error@below {{a const slot, and no other, has a value: @c is const}}
  plan.slot @c : memref<4xf32> const
}

// -----

plan.program @p target "cpu" {
  // expected-error@below {{a const slot, and no other, has a value: @v is temp}}
  plan.slot @v : memref<4xf32> temp 1.0
}

// -----

plan.program @p target "cpu" {
  // expected-error@below {{slots of input, param, buffer, state, host_scalar, status, grad, output, and no others, have a name: @x is input}}
  plan.slot @x : memref<4xf32> input
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "a"
  // expected-error@below {{expected one input slot named "a", got @y as a second one}}
  plan.slot @y : memref<4xf32> input "a"
}

// -----

plan.program @p target "cpu" {
  // expected-error@below {{slots of input, param, buffer, state, host_scalar, status, grad, output, and no others, have a name: @v is temp}}
  plan.slot @v : memref<4xf32> temp "v"
}

// -----

plan.program @p target "cpu" {
  // expected-error@below {{element type must be one of f32, f64, f16, bf16, i64, i32, i8, i1, got i16}}
  plan.slot @x : memref<4xi16> input "x"
}

// -----

plan.program @p target "cpu" {
  // expected-error@below {{expected a static shape, got memref<?xf32>}}
  plan.slot @x : memref<?xf32> input "x"
}

// -----

plan.program @p target "cpu" {
  // expected-error@below {{@y is an alias of @x, which is no slot of this plan}}
  plan.slot @y : memref<4xf32> input alias @x
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @y : memref<2x2xf32> input alias @x
  // expected-error@below {{@z must be an alias of @x, which owns the memory of @y}}
  plan.slot @z : memref<4x1xf32> input alias @y
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  // expected-error@below {{the alias @y has its name, value and live range from @x}}
  plan.slot @y : memref<2x2xf32> input "y" alias @x
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  // expected-error@below {{the alias @y must be like its owner @x: input, f32, 16 bytes; got input, f32, 24 bytes}}
  plan.slot @y : memref<2x3xf32> input alias @x
}

// -----

plan.program @p target "cpu" {
  // expected-error@below {{@x has a place, but the program has no arenas}}
  plan.slot @x in @input[0] : memref<4xf32> input "x"
}

// -----

plan.program @p target "cpu" peak 256 {
  plan.arena @input 256
  // expected-error@below {{@x has no place; the arenas show that plan-memory has run}}
  plan.slot @x : memref<4xf32> input "x"
}

// -----

plan.program @p target "cpu" peak 256 {
  plan.arena @input 256
  // expected-error@below {{@x is input and must be in @input, got @param}}
  plan.slot @x in @param[0] : memref<4xf32> input "x"
}

// -----

plan.program @p target "cpu" peak 256 {
  plan.arena @input 256
  // expected-error@below {{@w is in @param, which is no arena of this plan}}
  plan.slot @w in @param[0] : memref<4xf32> param "w"
}

// -----

plan.program @p target "cpu" peak 512 {
  plan.arena @input 512
  // expected-error@below {{the offset of @x must be a multiple of 256, got 16}}
  plan.slot @x in @input[16] : memref<4xf32> input "x"
}

// -----

plan.program @p target "cpu" peak 512 {
  plan.arena @input 512
  // expected-error@below {{@x ends at byte 516 of @input, which has 512 bytes}}
  plan.slot @x in @input[256] : memref<65xf32> input "x"
}

// -----

plan.program @p target "cpu" peak 512 {
  plan.arena @input 512
  plan.slot @x in @input[0] : memref<4xf32> input "x"
  // expected-error@below {{the alias @y must be at the place of @x}}
  plan.slot @y in @input[256] : memref<2x2xf32> input alias @x
}

// -----

// expected-error@below {{the peak must be 512 bytes, the sum of all arenas, got 1024}}
plan.program @p target "cpu" peak 1024 {
  plan.arena @input 512
}

// -----

plan.program @p target "cpu" peak 512 {
  plan.arena @input 512
  plan.slot @x in @input[0] : memref<100xf32> input "x"
  // expected-error@below {{@y overlaps @x in memory; both are in use all the time}}
  plan.slot @y in @input[256] : memref<4xf32> input "y"
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @v : memref<4xf32> temp
  // expected-error@below {{@k0 uses @y, which is no slot of this plan}}
  plan.launch @k0 "relu_cpu" relu x(@y) -> y(@v)
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  // expected-error@below {{@k0 writes @x; input slots are only read}}
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@x)
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @c : memref<4xf32> const 1.0
  // expected-error@below {{@k0 writes @c; const slots are only read}}
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@c)
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @v : memref<4xf32> temp
  // expected-error@below {{there is no op 'softplus'; known are}}
  plan.launch @k0 "softplus_cpu" softplus x(@x) -> y(@v)
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @v : memref<5xf32> temp
  // expected-error@below {{@k0: relu: y: expected f32[4], got f32[5]}}
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@v)
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @v : memref<4xf32> temp
  // expected-error@below {{@k0: kernel 'relu_f32_vec4' cannot run relu(f32[4]) -> (f32[4]) on cpu: runs on cuda}}
  plan.launch @k0 "relu_f32_vec4" relu x(@x) -> y(@v)
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @v : memref<4xf32> temp
  // expected-error@below {{@k0: relu has no attribute slope; it takes none}}
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@v) {slope = 0.5}
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @v : memref<4xf32> temp
  // expected-error@below {{attribute 'slope' must be true, false, an integer, a float, a string, a symbol, a list of strings or of symbols, or array<i64: ...>, got [1 : i64]}}
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@v) {slope = [1]}
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @w : memref<64xi8> output "w"
  plan.slot @v : memref<4xf32> temp
  // expected-error@below {{the workspace @w of @k0 must be a temp slot}}
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@v) workspace @w
}

// -----

plan.program @p target "cpu" {
  plan.slot @v : memref<4xf32> temp
  plan.slot @y : memref<4xf32> output "y"
  // expected-error@below {{@k0 reads @v, which no earlier launch has written}}
  plan.launch @k0 "relu_cpu" relu x(@v) -> y(@y)
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @y : memref<4xf32> output "y"
  // expected-error@below {{no launch writes @z}}
  plan.slot @z : memref<4xf32> output "z"
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@y)
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @p : memref<4xf32> param "p"
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@p)
  // expected-error@below {{@k1 writes @p, which @k0 has already updated in this step}}
  plan.launch @k1 "neg_cpu" neg x(@x) -> y(@p) after @k0
}

// -----

plan.program @p target "cpu" {
  plan.slot @a : memref<4x4xf32> input "a"
  plan.slot @v : memref<4x4xf32> temp
  plan.launch @k0 "copy_cpu" copy x(@a) -> y(@v)
  // expected-error@below {{@k1 reads @v and writes @v in the same memory, which gemm cannot do}}
  plan.launch @k1 "gemm_cpu_plain" gemm a(@a) b(@v) -> out(@v) after @k0
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @v : memref<4xf32> temp
  plan.slot @y : memref<4xf32> output "y"
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@v)
  // expected-error@below {{@k1 must be after @k0: they use the same memory, and one of them writes it}}
  plan.launch @k1 "neg_cpu" neg x(@v) -> y(@y)
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @p : memref<4xf32> param "p"
  plan.slot @y : memref<4xf32> output "y"
  plan.launch @k0 "relu_cpu" relu x(@p) -> y(@y)
  // expected-error@below {{@k1 must be after @k0: they use the same memory, and one of them writes it}}
  plan.launch @k1 "neg_cpu" neg x(@x) -> y(@p)
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @y : memref<4xf32> output "y"
  // expected-error@below {{@k0 is after @k0, which is no earlier launch}}
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@y) after @k0
}

// -----

plan.program @p target "cpu" peak 768 {
  plan.arena @input 256
  plan.arena @temp 256
  plan.arena @output 256
  plan.slot @x in @input[0] : memref<4xf32> input "x"
  // expected-error@below {{@v is live 0..1, got 0..0}}
  plan.slot @v in @temp[0] : memref<4xf32> temp live 0..0
  plan.slot @y in @output[0] : memref<4xf32> output "y"
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@v)
  plan.launch @k1 "neg_cpu" neg x(@v) -> y(@y) after @k0
}

// -----

plan.program @p target "cpu" peak 256 {
  plan.arena @temp 256
  // expected-error@below {{no launch uses @v}}
  plan.slot @v in @temp[0] : memref<4xf32> temp live 0..0
}

// -----

plan.program @p target "cpu" peak 768 {
  plan.arena @input 256
  plan.arena @temp 256
  plan.arena @output 256
  plan.slot @x in @input[0] : memref<4xf32> input "x"
  plan.slot @v in @temp[0] : memref<4xf32> temp live 0..2
  // expected-error@below {{@w overlaps @v in memory while both are live}}
  plan.slot @w in @temp[0] : memref<4xf32> temp live 1..2
  plan.slot @y in @output[0] : memref<4xf32> output "y"
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@v)
  plan.launch @k1 "neg_cpu" neg x(@x) -> y(@w) after @k0
  plan.launch @k2 "add_cpu" add x(@v) y(@w) -> z(@y) after @k1
}

// -----

plan.program @p target "cpu" peak 768 {
  plan.arena @input 256
  plan.arena @host_scalar 256
  plan.arena @temp 256
  plan.slot @x in @input[0] : memref<64xf32> input "x"
  plan.slot @lr in @host_scalar[0] : memref<f64> host_scalar "lr"
  plan.slot @v in @temp[0] : memref<64xf32> temp live 0..0
  plan.slot @w in @temp[0] : memref<64xf32> temp live 0..0
  // expected-error@below {{@k0 writes @v and @w, which overlap in memory}}
  plan.launch @k0 "sgd_step_cpu" sgd_step p(@x, @x) g(@x, @x) lr(@lr) weight_decay(@lr) -> p(@v, @w) {groups = array<i64: 0, 0>}
}

// -----

plan.program @p target "cpu" peak 1024 {
  plan.arena @param 256
  plan.arena @input 512
  plan.arena @host_scalar 256
  plan.slot @w in @param[0] : memref<64xf32> param "w"
  plan.slot @g in @input[0] : memref<64xf64> input "g"
  plan.slot @lr in @host_scalar[0] : memref<f64> host_scalar "lr"
  // expected-error@below {{sgd_step: g[0]: expected element type f32, f16 or bf16 beside a parameter of f32, got f64[64]}}
  plan.launch @k0 "sgd_step_cpu" sgd_step p(@w) g(@g) lr(@lr) weight_decay(@lr) -> p(@w) {groups = array<i64: 0>}
}

// -----

// expected-error@below {{cannot be parsed: Integer value 99999999999999999999 is out of range for type i64 which supports values in the range [-9223372036854775808, 18446744073709551616)}}
plan.program @p target "cpu" peak 99999999999999999999 {
}

// -----

plan.program @p target "cpu" {
  // expected-error@below {{expected a range of launches such as 0..4}}
  plan.slot @v : memref<4xf32> temp live 0
}

// -----

// expected-error@below {{string literal expected: a target such as "cpu" or "sm_90"}}
plan.program @p target cpu {
}

// -----

// expected-error@below {{'plan.launch' expects parent op 'plan.program'}}
plan.launch @k0 "relu_cpu" relu x(@x) -> y(@y)

// -----

// expected-error@below {{'plan.slot' expects parent op 'plan.program'}}
plan.slot @x : memref<4xf32> input "x"

// -----

// expected-error@below {{'plan.arena' expects parent op 'plan.program'}}
plan.arena @input 256

// -----

// A layout is refused until kernels honour it.
plan.program @p target "cpu" peak 512 {
  plan.arena @input 512
  // expected-error@below {{expected a dense memref such as memref<4x8xf32>: only an alias has a layout; got memref<4x8xf32, strided<[1000000, 4], offset: 7>>}}
  plan.slot @x in @input[0] : memref<4x8xf32, strided<[1000000, 4], offset: 7>> input "x"
}

// -----

plan.program @p target "cpu" {
  // expected-error@below {{expected a memref such as memref<4xf32>: slots have no memory spaces; got memref<4xf32, 1 : i64>}}
  plan.slot @x : memref<4xf32, 1> input "x"
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  // expected-error@below {{expected a name such as @a, got @x::@y}}
  "plan.slot"() <{sym_name = "y", type = memref<4xf32>, role = "input", alias = @x::@y}> : () -> ()
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @y : memref<4xf32> output "y"
  // expected-error@below {{expected a name such as @a, got @x::@y}}
  "plan.launch"() <{sym_name = "k0", kernel_id = "relu_cpu", op = "relu", inputs = [@x::@y], outputs = [@y], attrs = {}}> : () -> ()
}

// -----

// A workspace is written by its launch: what the slot held is lost.
plan.program @p target "cpu" {
  plan.slot @x : memref<64xf32> input "x"
  plan.slot @v : memref<64xf32> temp
  plan.slot @y : memref<64xf32> output "y"
  plan.slot @z : memref<64xf32> output "z"
  plan.launch @k0 "neg_cpu" neg x(@x) -> y(@v)
  plan.launch @k1 "relu_cpu" relu x(@x) -> y(@y) workspace @v after @k0
  // expected-error@below {{@k2 reads @v, which is the workspace of @k1}}
  plan.launch @k2 "relu_cpu" relu x(@v) -> y(@z) after @k1
}

// -----

// The launch before a workspace must be done with it.
plan.program @p target "cpu" {
  plan.slot @x : memref<64xf32> input "x"
  plan.slot @v : memref<64xf32> temp
  plan.slot @y : memref<64xf32> output "y"
  plan.slot @z : memref<64xf32> output "z"
  plan.launch @k0 "neg_cpu" neg x(@x) -> y(@v)
  plan.launch @k1 "relu_cpu" relu x(@v) -> y(@z) after @k0
  // expected-error@below {{@k2 must be after @k0: they use the same memory, and one of them writes it}}
  plan.launch @k2 "relu_cpu" relu x(@x) -> y(@y) workspace @v
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<64xf32> input "x"
  plan.slot @y : memref<64xf32> output "y"
  // expected-error@below {{the workspace @y of @k0 must be a temp slot}}
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@y) workspace @y
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<64xf32> input "x"
  plan.slot @v : memref<64xf32> temp
  // expected-error@below {{@k0 writes @v and @v, which overlap in memory}}
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@v) workspace @v
}

// -----

// A wrong in-place: what @k0 wrote would be lost for @k2.
plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @v : memref<4xf32> temp
  plan.slot @y : memref<4xf32> output "y"
  plan.launch @k0 "neg_cpu" neg x(@x) -> y(@v)
  // expected-error@below {{@k1 writes @v, which holds the result of @k0: only a launch that reads it may overwrite it; give the new value a slot of its own}}
  plan.launch @k1 "relu_cpu" relu x(@x) -> y(@v) after @k0
  plan.launch @k2 "relu_cpu" relu x(@v) -> y(@y) after @k1
}

// -----

plan.program @p target "cpu" {
  // expected-error@below {{no launch uses @v; leave it out}}
  plan.slot @v : memref<4xf32> temp
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  // expected-error@below {{expected @g to be named after a param; there is none named "x"}}
  plan.slot @g : memref<4xf32> grad "x"
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@g)
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> param "x"
  // expected-error@below {{expected @g to be like its param, memref<4xf32>, got memref<2x2xf32>}}
  plan.slot @g : memref<2x2xf32> grad "x"
}

// -----

plan.program @p target "cpu" {
  // expected-error@below {{a status is of type memref<3xi64>, got memref<i32>}}
  plan.slot @s : memref<i32> status "status"
}

// -----

plan.program @p target "cpu" {
  plan.slot @s : memref<3xi64> status "s"
  // expected-error@below {{expected one status, got @t beside @s}}
  plan.slot @t : memref<3xi64> status "t"
}

// -----

plan.program @p target "cpu" {
  plan.slot @s : memref<3xi64> status "failed"
  plan.slot @step : memref<1xf32> state "step"
  // expected-error@below {{@k0 writes @step; expected `predicate not @s`: the checks may fail}}
  plan.launch @k0 "advance_cpu" advance step(@step) -> step(@step)
}

// -----

plan.program @p target "cpu" {
  plan.slot @step : memref<1xf32> state "step"
  // expected-error@below {{@k0 is skipped by @step; there is no status in this plan}}
  plan.launch @k0 "advance_cpu" advance step(@step) -> step(@step) predicate not @step
}

// -----

plan.program @p target "cpu" {
  plan.slot @step : memref<1xf32> state "step"
  // expected-error@below {{@k0 uses @gone, which is no slot of this plan}}
  plan.launch @k0 "advance_cpu" advance step(@step) -> step(@step) predicate not @gone
}

// -----

plan.program @p target "cpu" {
  plan.slot @s : memref<3xi64> status "failed"
  plan.slot @step : memref<1xf32> state "step"
  // expected-error@below {{@k0 is skipped by @step; there is the status @s}}
  plan.launch @k0 "advance_cpu" advance step(@step) -> step(@step) predicate not @step
}

// -----

plan.program @p target "cpu" {
  plan.slot @s : memref<3xi64> status "failed"
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @v : memref<4xf32> temp
  // expected-error@below {{@k0 may be skipped, which would leave @v without a value; only param, buffer, state, host_scalar slots keep their old one}}
  plan.launch @k0 "neg_cpu" neg x(@x) -> y(@v) predicate not @s
}

// -----

plan.program @p target "cpu" {
  plan.slot @s : memref<3xi64> status "failed"
  plan.slot @t : memref<4xi64> input "t"
  plan.slot @step : memref<1xf32> state "step"
  // expected-error@below {{@k0 comes before @k1, which computes @s}}
  plan.launch @k0 "advance_cpu" advance step(@step) -> step(@step) predicate not @s
  plan.launch @k1 "check_index_cpu" check_index status(@s) target(@t) -> status(@s) {classes = array<i64: 2>, code = 1} after @k0
}

// -----

plan.program @p target "cpu" {
  plan.slot @s : memref<3xi64> status "failed"
  plan.slot @t : memref<4xi64> input "t"
  plan.slot @step : memref<1xf32> state "step"
  plan.launch @k0 "check_index_cpu" check_index status(@s) target(@t) -> status(@s) {classes = array<i64: 2>, code = 1}
  // expected-error@below {{@k1 must be after @k0: they use the same memory, and one of them writes it}}
  plan.launch @k1 "advance_cpu" advance step(@step) -> step(@step) predicate not @s
}

// -----

plan.program @p target "cpu" {
  plan.slot @s : memref<3xi64> status "failed"
  plan.slot @t : memref<3xi64> input "t"
  // expected-error@below {{@k0 writes a status; only check_index, check_finite, check_ranks tell the host of it}}
  plan.launch @k0 "copy_cpu" copy x(@t) -> y(@s)
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4x6xf32> input "x"
  // expected-error@below {{expected @v inside the 24 elements of @x, got memref<4x2xf32, strided<[6, 1], offset: 5>>, which ends at 25}}
  plan.slot @v : memref<4x2xf32, strided<[6, 1], offset: 5>> input alias @x
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4x6xf32> input "x"
  // expected-error@below {{the alias @v must be like its owner @x: input, f32, 96 bytes; got input, f16, 96 bytes}}
  plan.slot @v : memref<4x2xf16, strided<[6, 1]>> input alias @x
}

// -----

// Collectives without an order, and without a vote after them.
plan.program @p target "cpu" {
  plan.slot @x : memref<2xf32> input "x"
  plan.slot @y : memref<2x2xf32> output "y"
  plan.slot @z : memref<2x2xf32> output "z"
  plan.launch @k0 "all_gather_cpu" all_gather x(@x) -> y(@y) {group = "dp", ranks = 2}
  // expected-error@below {{@k1 does not wait for the collective in front of it: expected after(@y)}}
  plan.launch @k1 "all_gather_cpu" all_gather x(@x) -> y(@z) {group = "dp", ranks = 2}
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<2xf32> input "x"
  plan.slot @w : memref<2xf32> param "w"
  plan.slot @y : memref<2x2xf32> output "y"
  // expected-error@below {{@k0 is the last collective, and no check_ranks reads @y: the ranks vote last}}
  plan.launch @k0 "all_gather_cpu" all_gather x(@x) -> y(@y) {group = "dp", ranks = 2}
  plan.launch @k1 "relu_cpu" relu x(@x) -> y(@w)
}

// -----

// A vote on another status than the one that the ranks have told.
plan.program @p target "cpu" {
  plan.slot @s : memref<3xi64> status "failed"
  plan.slot @other : memref<3xi64> input "other"
  plan.slot @x : memref<2xf32> param "x"
  plan.slot @y : memref<2x2xf32> output "y"
  plan.slot @all : memref<2x3xi64> output "all"
  plan.launch @k0 "all_gather_status_cpu" all_gather_status x(@x) status(@other) -> y(@y) statuses(@all) {group = "dp", ranks = 2}
  // expected-error@below {{@k1 reads @s, which @k0 does not gather: no other rank would hear of it}}
  plan.launch @k1 "check_ranks_cpu" check_ranks status(@s) of_ranks(@all) -> status(@s) {code = 1} after @k0
  plan.launch @k2 "relu_cpu" relu x(@x) -> y(@x) predicate not @s after @k0, @k1
}

// -----

// A check that the vote of the ranks does not tell of, of what a launch makes of the batch; one of gathered values is no error.
plan.program @p target "cpu" {
  plan.slot @s : memref<3xi64> status "failed"
  plan.slot @i : memref<2xf32> input "i"
  plan.slot @h : memref<2xf32> output "h"
  plan.slot @v : memref<3xi64> temp
  plan.slot @w : memref<3xi64> temp
  plan.slot @x : memref<2xf32> param "x"
  plan.slot @y : memref<2x2xf32> output "y"
  plan.slot @all : memref<2x3xi64> output "all"
  plan.launch @k0 "relu_cpu" relu x(@i) -> y(@h)
  plan.launch @k1 "all_gather_status_cpu" all_gather_status x(@h) status(@s) -> y(@y) statuses(@all) {group = "dp", ranks = 2} after @k0
  plan.launch @k2 "check_ranks_cpu" check_ranks status(@s) of_ranks(@all) -> status(@v) {code = 4} after @k1
  plan.launch @k3 "check_finite_cpu" check_finite status(@v) x(@y, @x) -> status(@w) {code = 1} after @k2
  // expected-error@below {{@k4 checks @h, which each rank has for itself, after @k1, the last collective: no other rank would hear of it}}
  plan.launch @k4 "check_finite_cpu" check_finite status(@w) x(@h) -> status(@s) {code = 3} after @k3
  plan.launch @k5 "relu_cpu" relu x(@x) -> y(@x) predicate not @s after @k1, @k3, @k4
}

// -----

// An update that does not wait for the vote.
plan.program @p target "cpu" {
  plan.slot @s : memref<3xi64> status "failed"
  plan.slot @x : memref<2xf32> param "x"
  plan.slot @y : memref<2x2xf32> output "y"
  plan.slot @all : memref<2x3xi64> output "all"
  plan.launch @k0 "all_gather_status_cpu" all_gather_status x(@x) status(@s) -> y(@y) statuses(@all) {group = "dp", ranks = 2}
  // expected-error@below {{@k1 comes before @k2, which computes @s}}
  plan.launch @k1 "relu_cpu" relu x(@x) -> y(@x) predicate not @s after @k0
  plan.launch @k2 "check_ranks_cpu" check_ranks status(@s) of_ranks(@all) -> status(@s) {code = 1} after @k1
}

// -----

// A kernel that takes dense tensors only.
plan.program @p target "cpu" {
  plan.slot @x : memref<4x6xf32> input "x"
  plan.slot @v : memref<4x2xf32, strided<[6, 1]>> input alias @x
  plan.slot @y : memref<4x2xf32> output "y"
  // expected-error@below {{@k0: input 0: non-contiguous: got strides [6, 1] for shape [4, 2], expected [2, 1]}}
  plan.launch @k0 "check_finite_cpu" check_finite status(@v) x(@v) -> status(@y) {code = 1}
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4x2xf32> input "x"
  plan.slot @w : memref<4x6xf32> param "w"
  plan.slot @v : memref<4x2xf32, strided<[6, 1]>> param alias @w
  // expected-error@below {{@k0 writes @v, a part of a param slot; those are written whole}}
  plan.launch @k0 "copy_cpu" copy x(@x) -> y(@v)
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4x2xf32> input "x"
  // expected-error@below {{no launch writes a part of @z}}
  plan.slot @z : memref<4x6xf32> output "z"
  plan.slot @v : memref<4x2xf32, strided<[6, 1]>> output alias @z
  plan.launch @k0 "copy_cpu" copy x(@x) -> y(@v)
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4x2xf32> input "x"
  plan.slot @y : memref<4x4xf32> output "y"
  plan.slot @t : memref<4x4xf32> temp
  plan.slot @v : memref<4x2xf32, strided<[4, 1]>> temp alias @t
  plan.launch @k0 "copy_cpu" copy x(@x) -> y(@v)
  // expected-error@below {{@k1 reads @t, of which a part has not been written}}
  plan.launch @k1 "copy_cpu" copy x(@t) -> y(@y) after @k0
}

// -----

// Two parts that have elements in common.
plan.program @p target "cpu" {
  plan.slot @x : memref<4x3xf32> input "x"
  plan.slot @t : memref<4x4xf32> output "t"
  plan.slot @v : memref<4x3xf32, strided<[4, 1]>> output alias @t
  plan.slot @u : memref<4x3xf32, strided<[4, 1], offset: 1>> output alias @t
  plan.launch @k0 "copy_cpu" copy x(@x) -> y(@v)
  // expected-error@below {{@k1 writes @u, which holds the result of @k0: only a launch that reads it may overwrite it; give the new value a slot of its own}}
  plan.launch @k1 "copy_cpu" copy x(@x) -> y(@u) after @k0
}

// -----

// The bytes of one part lie between those of the other: which elements they are decides nothing here.
plan.program @p target "cpu" {
  plan.slot @x : memref<4x2xf32> input "x"
  plan.slot @t : memref<4x4xf32> output "t"
  plan.slot @v : memref<4x2xf32, strided<[4, 1]>> output alias @t
  plan.slot @u : memref<4x2xf32, strided<[4, 1], offset: 2>> output alias @t
  plan.launch @k0 "copy_cpu" copy x(@x) -> y(@v)
  // expected-error@below {{@k1 must be after @k0: they use the same memory, and one of them writes it}}
  plan.launch @k1 "copy_cpu" copy x(@x) -> y(@u)
}

// -----

plan.program @p target "sm_90" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @y : memref<4xf32> output "y"
  // expected-error@below {{the branch of @k0 must be 1 to 15, got -1; a launch on branch 0 names none}}
  plan.launch @k0 "relu_f32_vec4" relu x(@x) -> y(@y) branch -1
}

// -----

plan.program @p target "sm_90" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @y : memref<4xf32> output "y"
  // expected-error@below {{the branch of @k0 must be 1 to 15, got 0; a launch on branch 0 names none}}
  plan.launch @k0 "relu_f32_vec4" relu x(@x) -> y(@y) branch 0
}

// -----

plan.program @p target "sm_90" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @y : memref<4xf32> output "y"
  // expected-error@below {{the branch of @k0 must be 1 to 15, got 16; a launch on branch 0 names none}}
  plan.launch @k0 "relu_f32_vec4" relu x(@x) -> y(@y) branch 16
}

// -----

plan.program @p target "cpu" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @y : memref<4xf32> output "y"
  // expected-error@below {{@k0 is on branch 1, but the CPU runs launches one after another; leave it out}}
  plan.launch @k0 "relu_cpu" relu x(@x) -> y(@y) branch 1
}

// -----

// What `after` lacks is not made good by a branch.
plan.program @p target "sm_90" {
  plan.slot @x : memref<4xf32> input "x"
  plan.slot @y : memref<4xf32> output "y"
  plan.slot @z : memref<4xf32> output "z"
  plan.launch @k0 "relu_f32_vec4" relu x(@x) -> y(@y) branch 1
  // expected-error@below {{@k1 must be after @k0: they use the same memory, and one of them writes it}}
  plan.launch @k1 "relu_f32_vec4" relu x(@y) -> y(@z) branch 1
}

// -----

scalar.body @shifted(%z: f32, %x: f32) -> f32 {
  %y = arith.addf %z, %x : f32
  scalar.yield %y : f32
}
plan.program @p target "sm_90" {
  plan.slot @x : memref<32x32xf32> input "x"
  plan.slot @w : memref<32x32xf32> param "w"
  plan.slot @h : memref<32x32xf32> temp
  plan.slot @y : memref<32x32xf32> output "y"
  plan.launch @k0 "relu_f32_vec4" relu x(@x) -> y(@h)
  // expected-error@below {{@k1 reads operand 0, @h, ahead: a launch right before it may still write that}}
  plan.launch @k1 "" gemm_map a(@h) b(@w) x(@x) -> y(@y) {body = @shifted, ahead = array<i64: 0, 1>} after @k0
}

// -----

scalar.body @shifted(%z: f32, %x: f32) -> f32 {
  %y = arith.addf %z, %x : f32
  scalar.yield %y : f32
}
plan.program @p target "sm_90" {
  plan.slot @x : memref<33x33xf32> input "x"
  plan.slot @y : memref<33x33xf32> output "y"
  // expected-error@below {{@k0: operand 0 cannot be read ahead}}
  plan.launch @k0 "" gemm_map a(@x) b(@x) x(@x) -> y(@y) {body = @shifted, ahead = array<i64: 0>}
}

// -----

scalar.body @shifted(%z: f32, %x: f32) -> f32 {
  %y = arith.addf %z, %x : f32
  scalar.yield %y : f32
}
plan.program @p target "sm_90" {
  plan.slot @x : memref<32x32xf32> input "x"
  plan.slot @y : memref<32x32xf32> output "y"
  // expected-error@below {{@k0: ahead: expected operands from 0 to 2, ascending, got [0, 3]}}
  plan.launch @k0 "" gemm_map a(@x) b(@x) x(@x) -> y(@y) {body = @shifted, ahead = array<i64: 0, 3>}
}

// -----

scalar.body @twice(%x: f32) -> f32 {
  %y = arith.addf %x, %x : f32
  scalar.yield %y : f32
}
plan.program @p target "sm_90" {
  plan.slot @x : memref<32xf32> input "x"
  plan.slot @y : memref<32xf32> output "y"
  // expected-error@below {{@k0: member 0 of a together: only a product reads operands ahead}}
  plan.launch @k0 "" horizontal x(@x) -> y(@y) {body = @twice, members = "map(1 -> 1)", ahead = array<i64: 0>}
}
