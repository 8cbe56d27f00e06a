/* Linux, on any processor. */
#include "board.h"

#include <stdio.h>

void board_print(const char *text)
{
    fputs(text, stdout);
}

unsigned board_instructions(void)
{
    return 0;
}

unsigned board_flash(void)
{
    return 0;
}

unsigned board_ram(void)
{
    return 0;
}
