/* An ARM Cortex-M4 without an operating system: the first instructions, and a debugger as the console. */
#include "board.h"

#include <stdint.h>

int main(void);

/* set by cortex_m4.ld */
extern uint32_t data_source[], data_start[], data_end[], bss_start[], bss_end[], stack_end[];
extern char flash_size[], ram_size[];

#define COPROCESSORS (*(volatile uint32_t *)0xE000ED88) /* bits 20 to 23 switch the floating-point unit on */
#define SYSTICK ((volatile uint32_t *)0xE000E010)       /* control, start, count */
#define INSTRUCTIONS_A_TICK 40                          /* in QEMU with -icount shift=0, at 25 MHz */

enum { WRITE0 = 0x04, EXIT = 0x18, EXIT_NORMAL = 0x20026, EXIT_ERROR = 0x20023 };

/* semihosting: a breakpoint that the debugger, or QEMU, takes as a request */
static void request(uint32_t operation, uintptr_t argument)
{
    register uint32_t r0 __asm__("r0") = operation;
    register uintptr_t r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

static void stop(uint32_t reason)
{
    request(EXIT, reason);
    for (;;) {
    }
}

void board_print(const char *text)
{
    request(WRITE0, (uintptr_t)text);
}

unsigned board_instructions(void)
{
    return (0xFFFFFFu - SYSTICK[2]) * INSTRUCTIONS_A_TICK;
}

unsigned board_flash(void)
{
    return (unsigned)(uintptr_t)flash_size;
}

unsigned board_ram(void)
{
    return (unsigned)(uintptr_t)ram_size;
}

static void reset(void)
{
    COPROCESSORS |= 0xFu << 20;
    __asm__ volatile("dsb\n isb");
    const uint32_t *from = data_source;
    for (uint32_t *to = data_start; to < data_end;) *to++ = *from++;
    for (uint32_t *to = bss_start; to < bss_end;) *to++ = 0;
    SYSTICK[1] = 0xFFFFFF;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5; /* on, at the processor's clock, without an interrupt */
    stop(main() ? EXIT_ERROR : EXIT_NORMAL);
}

static void fault(void)
{
    board_print("fault\n");
    stop(EXIT_ERROR);
}

/* what the processor reads first: where the stack starts, and the addresses of the handlers */
__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    void (*handlers[15])(void);
} vectors = {stack_end, {reset, fault, fault, fault, fault, fault}};
