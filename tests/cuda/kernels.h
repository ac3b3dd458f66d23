// The kernels of these tests as PTX: text, so that no compiler is needed and the software GPU,
// which knows no machine code, runs the same module as a real one.
#pragma once

inline constexpr const char* kKernels = R"ptx(
.version 7.0
.target sm_75
.address_size 64

.const .align 4 .f32 factor = 0f40000000;
.global .align 4 .u32 counter = 7;
.global .align 8 .b8 table[64];
.extern .shared .align 4 .b8 dynamic[];

.visible .entry nothing()
{
  ret;
}

// c[i] = a[i] + b[i]
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .b64 %rd<8>;
  .reg .f32 %f<4>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.s32 %p, %r5, %r1;
  @%p bra DONE;
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  cvta.to.global.u64 %rd3, %rd3;
  mul.wide.s32 %rd4, %r5, 4;
  add.s64 %rd5, %rd1, %rd4;
  add.s64 %rd6, %rd2, %rd4;
  add.s64 %rd7, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5];
  ld.global.f32 %f2, [%rd6];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd7], %f3;
DONE:
  ret;
}

// out[0] = out[0] * factor + addend, by one thread: the order of launches shows in the result
.visible .entry step(.param .u64 out, .param .u32 multiplier, .param .u32 addend)
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [multiplier];
  ld.param.u32 %r2, [addend];
  cvta.to.global.u64 %rd1, %rd1;
  ld.global.u32 %r3, [%rd1];
  mad.lo.s32 %r4, %r3, %r1, %r2;
  st.global.u32 [%rd1], %r4;
  ret;
}

// The same, after so many turns of a loop that depends on the memory's content.
.visible .entry slow_step(.param .u64 out, .param .u32 multiplier, .param .u32 addend, .param .u32 turns)
{
  .reg .pred %p;
  .reg .b32 %r<8>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [multiplier];
  ld.param.u32 %r2, [addend];
  ld.param.u32 %r5, [turns];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r6, 0;
LOOP:
  ld.volatile.global.u32 %r3, [%rd1];
  add.u32 %r6, %r6, 1;
  setp.lt.u32 %p, %r6, %r5;
  @%p bra LOOP;
  mad.lo.s32 %r4, %r3, %r1, %r2;
  st.global.u32 [%rd1], %r4;
  ret;
}

// Parameters of every size and alignment, each written to its own 8 bytes of out.
.visible .entry mixed(.param .u8 m0, .param .u64 out, .param .u16 m2, .param .align 1 .b8 m3[3],
                      .param .f64 m4, .param .u32 m5, .param .align 16 .b8 m6[32])
{
  .reg .b16 %rs<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<8>;
  .reg .f64 %fd<2>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd1, %rd1;
  ld.param.u8 %r1, [m0];
  cvt.u64.u32 %rd2, %r1;
  st.global.u64 [%rd1], %rd2;
  ld.param.u16 %rs1, [m2];
  cvt.u64.u16 %rd2, %rs1;
  st.global.u64 [%rd1+8], %rd2;
  ld.param.u8 %r1, [m3];
  ld.param.u8 %r2, [m3+1];
  ld.param.u8 %r3, [m3+2];
  shl.b32 %r2, %r2, 8;
  shl.b32 %r3, %r3, 16;
  or.b32 %r4, %r1, %r2;
  or.b32 %r4, %r4, %r3;
  cvt.u64.u32 %rd2, %r4;
  st.global.u64 [%rd1+16], %rd2;
  ld.param.f64 %fd1, [m4];
  st.global.f64 [%rd1+24], %fd1;
  ld.param.u32 %r5, [m5];
  cvt.u64.u32 %rd2, %r5;
  st.global.u64 [%rd1+32], %rd2;
  ld.param.u64 %rd3, [m6];
  st.global.u64 [%rd1+40], %rd3;
  ld.param.u64 %rd4, [m6+24];
  st.global.u64 [%rd1+48], %rd4;
  ret;
}

