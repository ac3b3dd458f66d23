/* Stack switching for x86-64 System V. Only callee-saved integer registers are kept: MXCSR and
 * the x87 control word are the same in all fibers of a launch (kernel_abi.h forbids to change
 * them across a service call).
 */
    .text

/* void sg_fiber_switch(void** save_sp, void* to_sp) */
    .globl  sg_fiber_switch
    .hidden sg_fiber_switch
    .type   sg_fiber_switch, @function
    .p2align 4
sg_fiber_switch:
    .cfi_startproc
    pushq   %rbp
    pushq   %rbx
    pushq   %r12
    pushq   %r13
    pushq   %r14
    pushq   %r15
    movq    %rsp, (%rdi)
    movq    %rsi, %rsp
    popq    %r15
    popq    %r14
    popq    %r13
    popq    %r12
    popq    %rbx
    popq    %rbp
    ret
    .cfi_endproc
    .size   sg_fiber_switch, .-sg_fiber_switch

/* void sg_fiber_abandon(void* to_sp): as a switch, but nothing of the present stack is kept. The
 * signal handler makes a faulting thread continue here. */
    .globl  sg_fiber_abandon
    .hidden sg_fiber_abandon
    .type   sg_fiber_abandon, @function
    .p2align 4
sg_fiber_abandon:
    .cfi_startproc
    .cfi_undefined rip
    cld
    movq    %rdi, %rsp
    popq    %r15
    popq    %r14
    popq    %r13
    popq    %r12
    popq    %rbx
    popq    %rbp
    ret
    .cfi_endproc
    .size   sg_fiber_abandon, .-sg_fiber_abandon

/* First return address of a fresh fiber: r12 = argument, r13 = function, which never returns.
 * The undefined return address ends every stack walk here. */
    .globl  sg_fiber_start
    .hidden sg_fiber_start
    .type   sg_fiber_start, @function
    .p2align 4
sg_fiber_start:
    .cfi_startproc
    .cfi_undefined rip
    movq    %r12, %rdi
    call    *%r13
    ud2
    .cfi_endproc
    .size   sg_fiber_start, .-sg_fiber_start

    .section .note.GNU-stack,"",@progbits