// data[i] *= factor; counter += 1 by the first thread of the grid
.visible .entry scale(.param .u64 data, .param .u32 n)
{
  .reg .pred %p<3>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<6>;
  .reg .f32 %f<4>;
  ld.param.u64 %rd1, [data];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ne.s32 %p1, %r5, 0;
  @%p1 bra SCALE;
  ld.global.u32 %r6, [counter];
  add.u32 %r6, %r6, 1;
  st.global.u32 [counter], %r6;
SCALE:
  setp.ge.s32 %p2, %r5, %r1;
  @%p2 bra DONE;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.s32 %rd3, %r5, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.const.f32 %f1, [factor];
  ld.global.f32 %f2, [%rd4];
  mul.f32 %f3, %f1, %f2;
  st.global.f32 [%rd4], %f3;
DONE:
  ret;
}

// Reverses a block's values through dynamic shared memory.
.visible .entry reverse(.param .u64 data)
{
  .reg .b32 %r<8>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [data];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ntid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r3, [%rd3];
  mov.u32 %r4, dynamic;
  shl.b32 %r5, %r1, 2;
  add.u32 %r5, %r4, %r5;
  st.shared.u32 [%r5], %r3;
  bar.sync 0;
  sub.u32 %r6, %r2, %r1;
  sub.u32 %r6, %r6, 1;
  shl.b32 %r6, %r6, 2;
  add.u32 %r6, %r4, %r6;
  ld.shared.u32 %r7, [%r6];
  st.global.u32 [%rd3], %r7;
  ret;
}

// 40,000 bytes of static shared memory.
.visible .entry shares(.param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  .shared .align 4 .b8 block[40000];
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r1, 5;
  st.shared.u32 [block+39996], %r1;
  ld.shared.u32 %r2, [block+39996];
  st.global.u32 [%rd1], %r2;
  ret;
}

.visible .entry bounded() .maxntid 64, 1, 1
{
  ret;
}

// One byte through an address that is an argument, in a structure, or in device memory.
.visible .entry put(.param .u64 to, .param .u32 value)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [to];
  ld.param.u32 %r1, [value];
  st.u8 [%rd1], %r1;
  ret;
}

.visible .entry put_by_structure(.param .align 8 .b8 what[24], .param .u32 value)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [what+8];
  ld.param.u32 %r1, [value];
  st.u8 [%rd1], %r1;
  ret;
}

.visible .entry put_by_pointer(.param .u64 where, .param .u32 value)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [where];
  ld.param.u32 %r1, [value];
  ld.u64 %rd2, [%rd1];
  st.u8 [%rd2], %r1;
  ret;
}

// to[i * stride] = value + i
.visible .entry put_strided(.param .u64 to, .param .u32 n, .param .u32 stride, .param .u32 value)
{
  .reg .pred %p;
  .reg .b32 %r<9>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [to];
  ld.param.u32 %r1, [n];
  ld.param.u32 %r2, [stride];
  ld.param.u32 %r3, [value];
  mov.u32 %r4, %ctaid.x;
  mov.u32 %r5, %ntid.x;
  mov.u32 %r6, %tid.x;
  mad.lo.s32 %r7, %r4, %r5, %r6;
  setp.ge.u32 %p, %r7, %r1;
  @%p bra DONE;
  mul.wide.u32 %rd2, %r7, %r2;
  add.s64 %rd3, %rd1, %rd2;
  add.u32 %r8, %r3, %r7;
  st.u8 [%rd3], %r8;
DONE:
  ret;
}

// Waits until *flag is not 0, then puts it into *answer.
.visible .entry answer(.param .u64 flag, .param .u64 answer)
{
  .reg .pred %p;
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [flag];
  ld.param.u64 %rd2, [answer];
LOOP:
  ld.volatile.u32 %r1, [%rd1];
  setp.eq.u32 %p, %r1, 0;
  @%p bra LOOP;
  st.volatile.u32 [%rd2], %r1;
  ret;
}

// Writes where nothing is.
.visible .entry stray()
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  mov.u64 %rd1, 64;
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
)ptx";
